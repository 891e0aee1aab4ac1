"""Events of watches as bytes, encoded once for all watches that take the same form."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from moorage.apiserver.http.sending import PIECE
from moorage.apiserver.schema.protobuf_encoding import write_event
from moorage.apiserver.schema.representations import JSON, metadata_of
from moorage.apiserver.storage.watches import WatchedObject

__all__ = ["MOST_BYTES", "Lines", "event_line"]

#: How much is kept of what was encoded last, in bytes.
MOST_BYTES: Final = 4 << 20


class Lines:
    """The events that watches showed last. All watches of a server share it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str, str, str], bytes] = OrderedDict()
        self._bytes = 0

    def of(self, seen: WatchedObject, form: str, encoding: str) -> tuple[bytes, ...]:
        """Return the parts of an event with the object whole, or with its metadata where the form is of that."""
        if seen.listed and len(seen.held.body) <= PIECE:
            return (_line(seen, form, encoding),)  # each watch lists at its own time, so none would find it again
        key = seen.version, seen.type, form, encoding
        line = self._kept.get(key)
        if line is not None:
            return (line,)
        body = seen.held.body
        if len(body) > PIECE and encoding == JSON and not form.startswith("Partial") and seen.held.version == seen.version:
            return _head(seen.type), body, _TAIL  # nothing is copied
        return (self._keep(key, _line(seen, form, encoding)),)

    def kept(self, key: tuple[int, str, str, str], make: Callable[[], bytes]) -> bytes:
        """Return the line of a version, a type, a form and an encoding, made if it is not there."""
        line = self._kept.get(key)
        return self._keep(key, make()) if line is None else line

    def _keep(self, key: tuple[int, str, str, str], line: bytes) -> bytes:
        self._kept[key] = line
        self._bytes += len(line)
        while self._bytes > MOST_BYTES:
            self._bytes -= len(self._kept.popitem(last=False)[1])
        return line


def _line(seen: WatchedObject, form: str, encoding: str) -> bytes:
    record = seen.record
    return event_line(seen.type, metadata_of(record) if form.startswith("Partial") else record.body, encoding)


def _head(kind: str) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":'


_TAIL: Final = b"}\n"


def event_line(kind: str, body: bytes, encoding: str) -> bytes:
    """Return one event of a watch: a line of JSON, or a frame of protobuf."""
    if encoding == JSON:
        return b"".join([_head(kind), body, _TAIL])
    return write_event(kind, msgspec.json.decode(body))
