"""One page of a list, one line of a watch: the API server's bytes as objects of ``moorage.api``.

Only what scheduling reads is decoded. An object that cannot be read as what it claims to be is reported and left out; the
others of its page are read all the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from moorage.api.decode import decode
from moorage.api.json_tree import UNREADABLE
from moorage.api.meta import Object, Value
from moorage.client.raw_objects import WholeObjects
from moorage.client.resources import WatchedResource
from moorage.errors import ClusterError, InputError

__all__ = ["ListWatchClient", "Reader", "WatchEvent"]

T = TypeVar("T", bound=Object)


#: The annotation of the bookmark that ends a list which was asked for as a watch.
_LIST_ENDS = "k8s.io/initial-events-end"
#: The status of an error in a watch that says none: it is an answer all the same.
_BROKEN = 500
_CHANGES = frozenset(["ADDED", "DELETED", "MODIFIED"])


class ListWatchClient(Protocol):
    """Requests to an API server. Both raise ClusterError for any answer but 200, and where there is none."""

    async def get(self, path: str, params: Mapping[str, str]) -> bytes: ...
    def watch(self, path: str, params: Mapping[str, str], idle_s: float) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Yield the lines of a watch. The stream ends when the server ends it, or sent nothing for ``idle_s``."""


class _Status(Value):
    message: str = ""
    reason: str = ""
    code: int = 0


class _ListMeta(Value):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _Page(Value):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


class _Line(Value):
    type: str
    object: msgspec.Raw


class _Named(Value):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _Any(Value):
    metadata: _Named = _Named()


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``; ``obj`` is None for a bookmark and for what could not be read.

    ``key`` names what could not be read, as ``namespace/name``, and ``uid`` is its own. ``ends_list`` is true of the bookmark
    after which all that existed when the watch began has been told.
    """

    type: str
    obj: T | None
    version: str
    key: str = ""
    uid: str = ""
    ends_list: bool = False


@dataclass(frozen=True, slots=True)
class ListChunk(Generic[T]):
    """Some objects of a list, the version of the whole, and where to go on ("" at its end).

    ``unread`` are objects that are there and could not be read, as ``namespace/name`` → UID.
    """

    objects: list[T]
    version: str
    more: str
    unread: Mapping[str, str] = field(default_factory=dict)


class Reader(Generic[T]):
    """Decodes one kind. ``report`` is told of objects that were left out; ``whole`` gets what objects look like in full."""

    def __init__(self, resource: WatchedResource[T], report: Callable[[str], None], whole: WholeObjects | None = None) -> None:
        self._resource, self._report, self._whole = resource, report, whole
        self._at_once = whole is None and resource.read is None
        self._decoder = msgspec.json.Decoder(resource.type)
        self._pages = msgspec.json.Decoder(_Page)
        self._lines = msgspec.json.Decoder(_Line)
        kind: Any = resource.type
        page = msgspec.defstruct("_WholePage", [("metadata", _ListMeta, _ListMeta()), ("items", list[kind] | None, None)])
        line = msgspec.defstruct("_WholeLine", [("type", str), ("object", kind)])
        self._whole_pages: msgspec.json.Decoder[Any] = msgspec.json.Decoder(page)
        self._whole_lines: msgspec.json.Decoder[Any] = msgspec.json.Decoder(line)

    def page(self, body: bytes) -> ListChunk[T]:
        """Read a page of a list.

        Raises  ClusterError if it is none
        """
        if self._at_once:
            with suppress(*UNREADABLE):  # then it is read one by one
                whole = self._whole_pages.decode(body)
                return ListChunk(whole.items or [], whole.metadata.resource_version, whole.metadata.continue_)
        try:
            page = self._pages.decode(body)
        except UNREADABLE as error:
            raise ClusterError(f"list of {self._resource.plural}: not a list ({error})") from None
        objects: list[T] = []
        unread: dict[str, str] = {}
        for raw in page.items or ():
            obj = self._object(bytes(raw))
            if obj is not None:
                objects.append(obj)
            else:
                named = _lenient(bytes(raw), _Any).metadata
                unread[_key(named)] = named.uid
        return ListChunk(objects, page.metadata.resource_version, page.metadata.continue_, unread)

    def event(self, line: bytes) -> WatchEvent[T]:
        """Read a line of a watch.

        Raises  ClusterError for an ERROR event, and for a line that is no event
        """
        return (self._plain(line) if self._at_once else None) or self._event(line)

    def _plain(self, line: bytes) -> WatchEvent[T] | None:
        """Read a line as nearly all are, in one go; None for others."""
        try:
            read = self._whole_lines.decode(line)
        except UNREADABLE:
            return None
        if read.type not in _CHANGES:
            return None
        return WatchEvent(read.type, read.object, read.object.metadata.resource_version)

    def _event(self, line: bytes) -> WatchEvent[T]:
        try:
            read = self._lines.decode(line)
        except UNREADABLE as error:
            raise ClusterError(f"watch of {self._resource.plural}: not an event ({error})") from None
        raw = bytes(read.object)
        if read.type == "ERROR":
            status = _lenient(raw, _Status)
            raise ClusterError(f"watch of {self._resource.plural}: {status.message}", status.code or _BROKEN, status.reason)
        obj = self._object(raw) if read.type != "BOOKMARK" else None
        if obj is not None and read.type == "DELETED" and self._whole is not None:
            self._whole.drop(obj)
        if obj is not None:
            return WatchEvent(read.type, obj, obj.metadata.resource_version)
        named = _lenient(raw, _Any).metadata
        if read.type == "BOOKMARK":
            return WatchEvent(read.type, None, named.resource_version, ends_list=named.annotations.get(_LIST_ENDS) == "true")
        return WatchEvent(read.type, None, named.resource_version, _key(named), named.uid)

    def _object(self, raw: bytes) -> T | None:
        obj = self._decoded(raw)
        if obj is not None and self._whole is not None:
            self._whole.note(obj, raw)
        return obj

    def _decoded(self, raw: bytes) -> T | None:
        read = self._resource.read
        if read is None:
            with suppress(*UNREADABLE):
                return self._decoder.decode(raw)
        try:
            return read(raw) if read is not None else decode(raw, self._resource.type, self._resource.plural)
        except InputError as error:
            self._report(f"left out: {error}")
            return None


def _key(named: Any) -> str:
    return f"{named.namespace}/{named.name}" if named.namespace else str(named.name)


def _lenient(raw: bytes, kind: type[Any]) -> Any:
    """Decode what matters for going on, or an empty one of it."""
    try:
        return decode(raw, kind, "watch")
    except InputError:
        return kind()
