"""The textual selector language: ``app in (a,b),tier!=cache,size>3,!legacy``.

    selector    = requirement { "," requirement }
    requirement = [ "!" ] KEY | KEY ( "=" | "==" | "!=" | ">" | "<" ) [ VALUE ] | KEY ( "in" | "notin" ) "(" [ values ] ")"
    values      = [ VALUE ] { "," [ VALUE ] }

``in`` and ``notin`` are operators only where one is expected; as a key or a value they are ordinary names. A missing value is
empty. Errors are apimachinery's, word for word, including its odd ``<nil>``: people search for them.

Source  apimachinery, pkg/labels/selector.go, Lexer and Parser
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from moorage.api.names import check_qualified_name
from moorage.api.requirements import Requirement, SelectorError, aggregate, invalid, requirement_faults

__all__ = ["MAX_TEXT", "parse_requirements"]

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


def parse_requirements(text: str) -> list[Requirement]:
    """Return the requirements of a text, in its order.

    Raises  SelectorError
    """
    if len(text) > MAX_TEXT:
        raise SelectorError(f"the selector is longer than {MAX_TEXT} characters")
    return _Parser(text).requirements()


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
