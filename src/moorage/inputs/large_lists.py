"""Read the items of a large List in JSON piece by piece, so that memory holds the objects and not also the whole text.

The end of a piece is a comma between two items. Which commas these are follows from JSON itself: the text from the start of
one item up to a comma between two items is, in brackets, a complete array, and the text up to any other comma is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

import msgspec

from moorage.api.json_tree import UNREADABLE

__all__ = ["ListFrame", "NotInPiecesError", "find_frame", "items_in"]

#: How much is read at once, and how much may be searched for the end of an item.
_PIECE: Final = 4 << 20
_MOST_PIECE: Final = 64 << 20
#: How much of the start and of the end of a file is searched for the fields around the items.
_HEAD: Final = 1 << 16
_TAIL: Final = 1 << 16
#: How many ends are tried, in the file and in a piece.
_TRIES: Final = 40
_PIECE_TRIES: Final = 12
#: The fields before the items: with values that hold no items themselves.
_BEFORE: Final = re.compile(
    rb'\s*\{(?:\s*"(?:apiVersion|kind)"\s*:\s*"[^"\\]*"\s*,|\s*"metadata"\s*:\s*\{[^{}\[\]]*\}\s*,)*\s*"items"\s*:\s*\['
)
_BETWEEN: Final = re.compile(rb"\}\s*,\s*(?=\{)")
#: How many bytes at the start of an item are compared with those of the first one.
_OPENING: Final = 24
_read_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class NotInPiecesError(Exception):
    """The file is no large List, or is not JSON: read it as a whole."""


class ListFrame(NamedTuple):
    """A List without its items, as JSON; and where the text of its items begins and ends."""

    text: bytes
    start: int
    end: int


def find_frame(file: BinaryIO, size: int) -> ListFrame:
    """Return what is around the items.

    Raises  NotInPiecesError; OSError
    """
    before = _BEFORE.match(file.read(_HEAD))
    if before is None:
        raise NotInPiecesError
    file.seek(max(before.end(), size - _TAIL))
    tail = file.read(_TAIL)
    at = len(tail)
    for _ in range(_TRIES):
        at = tail.rfind(b"]", 0, at)
        if at < 0:
            break
        text = before[0] + tail[at:]
        try:
            msgspec.json.decode(text)
        except UNREADABLE:
            continue
        return ListFrame(text, before.end(), size - len(tail) + at)
    raise NotInPiecesError


def items_in(file: BinaryIO, frame: ListFrame) -> Iterator[list[msgspec.Raw]]:
    """Yield the items of a List in parts.

    Raises  NotInPiecesError if the text is no sequence of items; OSError
    """
    file.seek(frame.start)
    left = frame.end - frame.start
    rest, opening = b"", b""
    while left > 0:
        read = file.read(min(_PIECE, left))
        left -= len(read)
        if not read or len(rest) > _MOST_PIECE:
            raise NotInPiecesError
        text = rest + read
        opening = opening or text.lstrip()[:_OPENING]
        if left:
            items, rest = _first_items(text, opening)
        else:
            items, rest = _items(text), b""
        if items is None:
            if not left:
                raise NotInPiecesError
            rest = text
        elif items:
            yield items


def _first_items(text: bytes, opening: bytes) -> tuple[list[msgspec.Raw] | None, bytes]:
    """Return the complete items at the start of a text, and the rest; None if no end of an item is found.

    ``opening`` is how the first item starts; most items start like it.
    """
    found = [(match.start() + 1, match.end()) for match in _BETWEEN.finditer(text, max(0, len(text) - _PIECE // 4))]
    alike = [one for one in found if text.startswith(opening, one[1])]
    for end, start in [*reversed(alike[-_PIECE_TRIES:]), *reversed(found[-_PIECE_TRIES:])]:
        items = _items(text[:end])
        if items is not None:
            return items, text[start:]
    return None, text


def _items(text: bytes) -> list[msgspec.Raw] | None:
    try:
        return _read_items(b"".join((b"[", text, b"]")))
    except UNREADABLE:
        return None
