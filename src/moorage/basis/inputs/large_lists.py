"""Read the items of a large List in JSON piece by piece, so that the whole text is never in memory with the objects.

A piece ends at a comma between two items. To test a comma, put the text from the start of an item up to the comma in brackets:
only a comma between two items makes it a valid JSON array.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

import msgspec

from moorage.api.reading.json_tree import UNREADABLE

__all__ = ["ListFrame", "NotInPiecesError", "find_frame", "items_in"]

#: Bytes to read at once, and the maximum number of bytes to search for the end of an item.
_PIECE: Final = 4 << 20
_MOST_PIECE: Final = 64 << 20
#: Bytes at the start and at the end of a file that are searched for the fields before and after the items.
_HEAD: Final = 1 << 16
_TAIL: Final = 1 << 16
#: Maximum number of positions to try for the end of the items, and for the end of a piece.
_TRIES: Final = 40
_PIECE_TRIES: Final = 12
#: The fields before the items. Their values contain no lists or nested objects.
_BEFORE: Final = re.compile(
    rb'\s*\{(?:\s*"(?:apiVersion|kind)"\s*:\s*"[^"\\]*"\s*,|\s*"metadata"\s*:\s*\{[^{}\[\]]*\}\s*,)*\s*"items"\s*:\s*\['
)
_BETWEEN: Final = re.compile(rb"\}\s*,\s*(?=\{)")
#: Number of bytes of an item's start that are compared with the start of the first item.
_OPENING: Final = 24
_read_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class NotInPiecesError(Exception):
    """The file cannot be read in pieces, as it is not a large List in JSON. Read it as a whole."""


class ListFrame(NamedTuple):
    """A List without its items, as JSON; and the offsets in the file at which the text of its items begins and ends."""

    text: bytes
    start: int
    end: int


def find_frame(file: BinaryIO, size: int) -> ListFrame:
    """Find the items of the List in a file of ``size`` bytes.

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
    """Yield the undecoded items of a List, some at a time.

    Raises  NotInPiecesError if the text is not a sequence of items; OSError
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
    """Return the complete items at the start of a text, and the rest of it; None and the text if no item ends in it.

    ``opening`` is the start of the first item. Most items start with the same bytes, so such positions are tried first.
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
