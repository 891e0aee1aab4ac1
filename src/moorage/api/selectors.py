"""Label selectors as frozen values that can be matched, compared and used as keys.

A selector is compiled once into a sorted set of requirements. Selectors that differ only in order compile to equal values, so
counts and verdicts can be cached per selector. There are three source forms: the structure inside an object, a plain map of
labels, and the text of ``kubectl -l``.

Source  apimachinery, pkg/labels/selector.go and pkg/apis/meta/v1/helpers.go
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from moorage.api.meta import LabelSelector, LabelSelectorRequirement
from moorage.api.names import check_qualified_name
from moorage.api.node_selectors import NodeSelectorMatcher, NodeTerm, compile_node_selector, compile_node_term
from moorage.api.requirements import LABEL_OPERATORS, Requirement, SelectorError, aggregate, invalid, quoted, requirement_faults
from moorage.errors import Fault

__all__ = [
    "EVERYTHING", "MAX_TEXT", "NOTHING", "NodeSelectorMatcher", "NodeTerm", "Requirement", "Selector",
    "SelectorError", "aggregate", "compile_label_selector", "compile_node_selector", "compile_node_term",
    "label_selector_matches", "parse_selector", "selector_from_map",
]  # fmt: skip


# The textual selector language: ``app in (a,b),tier!=cache,size>3,!legacy``.
#
#     selector    = requirement { "," requirement }
#     requirement = [ "!" ] KEY | KEY ( "=" | "==" | "!=" | ">" | "<" ) [ VALUE ] | KEY ( "in" | "notin" ) "(" [ values ] ")"
#     values      = [ VALUE ] { "," [ VALUE ] }
#
# ``in`` and ``notin`` are operators only where one is expected; as a key or a value they are ordinary names. A missing value
# is empty. Errors are apimachinery's, word for word, including its odd ``<nil>``: people search for them.
#
# Source  apimachinery, pkg/labels/selector.go, Lexer and Parser

#: The longest text to parse, in characters; a URL for an API server would not hold more.
MAX_TEXT: Final = 1 << 16

_TOKEN = re.compile(r"==|!=|[=!(),<>]|[^ \t\r\n=!(),<>]+")
_OPERATORS: Final = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}
_SYMBOLS: Final = frozenset(["==", "!=", "=", "!", "(", ")", ",", "<", ">"])
_EXPECTED_OPERATORS = "in, notin, =, ==, !=, gt, lt"


class _Token(NamedTuple):
    """A symbol, a name, or the end, which has an empty text."""

    text: str
    is_name: bool


class _Parser:
    def __init__(self, text: str) -> None:
        # Go's lexer ends at a NUL.
        words = _TOKEN.findall(text.partition("\0")[0])
        self.tokens = [_Token(word, word not in _SYMBOLS) for word in words] + [_Token("", False)]
        self.at = 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def take(self) -> _Token:
        token = self.next
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        if not self.next.text:
            return found
        if not self._starts_requirement():
            raise SelectorError(f"found '{self.next.text}', expected: !, identifier, or 'end of string'")
        while True:
            try:
                found.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            token = self.take()
            if not token.text:
                return found
            if token.text != ",":
                raise SelectorError(f"found '{token.text}', expected: ',' or 'end of string'")
            if not self._starts_requirement():
                raise SelectorError(f"found '{self.next.text}', expected: identifier after ','")

    def _starts_requirement(self) -> bool:
        return self.next.is_name or self.next.text == "!"

    def _requirement(self) -> Requirement:
        negated = self.next.text == "!"
        if negated:
            self.take()
        key = self.take()
        if not key.is_name:
            raise SelectorError(f"found '{key.text}', expected: identifier")
        if wrong := check_qualified_name(key.text):
            raise SelectorError(str(invalid("<nil>", key.text, "; ".join(wrong))))
        if negated:
            return Requirement(key.text, "DoesNotExist")
        if self.next.text in {"", ","}:
            return Requirement(key.text, "Exists")
        return self._comparison(key.text)

    def _comparison(self, key: str) -> Requirement:
        symbol = self.take()
        operator = _OPERATORS.get(symbol.text)
        if operator is None:
            raise SelectorError(f"found '{symbol.text}', expected: {_EXPECTED_OPERATORS}")
        values = self._values() if symbol.is_name else self._value()
        ordered = tuple(sorted(set(values)))
        if faults := requirement_faults(key, operator, ordered):
            raise SelectorError(aggregate(faults))
        return Requirement(key, operator, ordered)

    def _value(self) -> list[str]:
        if self.next.text in {"", ","}:
            return [""]
        token = self.take()
        if not token.is_name:
            raise SelectorError(f"found '{token.text}', expected: identifier")
        return [token.text]

    def _values(self) -> list[str]:
        if (token := self.take()).text != "(":
            raise SelectorError(f"found '{token.text}' expected: '('")
        if self.next.text == ")":
            self.take()
            return [""]
        if not self.next.is_name and self.next.text != ",":
            raise SelectorError(f"found '{self.next.text}', expected: ',', ')' or identifier")
        values = self._value_list()
        self.take()
        return values

    def _value_list(self) -> list[str]:
        """Parse up to the closing parenthesis, without it. A comma without a value before or after it adds an empty value."""
        values: list[str] = []
        while True:
            token = self.take()
            if token.is_name:
                values.append(token.text)
                if self.next.text == ")":
                    return values
                if self.next.text != ",":
                    raise SelectorError(f"found '{self.next.text}', expected: ',' or ')'")
            elif token.text == ",":
                if not values or self.next.text in {",", ")"}:
                    values.append("")
                if self.next.text == ")":
                    return values
            else:
                raise SelectorError(f"found '{token.text}', expected: ',', or identifier")


#: Up to this many requirements are checked one by one, which is faster for few of them.
_FEW: Final = 16
#: Operators that an absent label satisfies, and operators that it does not satisfy.
_WITHOUT: Final = frozenset(["DoesNotExist", "NotIn"])
_WITH: Final = frozenset(["Exists", "Gt", "In", "Lt"])


class _RequirementsByKey(NamedTuple):
    """Many requirements by key, so that a match takes time proportional to the labels instead of the requirements.

    ``needed``: the keys of labels that must exist.
    """

    needed: frozenset[str]
    by_key: Mapping[str, tuple[Requirement, ...]]

    @classmethod
    def of(cls, requirements: Iterable[Requirement]) -> _RequirementsByKey | None:
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

    ``matches_nothing``: the selector of an absent ``labelSelector``; adding requirements has no effect.
    """

    requirements: tuple[Requirement, ...] = ()
    matches_nothing: bool = False
    _hash: int = field(init=False, repr=False, compare=False)
    _by_key: _RequirementsByKey | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        requirements = () if self.matches_nothing else self.requirements
        if len(requirements) > 1:
            requirements = tuple(sorted(set(requirements)))
        object.__setattr__(self, "requirements", requirements)
        object.__setattr__(self, "_by_key", _RequirementsByKey.of(requirements) if len(requirements) > _FEW else None)
        object.__setattr__(self, "_hash", hash((requirements, self.matches_nothing)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def is_empty(self) -> bool:
        """True if it matches every set of labels."""
        return not self.requirements and not self.matches_nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.matches_nothing:
            return False
        if self._by_key is not None:
            return self._by_key.matches(labels)
        for asked in self.requirements:  # noqa: SIM110 - all() and its generator take twice as long
            if not asked.matches(labels.get(asked.key)):
                return False
        return True

    def __str__(self) -> str:
        """Return the selector in the form of ``kubectl -l``, which has no form for a selector that matches nothing."""
        return ",".join(map(str, self.requirements))


EVERYTHING = Selector()
NOTHING = Selector(matches_nothing=True)


def label_selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Match one set of labels. None matches nothing, an empty selector everything. To match repeatedly, compile it."""
    return compile_label_selector(selector).matches(labels)


def compile_label_selector(selector: LabelSelector | None) -> Selector:
    """Return the compiled form of a label selector.

    Raises  SelectorError for an unknown operator, values that the operator does not allow, or invalid keys or values
    """
    if selector is None:
        return NOTHING
    labels, expressions = tuple(sorted(selector.match_labels.items())), selector.match_expressions
    if len(labels) + sum(1 + len(one.values) for one in expressions) > _FEW:
        return _compiled(labels, expressions)
    return _kept(labels, expressions)


def _compiled(labels: tuple[tuple[str, str], ...], expressions: tuple[LabelSelectorRequirement, ...]) -> Selector:
    asked = [Requirement(key, "In", (value,)) for key, value in labels]
    for requirement in asked:
        _refuse(requirement_faults(requirement.key, "In", requirement.values))
    for expression in expressions:
        if expression.operator not in LABEL_OPERATORS:
            raise SelectorError(f"{quoted(expression.operator)} is not a valid label selector operator")
        _refuse(requirement_faults(expression.key, expression.operator, expression.values))
        asked.append(Requirement(expression.key, expression.operator, expression.values))
    return Selector(tuple(asked))


#: Small selectors are kept: searches compile those of all budgets again and again.
_kept = lru_cache(1024)(_compiled)


def selector_from_map(labels: Mapping[str, str]) -> Selector:
    """Return the selector of a service, a replication controller or a ``nodeSelector``, without validating the labels."""
    return Selector(tuple([Requirement(key, "In", (value,)) for key, value in labels.items()]))


def parse_selector(text: str) -> Selector:
    """Parse a selector such as ``app in (a,b),tier!=cache,!legacy``; the empty text matches everything.

    Raises  SelectorError with apimachinery's text, or for a text beyond 64 KiB
    """
    if len(text) > MAX_TEXT:
        raise SelectorError(f"the selector is longer than {MAX_TEXT} characters")
    return Selector(tuple(_Parser(text).requirements()))


def _refuse(faults: list[Fault]) -> None:
    if faults:
        raise SelectorError(aggregate(faults))
