"""Node selectors: lists of terms, one of which must match a node.

A term that cannot be parsed never matches and keeps its faults, as in upstream's lazy node selector. An empty term is dropped,
because it matches nothing. ``metadata.name`` is the only supported field.

Source  component-helpers, scheduling/corev1/nodeaffinity/nodeaffinity.go
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from moorage.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration
from moorage.api.devices import DeviceTaint, DeviceToleration
from moorage.api.quantity import is_decimal_integer, parse_int64
from moorage.api.requirements import NODE_OPERATORS, Requirement, aggregate, invalid, not_supported, requirement_faults
from moorage.errors import Fault

# Taints and tolerations: which taints of a node a pod tolerates.
#
# A toleration without a key matches every key, without an effect every effect, and without an operator compares values for
# equality. ``Lt`` and ``Gt`` compare the taint's value, as a number, with the toleration's; they require the feature gate
# ``TaintTolerationComparisonOperators``.
#
# Source  api/core/v1/toleration.go, ToleratesTaint; component-helpers, scheduling/corev1/helpers.go

#: Pods with more tolerations look them up.
_MANY: Final = 32


def tolerates(toleration: Toleration | DeviceToleration, taint: Taint | DeviceTaint, *, numeric: bool = False) -> bool:
    """Return True if the toleration tolerates the taint, of nodes or of devices."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt" if numeric:
            return _compares(toleration, taint)
        case _:
            return False


def _compares(toleration: Toleration | DeviceToleration, taint: Taint | DeviceTaint) -> bool:
    """Compare two canonical integers; return False for anything else, as upstream does after logging it."""
    if not (is_decimal_integer(toleration.value) and is_decimal_integer(taint.value)):
        return False
    bound, value = parse_int64(toleration.value), parse_int64(taint.value)
    if bound is None or value is None:
        return False
    return value < bound if toleration.operator == "Lt" else value > bound


def find_untolerated(
    taints: Iterable[Taint],
    tolerations: Iterable[Toleration],
    effects: Container[str] | None = None,
    numeric: bool = False,
) -> Taint | None:
    """Return the first taint that no toleration tolerates, among taints with one of ``effects`` (None: all)."""
    is_tolerated = tolerance(tuple(tolerations), numeric)
    for taint in taints:
        if effects is not None and taint.effect not in effects:
            continue
        if not is_tolerated(taint):
            return taint
    return None


def tolerance(held: tuple[Toleration, ...], numeric: bool) -> Callable[[Taint], bool]:
    """Return a function that says whether one of the tolerations tolerates a taint."""
    if len(held) <= _MANY:
        return lambda taint: any(tolerates(toleration, taint, numeric=numeric) for toleration in held)
    exact = {(one.key, one.effect, None if one.operator == "Exists" else one.value) for one in held if one.operator in _EXACT}
    others = [one for one in held if numeric and one.operator not in _EXACT]

    def is_tolerated(taint: Taint) -> bool:
        forms = product((taint.key, ""), (taint.effect, ""), (taint.value, None))
        return not exact.isdisjoint(forms) or any(tolerates(one, taint, numeric=True) for one in others)

    return is_tolerated


_EXACT: Final = frozenset(["", "Equal", "Exists"])

_FIELD_OPERATORS = ("In", "NotIn")


def required_nodes(spec: PodSpec) -> NodeSelector | None:
    """Return a pod's required node affinity; None if it has none."""
    affinity = spec.affinity and spec.affinity.node_affinity
    return affinity.required_during_scheduling_ignored_during_execution if affinity else None


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One term of a node selector: all of its requirements must hold, on labels and on the node's name.

    ``fields`` are requirements on node fields; only ``metadata.name`` has a value.
    ``faults`` says why the term cannot be parsed; it then has no requirements and never matches.
    """

    requirements: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def error(self) -> str | None:
        return aggregate(self.faults) if self.faults else None

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        if self.faults:
            return False
        return all(asked.matches(labels.get(asked.key)) for asked in self.requirements) and self.matches_name(node_name)

    def matches_name(self, node_name: str) -> bool:
        """Return whether the requirements on fields match a node of this name. An empty name matches.

        Only ``metadata.name`` has a value; all other fields are "".
        """
        if not node_name:
            return True
        return all(asked.matches(node_name if asked.key == "metadata.name" else "") for asked in self.fields)


@dataclass(frozen=True, slots=True)
class NodeSelectorMatcher:
    """A compiled node selector: any term may match; no terms match nothing."""

    terms: tuple[NodeTerm, ...] = ()

    @property
    def error(self) -> str | None:
        """The error that upstream reports if no term matches and some cannot be parsed."""
        faults = [fault for term in self.terms for fault in term.faults]
        return aggregate(faults) if faults else None

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        return any(term.matches(labels, node_name) for term in self.terms)


def compile_node_selector(selector: NodeSelector, path: str = "") -> NodeSelectorMatcher:
    """Return the compiled form of a node selector. A term with faults keeps them in ``NodeTerm.faults``; nothing is raised."""
    at = f"{path}.nodeSelectorTerms" if path else "nodeSelectorTerms"
    compiled = (compile_node_term(term, f"{at}[{i}]") for i, term in enumerate(selector.node_selector_terms))
    return NodeSelectorMatcher(tuple(term for term in compiled if term is not None))


def compile_node_term(term: NodeSelectorTerm, path: str = "") -> NodeTerm | None:
    """Return the compiled form of one term, or None for an empty term, which matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return None
    at = f"{path}." if path else ""
    faults: list[Fault] = []
    for i, asked in enumerate(term.match_expressions):
        faults += _expression_faults(asked, f"{at}matchExpressions[{i}]")
    for i, asked in enumerate(term.match_fields):
        faults += _field_faults(asked, f"{at}matchFields[{i}]")
    if faults:
        return NodeTerm(faults=tuple(faults))
    return NodeTerm(_requirements(term.match_expressions), _requirements(term.match_fields))


def _requirements(asked: Sequence[NodeSelectorRequirement]) -> tuple[Requirement, ...]:
    if len(asked) < 2:
        return tuple(Requirement(one.key, one.operator, one.values) for one in asked)
    return tuple(sorted({Requirement(one.key, one.operator, one.values) for one in asked}))


def _expression_faults(asked: NodeSelectorRequirement, path: str) -> list[Fault]:
    if asked.operator not in NODE_OPERATORS:
        return [not_supported(f"{path}.operator", asked.operator, NODE_OPERATORS)]
    return requirement_faults(asked.key, asked.operator, asked.values, path)


def _field_faults(asked: NodeSelectorRequirement, path: str) -> list[Fault]:
    if asked.operator not in _FIELD_OPERATORS:
        return [not_supported(f"{path}.operator", asked.operator, _FIELD_OPERATORS)]
    return [] if len(asked.values) == 1 else [invalid(f"{path}.values", asked.values, "must have one element")]
