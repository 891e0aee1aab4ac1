"""Encoded watch events, shared by all watches that use the same representation."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from moorage.apiserver.http.sending import PIECE
from moorage.apiserver.schema.protobuf_encoding import write_event
from moorage.apiserver.schema.representations import JSON, metadata_of
from moorage.apiserver.storage.watches import WatchedObject

__all__ = ["MOST_BYTES", "Lines", "event_line"]

#: Maximum total size in bytes of cached events.
MOST_BYTES: Final = 4 << 20


class Lines:
    """A cache of recently encoded events, shared by all watches of a server."""

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[int, str, str, str], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()  # large events are encoded in the worker

    def of(self, event: WatchedObject, form: str, encoding: str) -> tuple[bytes, ...]:
        """Return an encoded event in parts. It contains the full object or, if ``form`` starts with "Partial", its metadata."""
        if event.listed and len(event.held.body) <= PIECE:
            return (_line(event, form, encoding),)  # not cached: watches rarely list the same version
        key = event.version, event.type, form, encoding
        line = self._cache.get(key)
        if line is not None:
            return (line,)
        body = event.held.body
        if len(body) > PIECE and encoding == JSON and not form.startswith("Partial") and event.held.version == event.version:
            return _head(event.type), body, _TAIL  # large objects are not copied
        return (self._keep(key, _line(event, form, encoding)),)

    def kept(self, key: tuple[int, str, str, str], make: Callable[[], bytes]) -> bytes:
        """Return the cached line of a version, event type, form and encoding, or make and cache it."""
        line = self._cache.get(key)
        return self._keep(key, make()) if line is None else line

    def _keep(self, key: tuple[int, str, str, str], line: bytes) -> bytes:
        size = len(line)
        with self._lock:
            if self._cache.setdefault(key, line) is line:
                self._bytes += size
            while self._bytes > MOST_BYTES:
                self._bytes -= len(self._cache.popitem(last=False)[1])
        return line


def _line(event: WatchedObject, form: str, encoding: str) -> bytes:
    record = event.record
    return event_line(event.type, metadata_of(record) if form.startswith("Partial") else record.body, encoding)


def _head(kind: str) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":'


_TAIL: Final = b"}\n"


def event_line(kind: str, body: bytes, encoding: str) -> bytes:
    """Return one watch event: a line of JSON, or a protobuf frame."""
    if encoding == JSON:
        return b"".join([_head(kind), body, _TAIL])
    return write_event(kind, msgspec.json.decode(body))
