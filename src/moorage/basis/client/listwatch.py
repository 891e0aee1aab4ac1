"""Decode list pages and watch events into objects of ``moorage.api``.

Only what scheduling reads is decoded. An object that cannot be decoded is reported and skipped; the other objects of
its page are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from moorage.api.core import Object, Pod, Value
from moorage.api.decode import decode
from moorage.api.pod_decoding import PodDecoder, PodText
from moorage.api.reading.json_tree import UNREADABLE
from moorage.basis.client.raw_objects import RawObjects
from moorage.basis.client.watched_resources import WatchedResource
from moorage.errors import ClusterError, InputError

T = TypeVar("T", bound=Object)


#: Annotation of the bookmark that ends the initial list of a watch.
_LIST_ENDS = "k8s.io/initial-events-end"
#: Status for an ERROR event without a code, which is still a response of the server.
_BROKEN = 500
_CHANGES = frozenset(["ADDED", "DELETED", "MODIFIED"])


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


class _ObjectIdentity(Value):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _MetadataOnly(Value):
    metadata: _ObjectIdentity = _ObjectIdentity()


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``; ``obj`` is None for a bookmark and for an undecodable object.

    ``key`` (``namespace/name``) and ``uid`` identify an undecodable object. ``ends_list`` is True for the bookmark that
    ends the initial list.
    """

    type: str
    obj: T | None
    version: str
    key: str = ""
    uid: str = ""
    ends_list: bool = False


@dataclass(frozen=True, slots=True)
class ListChunk(Generic[T]):
    """A page of a list, the list's resource version, and the continue token ("" for the last page).

    ``undecodable`` maps the ``namespace/name`` of undecodable objects to their UID.
    """

    objects: list[T]
    version: str
    continue_token: str
    undecodable: Mapping[str, str] = field(default_factory=dict)


class ObjectDecoder(Generic[T]):
    """Decodes one kind. ``report`` receives a message for each skipped object; ``raw_objects`` stores the raw JSON."""

    def __init__(
        self, resource: WatchedResource[T], report: Callable[[str], None], raw_objects: RawObjects | None = None
    ) -> None:
        self._resource, self._report, self._raw_objects = resource, report, raw_objects
        self._decodes_directly = raw_objects is None and resource.read is None
        pods = PodDecoder() if resource.type is Pod else None
        self._decode_object: Callable[[bytes], Any] = (
            msgspec.json.Decoder(resource.type).decode if pods is None else pods.decode
        )
        #: Decodes the rest of an object that was decoded as part of a page or a line; None if there is no rest.
        self._complete: Callable[[Any], Any] | None = None if pods is None else pods.complete
        self._raw_page_decoder = msgspec.json.Decoder(_Page)
        self._raw_line_decoder = msgspec.json.Decoder(_Line)
        kind: Any = resource.type if pods is None else PodText
        page = msgspec.defstruct("_WholePage", [("metadata", _ListMeta, _ListMeta()), ("items", list[kind] | None, None)])
        line = msgspec.defstruct("_WholeLine", [("type", str), ("object", kind)])
        self._page_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(page)
        self._line_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(line)

    def page(self, body: bytes) -> ListChunk[T]:
        """Decode a page of a list.

        Raises  ClusterError if it is not a list
        """
        if self._decodes_directly:
            with suppress(*UNREADABLE):  # decode objects one by one otherwise
                page = self._page_decoder.decode(body)
                objects = page.items or []
                if self._complete is not None:
                    objects = [*map(self._complete, objects)]
                return ListChunk(objects, page.metadata.resource_version, page.metadata.continue_)
        try:
            raw_page = self._raw_page_decoder.decode(body)
        except UNREADABLE as error:
            raise ClusterError(f"list of {self._resource.plural}: not a list ({error})") from None
        read: list[T] = []
        undecodable: dict[str, str] = {}
        for raw in raw_page.items or ():
            obj = self._object(bytes(raw))
            if obj is not None:
                read.append(obj)
            else:
                identity = _lenient(bytes(raw), _MetadataOnly).metadata
                undecodable[_key(identity)] = identity.uid
        return ListChunk(read, raw_page.metadata.resource_version, raw_page.metadata.continue_, undecodable)

    def event(self, line: bytes) -> WatchEvent[T]:
        """Decode a line of a watch.

        Raises  ClusterError for an ERROR event, and for a line that is not an event
        """
        return (self._change_event(line) if self._decodes_directly else None) or self._event(line)

    def _change_event(self, line: bytes) -> WatchEvent[T] | None:
        """Decode the usual events in one step; return None for others."""
        try:
            read = self._line_decoder.decode(line)
            if read.type not in _CHANGES:
                return None
            obj = read.object if self._complete is None else self._complete(read.object)
        except UNREADABLE:
            return None
        return WatchEvent(read.type, obj, obj.metadata.resource_version)

    def _event(self, line: bytes) -> WatchEvent[T]:
        try:
            read = self._raw_line_decoder.decode(line)
        except UNREADABLE as error:
            raise ClusterError(f"watch of {self._resource.plural}: not an event ({error})") from None
        raw = bytes(read.object)
        if read.type == "ERROR":
            status = _lenient(raw, _Status)
            raise ClusterError(f"watch of {self._resource.plural}: {status.message}", status.code or _BROKEN, status.reason)
        obj = self._object(raw) if read.type != "BOOKMARK" else None
        if obj is not None and read.type == "DELETED" and self._raw_objects is not None:
            self._raw_objects.drop(obj)
        if obj is not None:
            return WatchEvent(read.type, obj, obj.metadata.resource_version)
        identity = _lenient(raw, _MetadataOnly).metadata
        if read.type == "BOOKMARK":
            return WatchEvent(
                read.type, None, identity.resource_version, ends_list=identity.annotations.get(_LIST_ENDS) == "true"
            )
        return WatchEvent(read.type, None, identity.resource_version, _key(identity), identity.uid)

    def _object(self, raw: bytes) -> T | None:
        obj = self._decoded(raw)
        if obj is not None and self._raw_objects is not None:
            self._raw_objects.store(obj, raw)
        return obj

    def _decoded(self, raw: bytes) -> T | None:
        read = self._resource.read
        if read is None:
            with suppress(*UNREADABLE):
                obj: T = self._decode_object(raw)
                return obj
        try:
            return read(raw) if read is not None else decode(raw, self._resource.type, self._resource.plural)
        except InputError as error:
            self._report(f"left out: {error}")
            return None


def _key(identity: Any) -> str:
    return f"{identity.namespace}/{identity.name}" if identity.namespace else str(identity.name)


def _lenient(raw: bytes, kind: type[Any]) -> Any:
    """Decode the given fields, or return an empty struct if that fails."""
    try:
        return decode(raw, kind, "watch")
    except InputError:
        return kind()
