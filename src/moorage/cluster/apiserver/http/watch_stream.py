"""Watch responses: events as lines of JSON or frames of protobuf, and bookmarks.

Events are sent only after their changes are on disk, so that no client acts on a change that a crash of the server
would lose.

A stream ends when its time is up, when its client falls too far behind, or when the server closes it; the client resumes
where it left off. A version that is no longer cached is reported as an ERROR event in the stream, as in kube-apiserver.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final

import msgspec

from moorage.api.documents.http_messages import HTTPRequest
from moorage.api.documents.request_targets import ReviewTarget, Target
from moorage.api.documents.served_kinds import Document
from moorage.api.documents.statuses import ApiError, not_allowed
from moorage.cluster.apiserver.http import lists
from moorage.cluster.apiserver.http.requests import selection_of
from moorage.cluster.apiserver.schema.representations import JSON, META, accepted, in_version
from moorage.cluster.apiserver.tables.tables import included, table
from moorage.rules.store.store import Store
from moorage.rules.store.watches import Watch, WatchedObject

#: Seconds between two bookmarks.
BOOKMARK_S: Final = 60.0
#: Range in seconds of the random duration of a watch without timeoutSeconds.
DEFAULT_TIMEOUT_S: Final = (1800, 3600)
#: Seconds to wait before retrying a failed write to the log.
_LOG_RETRY_S: Final = 1.0
_INITIAL_END: Final = "k8s.io/initial-events-end"
_NO_PROGRESS: Final = (
    "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled"
)


def is_watch(request: HTTPRequest, target: Target | ReviewTarget) -> bool:
    """Return True for requests that are answered by a stream."""
    return isinstance(target, Target) and request.method == "GET" and request.flag("watch") and not target.name


class Stream:
    """The encoded events of a watch. Iterate over it once, then close it.

    Each item is an iterator over the parts of some whole events. The next item is created when the client has taken the
    last one, so a client that does not read delays only its own watch, which holds no more than one item.
    """

    def __init__(self, store: Store, target: Target, request: HTTPRequest) -> None:
        self._store = store
        self._kind = target.kind
        self._form, self._encoding, self._version = accepted(request.accept, streams=True)
        self._include = included(request.query.get("includeObject", ""))
        self._bookmarks = request.flag("allowWatchBookmarks")
        self._initial = lists.starts_with_list(request)
        self._timeout_s = request.number("timeoutSeconds") or random.randint(*DEFAULT_TIMEOUT_S)  # noqa: S311 - only spreads load
        self._changed = asyncio.Event()
        self._has_sent_columns = False
        self._error: ApiError | None = None
        self._watch: Watch | None = None
        if lists.requests_initial_list(request) and not store.lists_by_watch:
            self._error = ApiError(500, "InternalError", _NO_PROGRESS)
            return
        try:
            version = request.query.get("resourceVersion", "")
            chosen = selection_of(request, target)
            self._watch = store.watch(target.kind, chosen, version, self._changed.set, initial=self._initial)
        except ApiError as error:
            if error.code != 410:
                raise
            self._error = error

    @property
    def media_type(self) -> str:
        return JSON if self._encoding == JSON else f"{self._encoding};stream=watch"

    def close(self) -> None:
        if self._watch is not None:
            self._store.unwatch(self._kind, self._watch)

    def end(self) -> None:
        """End the stream as if its time were up."""
        if self._watch is not None:
            self._watch.closed = True
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[Iterator[lists.Part]]:
        if self._watch is None:
            if self._error is not None:
                yield iter([self._line("ERROR", msgspec.json.encode(self._error.status()))])
            return
        ends = asyncio.get_running_loop().time() + self._timeout_s
        needs_end_bookmark = self._initial
        while not self._watch.closed:
            self._changed.clear()
            try:
                events = self._watch.take(lists.PIECE)
            except ApiError as error:  # an object that cannot be shown in the version of the watch
                yield iter([self._line("ERROR", msgspec.json.encode(error.status()))])
                return
            bookmark = b""
            if needs_end_bookmark and self._watch.idle:
                bookmark, needs_end_bookmark = self._bookmark_if_due({_INITIAL_END: "true"}), False
            if events or bookmark:
                await self._written()
                parts: Iterator[lists.Part] = self._encoded(events, bookmark)
                yield lists.LargeParts(parts) if self._is_large(events) else parts
            left_s = ends - asyncio.get_running_loop().time()
            if left_s <= 0 or await self._is_due(left_s):
                if bookmark := self._bookmark_if_due({}):
                    await self._written()
                    yield iter([bookmark])
                if left_s <= 0:
                    return

    async def _is_due(self, left_s: float) -> bool:
        """Wait for events; return True if none came for so long that a bookmark is due."""
        if self._watch is None or not self._watch.idle:
            await asyncio.sleep(0)  # a long initial list yields to other tasks
            return False
        try:
            async with asyncio.timeout(min(left_s, BOOKMARK_S)):
                await self._changed.wait()
        except TimeoutError:
            return left_s > BOOKMARK_S
        return False

    async def _written(self) -> None:
        """Wait until all changes so far are on disk, however long that takes."""
        while True:
            try:
                return await self._store.settle()
            except ApiError:
                await asyncio.sleep(_LOG_RETRY_S)

    def _is_large(self, events: Iterable[WatchedObject]) -> bool:
        """Return True if an event takes long to encode."""
        is_plain = not self._form and self._encoding == JSON
        return not is_plain and any(len(event.held.body) > lists.LONG_RESPONSE for event in events)

    def _encoded(self, events: Iterable[WatchedObject], bookmark: bytes) -> Iterator[bytes]:
        for event in events:
            if self._form != "Table":
                yield from lists.event_parts(event, self._form, self._encoding, self._version)
                continue
            document = event.record.document()
            # The first row comes with the column definitions.
            shown = table(self._kind, [document], self._store.clock(), self._include, heading=not self._has_sent_columns)
            self._has_sent_columns = True
            shown["metadata"] = {"resourceVersion": document["metadata"]["resourceVersion"]}
            yield self._line(event.type, msgspec.json.encode(shown))
        if bookmark:
            yield bookmark

    def _bookmark_if_due(self, annotations: dict[str, str]) -> bytes:
        """Return a bookmark if the client requested bookmarks and has received all events so far, else b""."""
        if not self._bookmarks or self._watch is None or self._watch.closed or not self._watch.idle:
            return b""
        metadata: Document = {"resourceVersion": str(self._store.version)}
        if annotations:
            metadata["annotations"] = annotations
        bookmark: Document = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": metadata}
        if self._form.startswith("Partial"):
            bookmark |= {"kind": "PartialObjectMetadata", "apiVersion": META}
        if self._form == "Table":
            rows = [{"cells": [], "object": {**bookmark, "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}}]
            version = {"resourceVersion": metadata["resourceVersion"]}
            bookmark = {"kind": "Table", "apiVersion": META, "metadata": version, "columnDefinitions": None, "rows": rows}
        return self._line("BOOKMARK", msgspec.json.encode(bookmark))

    def _line(self, kind: str, body: bytes) -> bytes:
        return lists.event_line(kind, in_version(self._version, body) if self._form else body, self._encoding)


def open_stream(store: Store, request: HTTPRequest, target: Target | ReviewTarget) -> Stream:
    """Return the stream of a watch request.

    Raises  ApiError 400 or 504 for an invalid or future version, 422 for contradictory parameters
    """
    if isinstance(target, ReviewTarget) or "watch" not in target.kind.verbs:
        raise not_allowed()
    lists.check_list(request, is_watch=True)
    return Stream(store, target, request)
