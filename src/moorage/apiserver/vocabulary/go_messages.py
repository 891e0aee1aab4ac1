"""Messages of Go's standard library that kube-apiserver passes on: JSON syntax errors, and values formatted with ``%v``
and ``%q``.

Source  Go 1.26: encoding/json/scanner.go, fmt/print.go, strconv/quote.go
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

__all__ = ["go_quoted", "go_value", "go_word", "syntax_fault"]


# -- values ------------------------------------------------------------------------------------------------------------

_CONTROL: Final = re.compile(r"\\(\\|u00([01][0-9a-f]))|\x7f")
_SHORT: Final = {"07": r"\a", "0b": r"\v"}


def go_quoted(text: str) -> str:
    """Return a text in double quotes, in the format of ``%q``."""
    return _CONTROL.sub(_control, json.dumps(text, ensure_ascii=False))


def _control(found: re.Match[str]) -> str:
    if found[0] == "\x7f":
        return r"\x7f"
    return found[0] if found[2] is None else _SHORT.get(found[2], rf"\x{found[2]}")


def go_value(value: Any) -> str:
    """Return a decoded JSON value in the format of ``%v``: ``map[containers:[map[name:c]]]``."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case dict():
            return f"map[{' '.join(f'{key}:{go_value(inner)}' for key, inner in sorted(value.items()))}]"
        case list():
            return f"[{' '.join(map(go_value, value))}]"
        case _:
            return str(value)


def go_word(value: Any) -> str:
    """Return the name that Go's decoder uses for the type of a JSON value."""
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case dict():
            return "object"
        case list():
            return "array"
        case _:
            return "number"


# -- syntax ------------------------------------------------------------------------------------------------------------

_END: Final = "unexpected end of JSON input"
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_PART: Final = re.compile(rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_UNFINISHED: Final = (
    (re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?[eE][+-]?"), "in exponent of numeric literal"),
    (re.compile(rb"-?(?:0|[1-9][0-9]*)\."), "after decimal point in numeric literal"),
    (re.compile(rb"-"), "in numeric literal"),
)
_LITERALS: Final = {b"t": b"true", b"f": b"false", b"n": b"null"}


class _Fault(Exception):  # noqa: N818 - never leaves this module
    pass


def syntax_fault(data: bytes) -> str:
    """Return Go's syntax error for a text that should be one JSON value, or ""."""
    try:
        at = _value(data, 0)
        at = _skip(data, at)
        if at < len(data):
            raise _wrong(data, at, "after top-level value")
    except _Fault as fault:
        return str(fault)
    return ""


def _skip(data: bytes, at: int) -> int:
    found = _SPACE.match(data, at)
    return found.end() if found else at


def _wrong(data: bytes, at: int, where: str) -> _Fault:
    if at >= len(data):
        return _Fault(_END)
    letter = chr(data[at])
    shown = {"'": r"\'", '"': '"'}.get(letter) or go_quoted(letter)[1:-1]
    if "\x80" <= letter <= "\xa0" or letter == "\xad":
        shown = rf"\u{ord(letter):04x}"
    return _Fault(f"invalid character '{shown}' {where}")


def _value(data: bytes, start: int) -> int:
    """Return the end of the value that begins at ``start``, without recursion."""
    open_brackets: list[bytes] = []
    at = start
    while True:
        at = _skip(data, at)
        first = data[at : at + 1]
        if first in {b"{", b"["} and first:
            open_brackets.append(first)
            at = _skip(data, at + 1)
            if data[at : at + 1] != (b"}" if first == b"{" else b"]"):
                at = _key(data, at) if first == b"{" else at
                continue
        else:
            at = _scalar(data, at)
            if not open_brackets:
                return at
            at = _skip(data, at)
        while open_brackets:
            is_object = open_brackets[-1] == b"{"
            letter = data[at : at + 1]
            if letter == b",":
                at = _key(data, _skip(data, at + 1)) if is_object else at + 1
                break
            if letter != (b"}" if is_object else b"]"):
                raise _wrong(data, at, "after object key:value pair" if is_object else "after array element")
            open_brackets.pop()
            at = _skip(data, at + 1)
        else:
            return at


def _key(data: bytes, at: int) -> int:
    """Return the start of the value that belongs to the key at ``at``."""
    if data[at : at + 1] != b'"':
        raise _wrong(data, at, "looking for beginning of object key string")
    at = _skip(data, _text(data, at))
    if data[at : at + 1] != b":":
        raise _wrong(data, at, "after object key")
    return at + 1


def _scalar(data: bytes, at: int) -> int:
    first = data[at : at + 1]
    if first == b'"':
        return _text(data, at)
    if literal := _LITERALS.get(first):
        return _literal(data, at, literal)
    if not first or first not in b"-0123456789":
        raise _wrong(data, at, "looking for beginning of value")
    found = _NUMBER.match(data, at)
    end = found.end() if found else at
    for pattern, where in _UNFINISHED:
        cut = pattern.match(data, at)
        if cut and cut.end() > end:
            raise _wrong(data, cut.end(), where)
    return end


def _literal(data: bytes, at: int, literal: bytes) -> int:
    for i, letter in enumerate(literal):
        if data[at + i : at + i + 1] != bytes([letter]):
            raise _wrong(data, at + i, f"in literal {literal.decode()} (expecting '{chr(letter)}')")
    return at + len(literal)


def _text(data: bytes, at: int) -> int:
    found = _PART.match(data, at)
    end = found.end() if found else at
    if data[end : end + 1] == b'"':
        return end + 1
    if data[end : end + 1] != b"\\":
        raise _wrong(data, end, "in string literal")
    if data[end + 1 : end + 2] != b"u":
        raise _wrong(data, end + 1, "in string escape code")
    digits = re.compile(rb"[0-9a-fA-F]{0,3}").match(data, end + 2)
    raise _wrong(data, digits.end() if digits else end + 2, r"in \u hexadecimal character escape")
