"""A watch as lines of JSON, or pieces of protobuf: what changes, and bookmarks that say how far a client has come.

Nothing is shown before it is kept: whoever acted on a change that the server lost with its life would act on what never was.

A stream ends when its time is up, when its reader fell too far behind, or when it is closed; the client begins a new one where
it left off. A version that history does not reach back to is told in the stream, as the API server does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final

import msgspec

from moorage.apiserver.http.lines import Lines, event_line
from moorage.apiserver.http.list_options import asks_list, check_list, sends_initial
from moorage.apiserver.http.requests import HTTPRequest, chosen_by
from moorage.apiserver.http.sending import PIECE
from moorage.apiserver.schema.representations import JSON, META, accepted
from moorage.apiserver.storage.store import Store
from moorage.apiserver.storage.watches import Watch, WatchedObject
from moorage.apiserver.tables.tables import included, table
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.request_targets import ReviewTarget, Target
from moorage.apiserver.vocabulary.statuses import ApiError, not_allowed

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


def is_watch(request: HTTPRequest, target: Target | ReviewTarget) -> bool:
    """Return True for requests that are answered by a stream."""
    return isinstance(target, Target) and request.method == "GET" and request.flag("watch") and not target.name


class Stream:
    """What a client is shown, as it comes due, in the encoding that it takes. Iterate over it once, then close it.

    It comes in pieces of whole events, each piece as the parts that it is made of, to be gone through once. The next one is
    made when the last one was taken: a client that does not read holds up its own watch, which costs no more than that piece.
    """

    def __init__(self, store: Store, target: Target, request: HTTPRequest, lines: Lines) -> None:
        self._store = store
        self._lines = lines
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

    async def __aiter__(self) -> AsyncIterator[Iterator[bytes]]:
        if self._watch is None:
            if self._refusal is not None:
                yield iter([self._line("ERROR", msgspec.json.encode(self._refusal.status()))])
            return
        ends = asyncio.get_running_loop().time() + self._lasts_s
        marks_end = self._initial
        while not self._watch.closed:
            self._changed.clear()
            seen = self._watch.take(PIECE)
            mark = b""
            if marks_end and self._watch.idle:
                mark, marks_end = self._mark({_INITIAL_END: "true"}), False
            if seen or mark:
                await self._kept()
                yield self._shown(seen, mark)
            left_s = ends - asyncio.get_running_loop().time()
            if left_s <= 0 or await self._is_due(left_s):
                if mark := self._mark({}):
                    await self._kept()
                    yield iter([mark])
                if left_s <= 0:
                    return

    async def _is_due(self, left_s: float) -> bool:
        """Wait for more to show; return True if nothing came for so long that a bookmark is due."""
        if self._watch is None or not self._watch.idle:
            await asyncio.sleep(0)  # a long list lets others have their turn
            return False
        try:
            async with asyncio.timeout(min(left_s, BOOKMARK_S)):
                await self._changed.wait()
        except TimeoutError:
            return left_s > BOOKMARK_S
        return False

    async def _kept(self) -> None:
        """Wait until all changes so far are kept, however long the disk is full."""
        while True:
            try:
                return await self._store.settle()
            except ApiError:
                await asyncio.sleep(_UNKEPT_S)

    def _shown(self, events: Iterable[WatchedObject], mark: bytes) -> Iterator[bytes]:
        for seen in events:
            if self._form == "Table":
                yield self._row(seen)
            else:
                yield from self._lines.of(seen, self._form, self._encoding)
        if mark:
            yield mark

    def _row(self, seen: WatchedObject) -> bytes:
        """Return an event with a row of a table. The first one has its heading."""
        now, heading = self._store.clock(), not self._headed
        self._headed = True

        def make() -> bytes:
            document = seen.record.document()
            shown = table(self._kind, [document], now, self._include, heading=heading)
            shown["metadata"] = {"resourceVersion": document["metadata"]["resourceVersion"]}
            return self._line(seen.type, msgspec.json.encode(shown))

        if seen.listed and len(seen.held.body) <= PIECE:
            return make()
        # It tells how old the object is, in seconds.
        return self._lines.kept((seen.version, seen.type, f"{self._include} {heading} {int(now)}", self._encoding), make)

    def _mark(self, annotations: dict[str, str]) -> bytes:
        """Return a bookmark for a client that wants them, if it was shown everything up to now."""
        if not self._bookmarks or self._watch is None or self._watch.closed or not self._watch.idle:
            return b""
        return self._bookmark(annotations)

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
        return event_line(kind, body, self._encoding)


def open_stream(store: Store, request: HTTPRequest, target: Target | ReviewTarget, lines: Lines) -> Stream:
    """Return the stream that a request asks for. ``lines`` is what streams share.

    Raises  ApiError 400 or 504 for a version that makes no sense or is yet to come, 422 for parameters that do not go together
    """
    if isinstance(target, ReviewTarget):
        raise not_allowed()
    if "watch" not in target.kind.verbs:
        raise not_allowed()
    check_list(request, is_watch=True)
    return Stream(store, target, request, lines)
