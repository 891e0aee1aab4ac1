"""A quick line-by-line reader for block-style YAML, the style in which kubectl and people write dumps and manifests.

Most lines of a dump occur many times, so parsed lines are cached. Parts that the reader does not understand (flow style, text
over several lines, escapes) are parsed by libyaml. The reader gives up on documents with faults, and on those where one line
can change the meaning of another (anchors, merge keys, duplicate keys): it raises ``UnusualError``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from sys import intern
from typing import Any, Final, NamedTuple, TypeAlias

from moorage.api.reading.yaml_scalars import ScalarError, key_text, resolve_plain, to_json

# -- yaml lines --------------------------------------------------------------------------------------------------------
# Parse one line of block-style YAML into its column, key and value, for ``yaml_blocks``.
#
# Only lines whose meaning does not depend on other lines are parsed; the others are marked ``OTHER``, for libyaml.


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


# -- yaml blocks -------------------------------------------------------------------------------------------------------

#: Parses a part of a document with libyaml, given its text and the number of enclosing collections. Returns the tree and the
#: number of nodes, in which the start and the end of a collection count as one each; or raises UnusualError.
ReadPart: TypeAlias = Callable[[str, int], tuple[Any, int]]

#: How many parsed lines are cached, and the maximum length of a cached line.
_REMEMBERED: Final = 20_000
_MOST_LENGTH: Final = 100
#: The deepest nesting that this reader handles; libyaml parses deeper documents.
_MAX_DEPTH: Final = 50
#: How many parts libyaml may always parse; beyond that, at most one for every eight lines.
_FEW_PARTS: Final = 8


#: The beginnings of merge keys, complex keys, and values that are no mapping entry.
_NO_ENTRY: Final = ("<<", "?", ":", "{", "[", "!", "&", "*")


class UnusualError(Exception):
    """This reader cannot parse the document; libyaml has to."""


class BlockDocument(NamedTuple):
    """A document. ``line`` is the line of its first node, counted from 0; ``nodes`` is counted as in ``yaml_tree``."""

    root: Any
    line: int
    nodes: int


class BlockReader:
    """Reads documents, and caches parsed lines across documents.

    ``_here`` is the innermost open collection, which starts at ``_column``. ``_last`` is the last line with an entry or an
    item; lines nested below it are the value of ``_pending``, which is a key, or an index if ``_here`` is a list, or None if
    the entry already has its value.
    """

    def __init__(self, read_part: ReadPart) -> None:
        self._read_part = read_part
        self._known: dict[str, Line] = {}
        self._start([])

    def _start(self, lines: list[str]) -> None:
        self._lines = lines
        self._nodes = 2  # the start of the document, and its root
        self._document: list[Any] = [None]
        self._here: Any = self._document
        self._column = self._last = -1
        self._outside: list[tuple[Any, int]] = []
        self._pending: Any = 0
        self._parts = 0

    def read(self, lines: list[str]) -> BlockDocument:
        """Return the document on these lines.

        Raises  UnusualError
        """
        self._start(lines)
        known, count, at = self._known, len(lines), 0
        while at < count:
            line = known.get(lines[at]) or self._parsed(lines[at])
            column, key, value, _ = line
            if key is None or value is OTHER or (column > self._column and self._pending is None):
                at = self._take(line, at)
                continue
            # Most lines are an entry of a mapping.
            if column != self._column or type(self._here) is not dict:
                self._come_to(column, dict)
            here = self._here
            if key in here:
                raise UnusualError
            self._nodes += 2
            if type(value) is not Mark:
                here[key] = value
                self._pending = None
            elif value is NESTED:
                here[key] = None
                self._pending = key
            else:
                here[key] = self._empty(value)
                self._pending = None
            self._last = at
            at += 1
        if self._last < 0:
            raise UnusualError
        first = next(at for at, text in enumerate(lines) if parse_line(text) is not BLANK)
        return BlockDocument(self._document[0], first, self._nodes)

    def _parsed(self, text: str) -> Line:
        line = parse_line(text)
        if len(text) <= _MOST_LENGTH:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[text] = line
        return line

    def _take(self, line: Line, at: int) -> int:
        """Handle any line but a plain mapping entry; return the number of the next line to read."""
        if line is BLANK:
            return at + 1
        column, key, _, item = line
        if key is None and item is None:
            return self._take_other(column, at)
        if column > self._column and self._pending is None:
            return self._take_again(at)
        self._come_to(column, dict if item is None else list)
        self._last = at
        return self._take_part(at) if item is None else self._take_item(item, at)

    def _take_item(self, item: Item, at: int) -> int:
        column, key, value = item
        self._pending = None
        if key is not None:
            self._here.append({})
            self._nodes += 2
            self._enter(self._here[-1], column)
        if value is OTHER:
            return self._take_part(at)
        self._nodes += 1 if key is None else 2
        found = value if type(value) is not Mark else None if value is NESTED else self._empty(value)
        place = len(self._here) if key is None else key
        if key is None:
            self._here.append(found)
        else:
            self._here[key] = found
        if value is NESTED:
            self._pending = place
        return at + 1

    def _empty(self, mark: Mark) -> dict[str, Any] | list[Any]:
        self._nodes += 1
        return {} if mark is NO_ENTRIES else []

    # -- collections -------------------------------------------------------------------------------------------------------

    def _come_to(self, column: int, kind: type) -> None:
        """Open or close collections until the innermost one is of this kind and starts at this column."""
        if column > self._column or (column == self._column and kind is list and type(self._pending) is str):
            self._open(kind, column)
            return
        here, at = self._here, self._column
        while column < at:
            here, at = self._outside.pop()
        if kind is dict and type(here) is list and self._outside:
            here, at = self._outside.pop()  # a list may start at the column of its key
        if column != at or type(here) is not kind:
            raise UnusualError
        self._here, self._column = here, at

    def _open(self, kind: type, column: int) -> None:
        if len(self._outside) >= _MAX_DEPTH:
            raise UnusualError
        opened = kind()
        self._here[self._pending] = opened
        self._nodes += 1  # its start replaces a null that is counted already, so only its end is added
        self._enter(opened, column)

    def _enter(self, opened: Any, column: int) -> None:
        self._outside.append((self._here, self._column))
        self._here, self._column, self._pending = opened, column, None

    # -- parts for libyaml -------------------------------------------------------------------------------------------------

    def _take_other(self, column: int, at: int) -> int:
        """Handle a line whose value is OTHER; return the number of the next line to read."""
        text = self._lines[at]
        if text.startswith(_NO_ENTRY, column):
            raise UnusualError
        if column > self._column and self._last >= 0:
            return self._take_again(at)
        self._come_to(column, list if text.startswith("- ", column) else dict)
        self._pending = None
        self._last = at
        return self._take_part(at)

    def _take_again(self, at: int) -> int:
        """Parse the last entry or item again, with libyaml, as it continues on this line; return the next line's number."""
        if type(self._here) is dict:
            self._here.popitem()
            self._nodes -= 2
        else:
            self._here.pop()
            self._nodes -= 1
        self._pending = None
        end = self._take_part(self._last)
        if end <= at:
            raise UnusualError
        return end

    def _take_part(self, at: int) -> int:
        """Parse an entry or item and all lines nested in it with libyaml; return the number of the line after them."""
        self._parts += 1
        if self._parts > _FEW_PARTS and self._parts > at // 8:
            raise UnusualError  # it is quicker to read the whole document with libyaml
        column, lines = self._column, self._lines
        inner = " " * (column + 1)
        end = at + 1
        while end < len(lines) and (lines[end].startswith(inner) or not lines[end].strip(" ")):
            end += 1
        text = "\n".join([" " * column + lines[at][column:], *lines[at + 1 : end]]) + ("\n" if end < len(lines) else "")
        part, nodes = self._read_part(text, len(self._outside) - 1)
        self._nodes += nodes - 3  # without the document's start, and the collection's start and end: counted already
        if type(part) is not type(self._here) or len(part) != 1:
            raise UnusualError
        if type(part) is list:
            self._here += part
        elif self._here.keys() & part.keys():
            raise UnusualError
        else:
            self._here |= part
        return end
