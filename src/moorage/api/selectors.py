"""Selectors: which labels a selector asks for, as frozen values that can be matched, compared and used as keys.

A selector is compiled once into a sorted set of requirements. Two selectors that say the same thing in another order
compile to equal values, so counts and verdicts can be kept per selector. A requirement judges one label's value (or its
absence), nothing else: whoever holds labels as columns can ask it once per distinct value.

Node selectors are a list of terms, any of which may match. A term that cannot be parsed never matches and carries its
error, as upstream's lazy node selector does; a term that asks for nothing is dropped, because it matches nothing.

Source  apimachinery, pkg/labels/selector.go and pkg/apis/meta/v1/helpers.go;
        component-helpers, scheduling/corev1/nodeaffinity/nodeaffinity.go
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moorage.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from moorage.api.integers import parse_int64
from moorage.api.meta import LabelSelector
from moorage.api.names import check_label_value, check_qualified_name
from moorage.errors import Fault, InputError

__all__ = [
    "EVERYTHING", "NOTHING", "NodeSelectorMatcher", "NodeTerm", "Requirement", "Selector", "SelectorError", "aggregate",
    "compile_label_selector", "compile_node_selector", "compile_node_term", "label_selector_matches", "requirement_faults",
    "selector_from_map",
]  # fmt: skip

_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")


class SelectorError(InputError):
    """A selector that cannot be parsed; the texts are apimachinery's."""


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """What is asked of one label. ``values`` are sorted and without repeats; operators are the API's words."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    _known: frozenset[str] = field(init=False, repr=False, compare=False)
    _bound: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = frozenset(self.values)
        compares = self.operator in {"Gt", "Lt"} and len(values) == 1
        object.__setattr__(self, "values", tuple(sorted(values)))
        object.__setattr__(self, "_known", values)
        object.__setattr__(self, "_bound", parse_int64(self.values[0]) if compares else None)

    def matches(self, value: str | None) -> bool:
        """Judge one label's value; None stands for a label that is not there."""
        match self.operator:
            case "In":
                return value is not None and value in self._known
            case "NotIn":
                return value is None or value not in self._known
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
            case _:
                return False

    def _compares(self, value: str | None) -> bool:
        number = None if value is None else parse_int64(value)
        if number is None or self._bound is None:
            return False
        return number > self._bound if self.operator == "Gt" else number < self._bound

    def __str__(self) -> str:
        match self.operator:
            case "In" | "NotIn" if len(self.values) == 1:
                return f"{self.key}{'=' if self.operator == 'In' else '!='}{self.values[0]}"
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"
            case "Gt" | "Lt":
                return f"{self.key}{'>' if self.operator == 'Gt' else '<'}{','.join(self.values)}"
            case "DoesNotExist":
                return f"!{self.key}"
            case _:
                return self.key


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled label selector: every requirement must hold. Sorted, without repeats, hashable.

    ``matches_nothing`` is the selector of an absent ``labelSelector``; adding to it changes nothing.
    """

    requirements: tuple[Requirement, ...] = ()
    matches_nothing: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        requirements = () if self.matches_nothing else tuple(sorted(set(self.requirements)))
        object.__setattr__(self, "requirements", requirements)
        object.__setattr__(self, "_hash", hash((requirements, self.matches_nothing)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def is_empty(self) -> bool:
        """True when every set of labels matches."""
        return not self.requirements and not self.matches_nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        return not self.matches_nothing and all(asked.matches(labels.get(asked.key)) for asked in self.requirements)

    def with_requirement(self, key: str, operator: str, values: Iterable[str] = ()) -> Selector:
        """Return this selector with one more requirement. Values may be anything a label holds; they are not checked."""
        if operator not in _NODE_OPERATORS:
            raise SelectorError(f'"{operator}" is not a valid label selector operator')
        return Selector((*self.requirements, Requirement(key, operator, tuple(values))), self.matches_nothing)

    def __str__(self) -> str:
        """Return the selector as ``kubectl -l`` takes it; a selector that matches nothing has no such text."""
        return ",".join(map(str, self.requirements))


EVERYTHING = Selector()
NOTHING = Selector(matches_nothing=True)


def label_selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Judge one set of labels. None matches nothing, an empty selector everything. Compile it to ask more than once."""
    return compile_label_selector(selector).matches(labels)


def compile_label_selector(selector: LabelSelector | None) -> Selector:
    """Return the compiled form of a label selector.

    Raises  SelectorError for an unknown operator, values that do not suit it, or texts no label can hold
    """
    if selector is None:
        return NOTHING
    asked = [Requirement(key, "In", (value,)) for key, value in sorted(selector.match_labels.items())]
    for requirement in asked:
        _refuse(requirement_faults(requirement.key, "In", requirement.values))
    for expression in selector.match_expressions:
        if expression.operator not in _LABEL_OPERATORS:
            raise SelectorError(f"{_quoted(expression.operator)} is not a valid label selector operator")
        _refuse(requirement_faults(expression.key, expression.operator, expression.values))
        asked.append(Requirement(expression.key, expression.operator, expression.values))
    return Selector(tuple(asked))


def selector_from_map(labels: Mapping[str, str]) -> Selector:
    """Return the selector of a service, a replication controller or ``nodeSelector``: every label as given, unchecked."""
    return Selector(tuple(Requirement(key, "In", (value,)) for key, value in labels.items()))


def _refuse(faults: list[Fault]) -> None:
    if faults:
        raise SelectorError(aggregate(faults))


def aggregate(faults: Iterable[Fault]) -> str:
    """Join error texts as Go's aggregate error does: one stands alone, several go in brackets, repeats are dropped."""
    unique = list(dict.fromkeys(map(str, faults)))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def requirement_faults(key: str, operator: str, values: tuple[str, ...], path: str = "") -> list[Fault]:
    """Return what is wrong with one requirement, in apimachinery's words (pkg/labels, NewRequirement).

    ``path`` is where the requirement stands, such as ``matchExpressions[0]``.
    """
    at = f"{path}." if path else ""
    faults = []
    if wrong := check_qualified_name(key):
        faults.append(_invalid(f"{at}key", key, "; ".join(wrong)))
    faults += _value_count_faults(operator, values, at)
    for i, value in enumerate(values):
        if wrong := check_label_value(value):
            faults.append(_invalid(f"{at}values[{i}][{key}]", value, "; ".join(wrong)))
    return faults


def _value_count_faults(operator: str, values: tuple[str, ...], at: str) -> list[Fault]:
    match operator:
        case "In" | "NotIn":
            return [] if values else [_invalid(f"{at}values", values, "for 'in', 'notin' operators, values set can't be empty")]
        case "Exists" | "DoesNotExist":
            why = "values set must be empty for exists and does not exist"
            return [_invalid(f"{at}values", values, why)] if values else []
        case "Gt" | "Lt":
            faults = []
            if len(values) != 1:
                faults.append(_invalid(f"{at}values", values, "for 'Gt', 'Lt' operators, exactly one value is required"))
            why = "for 'Gt', 'Lt' operators, the value must be an integer"
            faults += [_invalid(f"{at}values[{i}]", value, why) for i, value in enumerate(values) if parse_int64(value) is None]
            return faults
        case _:
            return [_not_supported(f"{at}operator", operator, _NODE_OPERATORS)]


def _invalid(path: str, found: str | tuple[str, ...], why: str) -> Fault:
    # An empty list reads "null": that is how Go prints the nil slice it arrives as.
    return Fault("Invalid value", path, why, found if found or isinstance(found, str) else None)


def _not_supported(path: str, found: str, supported: Iterable[str]) -> Fault:
    return Fault("Unsupported value", path, f"supported values: {', '.join(map(_quoted, supported))}", found)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# -- node selectors -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One term of a node selector: all of its requirements must hold, on labels and on the node's name.

    ``fields`` are requirements on node fields; ``metadata.name`` is the only one that has a value.
    ``faults`` says why a term cannot be parsed; such a term has no requirements and never matches.
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
        """Judge the fields alone. A node without a name has no fields to judge, and fields we do not know are empty."""
        if not node_name:
            return True
        return all(asked.matches(node_name if asked.key == "metadata.name" else "") for asked in self.fields)


@dataclass(frozen=True, slots=True)
class NodeSelectorMatcher:
    """A compiled node selector: any term may match; no terms match nothing."""

    terms: tuple[NodeTerm, ...] = ()

    @property
    def error(self) -> str | None:
        """What upstream reports when no term matches and some could not be parsed."""
        faults = [fault for term in self.terms for fault in term.faults]
        return aggregate(faults) if faults else None

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        return any(term.matches(labels, node_name) for term in self.terms)


def compile_node_selector(selector: NodeSelector, path: str = "") -> NodeSelectorMatcher:
    """Return the compiled form of a node selector. Faults stay with their terms; nothing is raised."""
    at = f"{path}.nodeSelectorTerms" if path else "nodeSelectorTerms"
    compiled = (compile_node_term(term, f"{at}[{i}]") for i, term in enumerate(selector.node_selector_terms))
    return NodeSelectorMatcher(tuple(term for term in compiled if term is not None))


def compile_node_term(term: NodeSelectorTerm, path: str = "") -> NodeTerm | None:
    """Return the compiled form of one term, or None for one that asks for nothing and therefore matches nothing."""
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


def _requirements(asked: Iterable[NodeSelectorRequirement]) -> tuple[Requirement, ...]:
    return tuple(sorted({Requirement(one.key, one.operator, one.values) for one in asked}))


def _expression_faults(asked: NodeSelectorRequirement, path: str) -> list[Fault]:
    if asked.operator not in _NODE_OPERATORS:
        return [_not_supported(f"{path}.operator", asked.operator, _NODE_OPERATORS)]
    return requirement_faults(asked.key, asked.operator, asked.values, path)


def _field_faults(asked: NodeSelectorRequirement, path: str) -> list[Fault]:
    if asked.operator not in _FIELD_OPERATORS:
        return [_not_supported(f"{path}.operator", asked.operator, _FIELD_OPERATORS)]
    return [] if len(asked.values) == 1 else [_invalid(f"{path}.values", asked.values, "must have one element")]
