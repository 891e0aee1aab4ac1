"""Parse one line of block-style YAML into its column, key and value, for ``yaml_blocks``.

Only lines whose meaning does not depend on other lines are parsed; the others are marked ``OTHER``, for libyaml.
"""

from __future__ import annotations

import re
from functools import lru_cache
from sys import intern
from typing import Any, Final, NamedTuple

from moorage.api.yaml_scalars import ScalarError, key_text, resolve_plain, to_json

__all__ = ["BLANK", "NESTED", "NO_ENTRIES", "NO_ITEMS", "OTHER", "Item", "Line", "Mark", "parse_line"]


class Mark:
    """Marks a value that is not a scalar, is not on the line, or needs libyaml."""


#: The value is on the lines below, or null.
NESTED: Final = Mark()
#: Only libyaml can read the value, together with the lines below.
OTHER: Final = Mark()
#: ``{}`` and ``[]``.
NO_ENTRIES: Final = Mark()
NO_ITEMS: Final = Mark()


class Item(NamedTuple):
    """The text after a dash: an entry of a mapping or, if ``key`` is None, a value."""

    column: int
    key: str | None
    value: Any


class Line(NamedTuple):
    """A line: an entry of a mapping if it has a ``key``, an item of a list if it has an ``item``.

    A line with neither is blank or a comment (column -1), or its ``value`` is ``OTHER``.
    """

    column: int
    key: str | None
    value: Any
    item: Item | None = None


BLANK: Final = Line(-1, None, None)
#: A key at the start of a line, with its colon. Plain keys that contain blanks are left to libyaml.
_KEY: Final = re.compile(
    r"""(?: ([A-Za-z0-9_./$(+=~^\\][^ ]{0,500}?) | '([^']{0,500})' | "([^"\\]{0,500})" ) [ ]* : (?: [ ]+ | $ )""", re.VERBOSE
)
#: The same without the colon, with indentation and dash: the part of a line before its first ``": "``.
_START: Final = re.compile(r"[ ]*(?:(-)[ ]+)?([A-Za-z0-9_./$(+=~^\\][^ \t]{0,500})")
#: If this part of a line is longer, it is not cached.
_MOST_START: Final = 600
#: The start of a plain scalar; and texts that a plain scalar on one line does not contain.
_PLAIN_START: Final = re.compile(r"""[^-?:,\[\]{}#&*!|>'"%@`]|-(?=[^ ])""")
_IN_PLAIN: Final = re.compile(r": | #|:$|\t")
_SINGLE: Final = re.compile(r"'((?:[^']|'')*)' *")
_DOUBLE: Final = re.compile(r'"([^"\\]*)" *')
_EMPTY: Final = {"{}": NO_ENTRIES, "[]": NO_ITEMS}


def parse_line(line: str) -> Line:
    """Parse a line."""
    start, colon, rest = line.partition(": ")
    if colon and len(start) < _MOST_START and (known := _start_of_entry(start)) is not None:
        column, key, item_column = known
        value = _value(rest.lstrip(" "))
        return Line(column, key, value) if item_column < 0 else Line(column, None, None, Item(item_column, key, value))
    text = line.lstrip(" ")
    if not text or text[0] == "#":
        return BLANK
    column = len(line) - len(text)
    if text[0] == "-" and (len(text) == 1 or text[1] == " "):
        return _dash(column, text)
    found = _entry(text)
    return Line(column, None, OTHER) if found is None else Line(column, *found)


@lru_cache(maxsize=8192)
def _start_of_entry(start: str) -> tuple[int, str, int] | None:
    """Return a line's column and key, and the key's own column if a dash precedes it, else -1; None if there is no key."""
    found = _START.fullmatch(start)
    if found is None:
        return None
    try:
        key = intern(key_text(resolve_plain(found[2])))
    except ScalarError:
        return None
    dash = found.start(1)
    return (found.start(2), key, -1) if dash < 0 else (dash, key, found.start(2))


def _dash(column: int, text: str) -> Line:
    rest = text[1:].lstrip(" ")
    if not rest or rest[0] == "#":
        return Line(column, None, None, Item(column, None, OTHER if rest else NESTED))
    if rest[0] == "-" and (len(rest) == 1 or rest[1] == " "):
        return Line(column, None, OTHER)
    found = _entry(rest)
    if found is not None:
        return Line(column, None, None, Item(column + len(text) - len(rest), *found))
    return Line(column, None, None, Item(column, None, _value(rest)))


def _entry(text: str) -> tuple[str, Any] | None:
    """Return the key and the value of a mapping entry; None if the text is no entry, or its key needs libyaml."""
    found = _KEY.match(text)
    if found is None:
        return None
    plain, single, double = found.groups()
    try:
        key = key_text(resolve_plain(plain)) if plain is not None else single if single is not None else double
    except ScalarError:
        return None
    rest = text[found.end() :]
    if "\t" in text[: found.end()] or (plain is not None and text[found.end(1)] == " "):
        return None
    return intern(key), _value(rest) if rest else NESTED


def _value(text: str) -> Any:
    """Return the value on a line; OTHER if it may continue on the next line, or needs libyaml."""
    if _PLAIN_START.match(text):
        return OTHER if _IN_PLAIN.search(text) else _plain(text.rstrip(" "))
    if not text:
        return NESTED
    quoted = _SINGLE.fullmatch(text)
    if quoted is not None:
        return OTHER if "\t" in text else quoted[1].replace("''", "'")
    quoted = _DOUBLE.fullmatch(text)
    if quoted is not None:
        return OTHER if "\t" in text else quoted[1]
    return _EMPTY.get(text.rstrip(" "), OTHER)


def _plain(text: str) -> Any:
    value = resolve_plain(text)
    if type(value) is not float:
        return value
    try:
        return to_json(value)
    except ScalarError:
        return OTHER
