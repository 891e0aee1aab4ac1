"""Label selectors as frozen values that can be matched, compared and used as keys.

A selector is compiled once into a sorted set of requirements. Two selectors that say the same thing in another order
compile to equal values, so counts and verdicts can be kept per selector. The same selector has three spellings: the
structure inside an object, a plain map of labels, and the text that ``kubectl -l`` takes.

Source  apimachinery, pkg/labels/selector.go and pkg/apis/meta/v1/helpers.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moorage.api.meta import LabelSelector
from moorage.api.node_selectors import NodeSelectorMatcher, NodeTerm, compile_node_selector, compile_node_term
from moorage.api.requirements import (
    LABEL_OPERATORS,
    NODE_OPERATORS,
    Requirement,
    SelectorError,
    aggregate,
    quoted,
    requirement_faults,
)
from moorage.api.selector_grammar import parse_requirements
from moorage.errors import Fault

__all__ = [
    "EVERYTHING", "NOTHING", "NodeSelectorMatcher", "NodeTerm", "Requirement", "Selector", "SelectorError", "aggregate",
    "compile_label_selector", "compile_node_selector", "compile_node_term", "label_selector_matches", "parse_selector",
    "requirement_faults", "selector_from_map",
]  # fmt: skip


#: Up to this many requirements are checked one by one, which is faster for few.
_FEW: Final = 16
#: Operators that an absent label satisfies, and those that it does not.
_WITHOUT: Final = frozenset(["DoesNotExist", "NotIn"])
_WITH: Final = frozenset(["Exists", "Gt", "In", "Lt"])


class _Sieve(NamedTuple):
    """Many requirements by their keys, so that a match costs time in proportion to the labels, not to the requirements.

    ``needed`` holds the keys of the labels that must exist.
    """

    needed: frozenset[str]
    by_key: Mapping[str, tuple[Requirement, ...]]

    @classmethod
    def of(cls, requirements: Iterable[Requirement]) -> _Sieve | None:
        """Return the requirements by key; None if one has an unknown operator."""
        by_key: dict[str, list[Requirement]] = {}
        needed: set[str] = set()
        for asked in requirements:
            by_key.setdefault(asked.key, []).append(asked)
            if asked.operator in _WITH:
                needed.add(asked.key)
            elif asked.operator not in _WITHOUT:
                return None
        return cls(frozenset(needed), {key: tuple(some) for key, some in by_key.items()})

    def matches(self, labels: Mapping[str, str]) -> bool:
        if len(self.needed) > len(labels) or not all(key in labels for key in self.needed):
            return False
        fewer, more = (labels, self.by_key) if len(labels) < len(self.by_key) else (self.by_key, labels)
        return all(asked.matches(labels[key]) for key in fewer if key in more for asked in self.by_key[key])


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled label selector: every requirement must hold. Sorted, without repeats, hashable.

    ``matches_nothing`` is the selector of an absent ``labelSelector``; adding to it changes nothing.
    """

    requirements: tuple[Requirement, ...] = ()
    matches_nothing: bool = False
    _hash: int = field(init=False, repr=False, compare=False)
    _sieve: _Sieve | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        requirements = () if self.matches_nothing else tuple(sorted(set(self.requirements)))
        object.__setattr__(self, "requirements", requirements)
        object.__setattr__(self, "_sieve", _Sieve.of(requirements) if len(requirements) > _FEW else None)
        object.__setattr__(self, "_hash", hash((requirements, self.matches_nothing)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def is_empty(self) -> bool:
        """True when every set of labels matches."""
        return not self.requirements and not self.matches_nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.matches_nothing:
            return False
        if self._sieve is not None:
            return self._sieve.matches(labels)
        for asked in self.requirements:  # noqa: SIM110 - all() and its generator take twice as long
            if not asked.matches(labels.get(asked.key)):
                return False
        return True

    def with_requirement(self, key: str, operator: str, values: Iterable[str] = ()) -> Selector:
        """Return this selector with one more requirement. Values may be anything a label holds; they are not checked."""
        if operator not in NODE_OPERATORS:
            raise SelectorError(f"{quoted(operator)} is not a valid label selector operator")
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
        if expression.operator not in LABEL_OPERATORS:
            raise SelectorError(f"{quoted(expression.operator)} is not a valid label selector operator")
        _refuse(requirement_faults(expression.key, expression.operator, expression.values))
        asked.append(Requirement(expression.key, expression.operator, expression.values))
    return Selector(tuple(asked))


def selector_from_map(labels: Mapping[str, str]) -> Selector:
    """Return the selector of a service, a replication controller or ``nodeSelector``: every label as given, unchecked."""
    return Selector(tuple(Requirement(key, "In", (value,)) for key, value in labels.items()))


def parse_selector(text: str) -> Selector:
    """Return the selector that a text spells, such as ``app in (a,b),tier!=cache,!legacy``; the empty text is everything.

    Raises  SelectorError with apimachinery's words, or for a text beyond 64 KiB
    """
    return Selector(tuple(parse_requirements(text)))


def _refuse(faults: list[Fault]) -> None:
    if faults:
        raise SelectorError(aggregate(faults))
