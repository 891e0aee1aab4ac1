"""A quick line-by-line reader for block-style YAML, the style in which kubectl and people write dumps and manifests.

Most lines of a dump occur many times, so parsed lines are cached. Parts that the reader does not understand (flow style, text
over several lines, escapes) are parsed by libyaml. The reader gives up on documents with faults, and on those where one line
can change the meaning of another (anchors, merge keys, duplicate keys): it raises ``UnusualError``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from moorage.api.yaml_lines import BLANK, NESTED, NO_ENTRIES, OTHER, Item, Line, Mark, parse_line

__all__ = ["BlockDocument", "BlockReader", "ReadPart", "UnusualError"]

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
