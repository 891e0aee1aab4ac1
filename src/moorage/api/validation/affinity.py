"""Affinity, topology spread constraints and tolerations.

Source  kubernetes, pkg/apis/core/validation/validation.go, validateAffinity, validateTopologySpreadConstraints,
        ValidateTolerations
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from moorage.api import core
from moorage.api.meta import LabelSelector
from moorage.api.names import check_dns1123_label, check_dns1123_subdomain, check_label_value
from moorage.api.validation.faults import (
    Faults,
    duplicate,
    forbidden,
    invalid,
    label_name,
    label_selector,
    named,
    one_of,
    positive,
    required,
    unsupported,
)

TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATOR: Final = "not a valid selector operator"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT: Final = "must be in the range 1-100"


def affinity(path: str, given: core.Affinity) -> Faults:
    """Yield the faults of a pod's affinity."""
    nodes = given.node_affinity
    if nodes is not None:
        at = f"{path}.nodeAffinity"
        if nodes.required_during_scheduling_ignored_during_execution is not None:
            yield from node_selector(f"{at}.{_REQUIRED}", nodes.required_during_scheduling_ignored_during_execution)
        for i, preferred in enumerate(nodes.preferred_during_scheduling_ignored_during_execution):
            if not 1 <= preferred.weight <= 100:
                yield invalid(f"{at}.{_PREFERRED}[{i}].weight", preferred.weight, _WEIGHT)
            # Values of preferred terms are not validated as label values; invalid ones never match.
            yield from _node_term(f"{at}.{_PREFERRED}[{i}].preference", preferred.preference, values_are_labels=False)
    if given.pod_affinity is not None:
        yield from _pod_affinity(f"{path}.podAffinity", given.pod_affinity)
    if given.pod_anti_affinity is not None:
        yield from _pod_affinity(f"{path}.podAntiAffinity", given.pod_anti_affinity)


# -- nodes --------------------------------------------------------------------------------------------------------------


def node_selector(path: str, selector: core.NodeSelector) -> Faults:
    """Yield the faults of a required node selector; it needs at least one term."""
    if not selector.node_selector_terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for i, term in enumerate(selector.node_selector_terms):
        yield from _node_term(f"{path}.nodeSelectorTerms[{i}]", term, values_are_labels=True)


def _node_term(path: str, term: core.NodeSelectorTerm, *, values_are_labels: bool) -> Faults:
    for i, asked in enumerate(term.match_expressions):
        yield from _node_expression(f"{path}.matchExpressions[{i}]", asked, values_are_labels)
    for i, asked in enumerate(term.match_fields):
        yield from _node_field(f"{path}.matchFields[{i}]", asked)


def _node_expression(path: str, asked: core.NodeSelectorRequirement, values_are_labels: bool) -> Faults:
    match asked.operator:
        case "In" | "NotIn":
            if not asked.values:
                yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if asked.values:
                yield forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        case "Gt" | "Lt":
            if len(asked.values) != 1:
                yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
        case _:
            yield invalid(f"{path}.operator", asked.operator, _OPERATOR)
    yield from label_name(f"{path}.key", asked.key)
    if values_are_labels:
        for i, value in enumerate(asked.values):
            yield from named(f"{path}.values[{i}]", value, check_label_value)


def _node_field(path: str, asked: core.NodeSelectorRequirement) -> Faults:
    if asked.operator not in {"In", "NotIn"}:
        yield invalid(f"{path}.operator", asked.operator, _OPERATOR)
    elif len(asked.values) != 1:
        yield required(f"{path}.values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
    if asked.key != "metadata.name":
        yield invalid(f"{path}.key", asked.key, "not a valid field selector key")
        return
    for i, value in enumerate(asked.values):
        yield from named(f"{path}.values[{i}]", value, check_dns1123_subdomain)


# -- pods ---------------------------------------------------------------------------------------------------------------


def _pod_affinity(path: str, given: core.PodAffinity) -> Faults:
    for i, term in enumerate(given.required_during_scheduling_ignored_during_execution):
        yield from _pod_term(f"{path}.{_REQUIRED}[{i}]", term)
    for i, weighted in enumerate(given.preferred_during_scheduling_ignored_during_execution):
        if not 1 <= weighted.weight <= 100:
            yield invalid(f"{path}.{_PREFERRED}[{i}].weight", weighted.weight, _WEIGHT)
        yield from _pod_term(f"{path}.{_PREFERRED}[{i}].podAffinityTerm", weighted.pod_affinity_term)


def _pod_term(path: str, term: core.PodAffinityTerm) -> Faults:
    yield from label_selector(f"{path}.labelSelector", term.label_selector)
    yield from label_selector(f"{path}.namespaceSelector", term.namespace_selector)
    for name in term.namespaces:
        yield from named(f"{path}.namespace", name, check_dns1123_label)
    yield from _label_keys(path, term.match_label_keys, term.mismatch_label_keys, term.label_selector)
    if not term.topology_key:
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from label_name(f"{path}.topologyKey", term.topology_key)


def _label_keys(path: str, match: tuple[str, ...], mismatch: tuple[str, ...], selector: LabelSelector | None) -> Faults:
    for name, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if keys and selector is None:
            yield forbidden(f"{path}.{name}", "must not be specified when labelSelector is not set")
            continue
        for i, key in enumerate(keys):
            yield from label_name(f"{path}.{name}[{i}]", key)
    if match and selector is not None:
        # A key that was merged into the selector occurs there once; a second occurrence is a fault.
        held, places = set(selector.match_labels), {key: i for i, key in reversed([*enumerate(match)])}
        for asked in selector.match_expressions:
            if asked.key in places and asked.key in held:
                yield invalid(f"{path}[{places[asked.key]}]", asked.key, "exists in both matchLabelKeys and labelSelector")
            held.add(asked.key)
    both = frozenset(match) & frozenset(mismatch)
    for i, key in enumerate(match):
        if key in both:
            yield invalid(f"{path}.matchLabelKeys[{i}]", key, "exists in both matchLabelKeys and mismatchLabelKeys")


# -- spread -------------------------------------------------------------------------------------------------------------


def spread_constraints(path: str, constraints: tuple[core.TopologySpreadConstraint, ...]) -> Faults:
    """Yield the faults of constraints, including pairs of topology and policy that occur twice."""
    left = Counter((one.topology_key, one.when_unsatisfiable) for one in constraints)
    for i, constraint in enumerate(constraints):
        at = f"{path}[{i}]"
        yield from positive(f"{at}.maxSkew", constraint.max_skew)
        if not constraint.topology_key:
            yield required(f"{at}.topologyKey", "can not be empty")
        yield from one_of(f"{at}.whenUnsatisfiable", constraint.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway"))
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        left[pair] -= 1
        if left[pair]:  # the pair occurs again later
            yield duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{pair[0]}, {pair[1]}}}")
        if constraint.min_domains is not None:
            yield from positive(f"{at}.minDomains", constraint.min_domains)
            if pair[1] != "DoNotSchedule":
                why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {pair[1]}"
                yield invalid(f"{at}.minDomains", constraint.min_domains, why)
        yield from one_of(f"{at}.nodeAffinityPolicy", constraint.node_affinity_policy, ("Honor", "Ignore"))
        yield from one_of(f"{at}.nodeTaintsPolicy", constraint.node_taints_policy, ("Honor", "Ignore"))
        yield from _label_keys(at, constraint.match_label_keys, (), constraint.label_selector)
        yield from label_selector(f"{at}.labelSelector", constraint.label_selector)


# -- tolerations --------------------------------------------------------------------------------------------------------


def tolerations(path: str, given: Iterable[core.Toleration]) -> Faults:
    """Yield the faults of tolerations. ``Lt`` and ``Gt`` are rejected: their feature gate is off."""
    for i, one in enumerate(given):
        at = f"{path}[{i}]"
        if one.key:
            yield from label_name(f"{at}.key", one.key)
        elif one.operator != "Exists":
            yield invalid(
                f"{at}.operator",
                one.operator,
                'operator must be Exists when `key` is empty, which means "match all values and all keys"',
            )
        if one.toleration_seconds is not None and one.effect != "NoExecute":
            yield invalid(f"{at}.effect", one.effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        match one.operator:
            case "" | "Equal":
                if faults := check_label_value(one.value):
                    yield invalid(f"{at}.operator", one.value, ";".join(faults))
            case "Exists":
                if one.value:
                    yield invalid(f"{at}.operator", one.value, "value must be empty when `operator` is 'Exists'")
            case "Lt" | "Gt":
                yield unsupported(f"{at}.operator", one.operator, ("Equal", "Exists", "Lt", "Gt"))
            case _:
                yield unsupported(f"{at}.operator", one.operator, ("Equal", "Exists"))
        yield from one_of(f"{at}.effect", one.effect or None, TAINT_EFFECTS)
