"""A watch as lines of JSON, or pieces of protobuf: what changes, and bookmarks that say how far a client has come.

Nothing is shown before it is kept: whoever acted on a change that the server lost with its life would act on what never was.

A stream ends when its time is up, when its reader fell too far behind, or when it is closed; the client begins a new one where
it left off. A version that history does not reach back to is told in the stream, as the API server does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from moorage.apiserver.http.listing import asks_list, check_list, sends_initial
from moorage.apiserver.http.requests import Request, chosen_by
from moorage.apiserver.schema.forms import JSON, META, accepted, metadata_of
from moorage.apiserver.schema.protobuf_writing import write_event
from moorage.apiserver.storage.history import Seen, Watch
from moorage.apiserver.storage.store import Store
from moorage.apiserver.tables.tables import included, table
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.statuses import ApiError, not_allowed
from moorage.apiserver.vocabulary.targets import ReviewTarget, Target

__all__ = ["Stream", "is_watch", "open_stream"]

#: Seconds between two bookmarks.
BOOKMARK_S: Final = 60.0
#: How long a watch lasts that does not say, in seconds: somewhere between these.
LASTS_S: Final = (1800, 3600)
#: How long to wait before what cannot be kept is tried again, in seconds.
_UNKEPT_S: Final = 1.0
_INITIAL_END: Final = "k8s.io/initial-events-end"
_NO_PROGRESS: Final = (
    "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled"
)


def is_watch(request: Request, target: Target | ReviewTarget) -> bool:
    """Return True for requests that are answered by a stream."""
    return isinstance(target, Target) and request.method == "GET" and request.flag("watch") and not target.name


class Stream:
    """What a client is told, as it comes due, in the encoding that it takes. Iterate over it once, then close it."""

    def __init__(self, store: Store, target: Target, request: Request) -> None:
        self._store = store
        self._kind = target.kind
        self._form, self._encoding = accepted(request.accept, streams=True)
        self._include = included(request.query.get("includeObject", ""))
        self._bookmarks = request.flag("allowWatchBookmarks")
        self._initial = sends_initial(request)
        self._lasts_s = request.number("timeoutSeconds") or random.randint(*LASTS_S)  # noqa: S311 - only spreads load
        self._changed = asyncio.Event()
        self._headed = False
        self._refusal: ApiError | None = None
        self._watch: Watch | None = None
        if asks_list(request) and not store.lists_by_watch:
            self._refusal = ApiError(500, "InternalError", _NO_PROGRESS)
            return
        try:
            version = request.query.get("resourceVersion", "")
            chosen = chosen_by(request, target)
            self._watch = store.watch(target.kind, chosen, version, self._changed.set, initial=self._initial)
        except ApiError as error:
            if error.code != 410:
                raise
            self._refusal = error

    @property
    def media_type(self) -> str:
        return JSON if self._encoding == JSON else f"{self._encoding};stream=watch"

    def close(self) -> None:
        if self._watch is not None:
            self._store.unwatch(self._kind, self._watch)

    def end(self) -> None:
        """Let the stream end where it is, as if its time were up."""
        if self._watch is not None:
            self._watch.closed = True
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._watch is None:
            if self._refusal is not None:
                yield self._line("ERROR", msgspec.json.encode(self._refusal.status()))
            return
        ends = asyncio.get_running_loop().time() + self._lasts_s
        marks_end = self._initial
        while True:
            self._changed.clear()
            lines = b"".join(self._shown(seen) for seen in self._watch.take())
            if marks_end and self._bookmarks:
                lines += self._bookmark({_INITIAL_END: "true"})
            marks_end = False
            if lines:
                await self._kept()
                yield lines
            left_s = ends - asyncio.get_running_loop().time()
            if self._watch.closed or left_s <= 0:
                if self._bookmarks and not self._watch.closed:
                    yield self._bookmark({})
                return
            try:
                async with asyncio.timeout(min(left_s, BOOKMARK_S)):
                    await self._changed.wait()
            except TimeoutError:
                # A change that came at the same moment goes first: a bookmark says that nothing older is to come.
                if self._bookmarks and left_s > BOOKMARK_S and not self._changed.is_set():
                    line = self._bookmark({})
                    await self._kept()
                    yield line

    async def _kept(self) -> None:
        """Wait until all changes so far are kept, however long the disk is full."""
        while True:
            try:
                return await self._store.settle()
            except ApiError:
                await asyncio.sleep(_UNKEPT_S)

    def _shown(self, seen: Seen) -> bytes:
        if self._form.startswith("Partial"):
            return self._line(seen.type, metadata_of(seen.record))
        if self._form != "Table":
            return self._line(seen.type, seen.record.body)
        document = seen.record.document()
        shown = table(self._kind, [document], self._store.clock(), self._include, heading=not self._headed)
        self._headed = True
        shown["metadata"] = {"resourceVersion": document["metadata"]["resourceVersion"]}
        return self._line(seen.type, msgspec.json.encode(shown))

    def _bookmark(self, annotations: dict[str, str]) -> bytes:
        metadata: Document = {
            "resourceVersion": str(self._store.version),
        }
        if annotations:
            metadata["annotations"] = annotations
        mark: Document = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": metadata}
        if self._form.startswith("Partial"):
            mark |= {"kind": "PartialObjectMetadata", "apiVersion": META}
        if self._form == "Table":
            rows = [{"cells": [], "object": {**mark, "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}}]
            version = {"resourceVersion": metadata["resourceVersion"]}
            mark = {"kind": "Table", "apiVersion": META, "metadata": version, "columnDefinitions": None, "rows": rows}
        return self._line("BOOKMARK", msgspec.json.encode(mark))

    def _line(self, kind: str, body: bytes) -> bytes:
        if self._encoding == JSON:
            return b"".join([b'{"type":"', kind.encode(), b'","object":', body, b"}\n"])
        return write_event(kind, msgspec.json.decode(body))


def open_stream(store: Store, request: Request, target: Target | ReviewTarget) -> Stream:
    """Return the stream that a request asks for.

    Raises  ApiError 400 or 504 for a version that makes no sense or is yet to come, 422 for parameters that do not go together
    """
    if isinstance(target, ReviewTarget):
        raise not_allowed()
    if "watch" not in target.kind.verbs:
        raise not_allowed()
    check_list(request, is_watch=True)
    return Stream(store, target, request)
