"""Nodes, and checks of values that tables of rules name: what compares fields, or reads texts with a syntax of their own.

Source  kubernetes, pkg/apis/{apps,core,policy,resource,scheduling,storage}/validation
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from moorage.api.admission import SYSTEM_PRIORITY_CLASSES
from moorage.api.core import (
    LabelSelector,
    ObjectMeta,
    PodAffinityTerm,
    PodTemplateSpec,
    ResourceRequirements,
    Taint,
    TopologySpreadConstraint,
)
from moorage.api.meta import Quantity, ResourceList
from moorage.api.names import check_dns1123_label, check_dns1123_subdomain
from moorage.api.pod_groups import CompositePodGroupTemplate, DisruptionMode, WorkloadSpec
from moorage.api.quantity import QuantityError, canonical, parse
from moorage.api.selectors import SelectorError, compile_label_selector, selector_from_map
from moorage.api.validation.faults import (
    Faults,
    any_quantity,
    duplicate,
    forbidden,
    int32,
    invalid,
    label_name,
    named,
    nonnegative,
    one_of,
    positive,
    positive_quantity,
    quantity,
    required,
    unsupported,
)
from moorage.api.validation.metadata import object_meta
from moorage.api.validation.pods import pod_template_faults
from moorage.api.validation.resources import container_resources, node_resources
from moorage.api.validation.rule_checks import check_path_segment
from moorage.api.validation.rule_tables import VALUES, Holders, Seen, attribute, check
from moorage.errors import Bare, Fault

_NAMES: Final[Mapping[str, Callable[[str], list[str]]]] = {
    "": check_dns1123_subdomain, "label": check_dns1123_label, "path segment": check_path_segment,
}  # fmt: skip


@check("object meta")
def _meta(_: str, metadata: ObjectMeta, namespaced: bool, names: str = "") -> Faults:
    return object_meta(metadata, namespaced, _NAMES[names])


for _name, _check in (
    ("int32", int32), ("node resources", node_resources), ("pod template", pod_template_faults), ("positive", positive),
    ("positive quantity", positive_quantity), ("quantity", quantity),
    ("any quantity", any_quantity),
):  # fmt: skip
    check(_name)(_check)


@check("pod overhead")
def _overhead(path: str, amounts: ResourceList) -> Faults:
    return container_resources(path, ResourceRequirements(limits=amounts))


# -- nodes --------------------------------------------------------------------------------------------------------------


def taint_faults(path: str, taints: Iterable[Taint]) -> Faults:
    """Yield the faults of the taints of nodes."""
    return VALUES.faults("Taints", {"items": taints}, path)


@check("distinct taint", of_holder=True)
def _distinct_taint(path: str, taint: Taint, _: Any, __: Holders, seen: Seen) -> Iterable[Fault]:
    known, pair = seen.setdefault(_distinct_taint, set()), (taint.key, taint.effect)
    if pair in known:
        return (duplicate(path, taint, "taints must be unique by key and effect pair"),)
    known.add(pair)
    return ()


# -- affinity and spread -------------------------------------------------------------------------------------------------


@check("label keys")
def _label_keys(path: str, term: PodAffinityTerm | TopologySpreadConstraint) -> Faults:
    """Yield the faults of keys whose values in the pod's labels become part of the selector."""
    match, selector = term.match_label_keys, term.label_selector
    mismatch = term.mismatch_label_keys if isinstance(term, PodAffinityTerm) else ()
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


@check("last constraint of its kind", of_holder=True)
def _last_of_kind(path: str, constraint: TopologySpreadConstraint, _: Any, up: Holders, seen: Seen) -> Iterable[Fault]:
    """Yield a fault if a later constraint has the same topology and policy."""
    if _last_of_kind not in seen:
        constraints = up[0].topology_spread_constraints if up is not None else ()
        seen[_last_of_kind] = Counter((one.topology_key, one.when_unsatisfiable) for one in constraints)
    pair = (constraint.topology_key, constraint.when_unsatisfiable)
    seen[_last_of_kind][pair] -= 1
    if not seen[_last_of_kind][pair]:
        return ()
    return (duplicate(f"{path}.{{topologyKey, whenUnsatisfiable}}", f"{{{pair[0]}, {pair[1]}}}"),)


# -- workloads ----------------------------------------------------------------------------------------------------------

_PERCENT: Final = re.compile("[0-9]+%")


@check("selecting")
def _selects(_: str, spec: Any, kind: str) -> Faults:
    """Yield the faults of a selector, a template, and their combination. A template whose selector is none is not checked,
    except that of a daemon set.
    """
    selector, template, is_daemon = spec.selector, spec.template, kind == "daemonset"
    empty = []
    if selector is None:
        yield from () if is_daemon else (required("spec.selector"),)
    else:
        yield from VALUES.faults("LabelSelector", selector, "spec.selector")
        if not selector.match_labels and not selector.match_expressions:
            empty.append(invalid("spec.selector", selector, f"empty selector is invalid for {kind}"))
    yield from () if is_daemon else empty
    if not is_daemon and not is_selector(selector):
        yield invalid("spec.selector", selector, "" if kind == "statefulset" else "invalid label selector")
        return
    yield from _mismatch(selector, template)
    yield from empty if is_daemon else ()
    yield from pod_template_faults("spec.template", template)
    if template.spec.restart_policy not in {"", "Always"}:
        yield unsupported("spec.template.spec.restartPolicy", template.spec.restart_policy, ("Always",))


def is_selector(selector: LabelSelector | None) -> bool:
    """Return whether a label selector can be compiled. An absent one can: it matches nothing."""
    try:
        compile_label_selector(selector)
    except SelectorError:
        return False
    return True


def _mismatch(selector: LabelSelector | None, template: PodTemplateSpec) -> Faults:
    try:
        matches = compile_label_selector(selector).matches(template.metadata.labels)
    except SelectorError:
        return  # already reported with its path
    if not matches:
        labels = template.metadata.labels or None
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


@check("selected labels")
def _selected_labels(_: str, spec: Any) -> Iterable[Fault]:
    labels = spec.template.metadata.labels
    if selector_from_map(spec.selector).matches(labels):
        return ()
    return (invalid("spec.template.metadata.labels", labels or None, "`selector` does not match template `labels`"),)


@check("number or percentage", of_holder=True)
def _number_or_percent(path: str, value: int | str | None, *_: Any) -> Faults:
    if isinstance(value, int):
        yield from nonnegative(path, value)
    elif value is not None and not _PERCENT.fullmatch(value):
        why = "a valid percent string must be a numeric string followed by an ending '%' "
        yield invalid(path, value, f"{why}(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')")
    elif value is not None and (len(value) > 5 or int(value[:-1]) > 100):
        yield invalid(path, value, "must not be greater than 100%")


@check("system priority", of_holder=True)
def _system_priority(_: str, value: int, found: Any, *__: Any) -> Iterable[Fault]:
    """Yield the fault of a class with a reserved name that is not one of the system's."""
    name = found.metadata.name
    own = SYSTEM_PRIORITY_CLASSES.get(name)
    if not name.startswith("system-") or (own is not None and own.value == value):
        return ()
    wrong = f"{name} is not a known system priority class"
    if own is not None:
        wrong = f"value of {name} PriorityClass must be {own.value}"
    why = f"priority class names with 'system-' prefix are reserved for system use only. error: {wrong}"
    return (forbidden("metadata.name", why),)


# -- pod groups ---------------------------------------------------------------------------------------------------------


@check("union")
def _union(path: str, value: Any, names: list[str]) -> Iterable[Fault]:
    """Yield the fault of a union with no member set, or with several."""
    supported = ", ".join(f"`{name}`" for name in names)
    chosen = [name for name in names if attribute(value, name) is not None]
    if not chosen:
        return (invalid(path, "", f"must specify one of: {supported}"),)
    if len(chosen) > 1:
        return (invalid(path, f"{{{', '.join(chosen)}}}", f"must specify exactly one of: {supported}"),)
    return ()


@check("one list of")
def _one_list(path: str, value: Any, names: list[str]) -> Iterable[Fault]:
    """Yield the fault of a union of lists of which none has items, or several have."""
    supported = ", ".join(f"`{name}`" for name in names)
    chosen = [name for name in names if attribute(value, name)]
    if not chosen:
        return (invalid(path, "", f"must specify one of: {supported}"),)
    if len(chosen) > 1:
        return (invalid(path, f"{{{', '.join(chosen)}}}", f"must specify exactly one of: {supported}"),)
    return ()


#: How deep groups of groups may be in a workload.
_MOST_LEVELS: Final = 4


@check("tree of templates")
def _tree_of_templates(path: str, spec: WorkloadSpec) -> Faults:
    """Yield the faults of a workload's templates as a whole: names, depth, priorities, and groups of groups without any."""
    names = {one.name for one in spec.pod_group_templates}
    yield from _names_below(path, spec.composite_pod_group_templates, names)
    below = f"{path}.compositePodGroupTemplates"
    for at, one in enumerate(spec.composite_pod_group_templates):
        if _levels(one) > _MOST_LEVELS:
            why = f"maximum template hierarchy depth is {_MOST_LEVELS}"
            yield invalid(f"{below}[{at}]", _in_go(one.composite_pod_group_templates), why)
    own = {(one.priority_class_name, one.priority) for one in spec.pod_group_templates}
    if len(own) > 1:
        yield invalid(path, None, "detected multiple priority configurations")
    elif len(own.union(*map(_priorities, spec.composite_pod_group_templates))) > 1:
        why = "all priority and priorityClassName values must be identical, detected multiple values"
        yield invalid(path, None, why)
    for at, one in enumerate(spec.composite_pod_group_templates):
        yield from _childless(f"{below}[{at}]", one)


def _names_below(path: str, templates: Sequence[CompositePodGroupTemplate], names: set[str]) -> Faults:
    """Yield the names that are taken by another list; those that are twice in one list have a fault already."""
    for at, one in enumerate(templates):
        if one.name in names:
            yield duplicate(f"{path}.compositePodGroupTemplates[{at}].name", one.name)
    names |= {one.name for one in templates}
    for at, one in enumerate(templates):
        place = f"{path}.compositePodGroupTemplates[{at}]"
        for number, child in enumerate(one.pod_group_templates):
            if child.name in names:
                yield duplicate(f"{place}.podGroupTemplates[{number}].name", child.name)
        names |= {child.name for child in one.pod_group_templates}
        yield from _names_below(place, one.composite_pod_group_templates, names)


def _in_go(value: Any) -> Any:
    """Return a value as Go writes an untagged struct: all fields, with its own names."""
    if isinstance(value, msgspec.Struct):
        return {
            "".join(word.capitalize() for word in name.split("_")): _in_go(getattr(value, name))
            for name in value.__struct_fields__
        }
    return [*map(_in_go, value)] or None if isinstance(value, tuple) else value


def _levels(template: CompositePodGroupTemplate) -> int:
    return 1 + max(map(_levels, template.composite_pod_group_templates), default=0)


def _priorities(template: CompositePodGroupTemplate) -> set[tuple[str, int | None]]:
    own = {(one.priority_class_name, one.priority) for one in template.pod_group_templates}
    own.add((template.priority_class_name, template.priority))
    return own.union(*map(_priorities, template.composite_pod_group_templates))


def _childless(path: str, template: CompositePodGroupTemplate) -> Faults:
    if not template.pod_group_templates and not template.composite_pod_group_templates:
        yield invalid(path, template.name, "must have at least one child PodGroupTemplate or CompositePodGroupTemplate")
    for at, one in enumerate(template.composite_pod_group_templates):
        yield from _childless(f"{path}.compositePodGroupTemplates[{at}]", one)


@check("distinct names")
def _distinct_names(path: str, things: Iterable[Any]) -> Faults:
    seen: set[str] = set()
    for i, one in enumerate(things):
        if one.name in seen:
            yield duplicate(f"{path}[{i}]", msgspec.to_builtins(one))
        seen.add(one.name)


@check("disruption mode", of_holder=True)
def _disruption(path: str, mode: DisruptionMode | str | None, *_: Any) -> Iterable[Fault]:
    if isinstance(mode, DisruptionMode):
        return _union(path, mode, ["single", "all"])
    return one_of(path, mode, ("Pod", "PodGroup"))


# -- storage ------------------------------------------------------------------------------------------------------------

_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_SINGLE: Final = "ReadWriteOncePod"


@check("access modes")
def _access_modes(path: str, modes: Sequence[str]) -> Faults:
    for mode in modes:
        yield from one_of(path, mode, _ACCESS_MODES)
    if _SINGLE in modes and any(mode != _SINGLE and mode in _ACCESS_MODES for mode in modes):
        yield forbidden(path, "may not use ReadWriteOncePod with other access modes")


@check("only storage", of_holder=True)
def _only_storage(path: str, capacity: Mapping[str, Any] | None, *_: Any) -> Iterable[Fault]:
    shown = {name: str(amount) for name, amount in sorted((capacity or {}).items())}
    return (unsupported(path, shown or (None if capacity is None else {}), ("storage",)),) if set(shown) != {"storage"} else ()


@check("capacity")
def _capacity(path: str, amount: Quantity) -> Faults:
    """Yield the faults of the size of a volume; a negative one has two."""
    with suppress(QuantityError):
        if parse(amount) < 0:
            yield invalid(path, Bare(canonical(amount)), "must be a valid resource quantity")
    yield from positive_quantity(path, amount)


@check("aggregating selector")
def _aggregating(path: str, selector: LabelSelector) -> Faults:
    yield from VALUES.faults("LabelSelector", selector, path)
    try:
        compile_label_selector(selector)
    except SelectorError:
        yield invalid(path, None, "invalid label selector.")


@check("distinct values")
def _distinct_values(path: str, values: Sequence[str]) -> Iterable[Fault]:
    return (duplicate(path, list(values)),) if len(set(values)) != len(values) else ()


# -- devices ------------------------------------------------------------------------------------------------------------


@check("name of request", of_holder=True)
def _request(path: str, name: str, _: Any, up: Holders, seen: Seen) -> Faults:
    """Yield the faults of a reference to one of the requests of a claim, or to an alternative of one."""
    if _request not in seen:
        requests = up[1][0].devices.requests if up is not None else ()
        seen[_request] = {one.name: {inner.name for inner in one.first_available} for one in requests}
    names, segments = seen[_request], name.split("/")
    why = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
    if len(segments) > 2:
        yield invalid(path, name, why)
        return
    for segment in segments:
        yield from named(path, segment)
    if segments[0] not in names or (len(segments) == 2 and segments[1] not in names[segments[0]]):
        yield invalid(path, name, why)


@check("nodes of slice")
def _nodes(path: str, spec: Any) -> Iterable[Fault]:
    chosen = [
        f"`{name}`" for name in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection") if attribute(spec, name)
    ]
    why = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not chosen:
        return (required(path, why),)
    if len(chosen) > 1:
        return (invalid(path, f"{{{', '.join(chosen)}}}", f"{why}, but multiple fields are set"),)
    return ()
