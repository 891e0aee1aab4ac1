"""One kind of object, followed: list it, watch it from there, and list it again whenever the thread was lost.

What others are told is the truth as the API server holds it, in order: each object new or changed, each one gone. A delete that
a gap swallowed is found by comparing lists; an object put in another's place under its name is told as a delete and a new one;
a list from a server that lags behind what we have seen is refused. If it is all there is to be had for minutes, the cluster was
restored from a backup, and the list is the truth. What cannot be read is not gone for that: it counts as it looked last. Where
the server offers it, a list comes as the beginning of the watch; where that fails, as a list.

Source  client-go, tools/cache/reflector.go
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from typing import Generic, Protocol, TypeVar

from moorage.api.meta import Object, is_older
from moorage.client.backoff import Backoff
from moorage.client.listwatch import ListWatchClient, Reader, WatchEvent
from moorage.client.raw_objects import WholeObjects
from moorage.client.resources import WatchedResource
from moorage.engine.facts import Fact, Gone, Seen
from moorage.errors import UNREACHABLE, ClusterError

__all__ = ["Reflector", "Sink"]

T = TypeVar("T", bound=Object)

_PAGE = 500
#: A watch that is silent for so long may be dead: the connection is made anew, from where it stood.
_IDLE_S = 40.0
#: How long a watch is asked for after one that told of no change. It ends before its silence would mean anything, and a
#: kube-apiserver ends it with a bookmark: so a quiet kind is known to be up to date, and its version never grows too old.
_QUIET_S = 35
#: The longest pause, but for chance, before a server is looked for again that was not to be reached. client-go waits up to a
#: minute for that, too.
_AWAY_S = 5.0
#: Lists that go back in time for so long come from a cluster that was restored from a backup.
_RESTORED_S = 120.0
_YET_TO_COME = "Too large resource version"
#: How to ask for a list as the beginning of a watch; what servers say that do not offer it; and after what the same may be
#: asked again: no answer, who are you, no such kind, gone, later. After any other answer, a plain list is asked for.
_AS_STREAM = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
_NO_STREAMS = frozenset([400, 405, 406, 415, 422])
_ASK_AGAIN = frozenset([0, 401, 404, 410, 429])
#: After so many streams in a row that ended without the end of the list, plain lists are asked for.
_CUT_SHORT = 3
_SHORT_S = 1.0


class Sink(Protocol):
    """Where facts go. Those of a list stand between ``begin`` and ``end``."""

    async def put(self, fact: Fact) -> None: ...
    def begin(self) -> None:
        """A list is here, and will be put as a whole."""

    def end(self) -> None: ...


class _Listing(Generic[T]):
    """What a streamed list has told so far: objects by key, and the UIDs of those that cannot be read."""

    def __init__(self) -> None:
        self.fresh: dict[str, T] = {}
        self.unread: dict[str, str] = {}

    def take(self, event: WatchEvent[T]) -> None:
        key = event.key if event.obj is None else event.obj.key
        self.fresh.pop(key, None)
        self.unread.pop(key, None)
        if event.type in {"DELETED", "BOOKMARK"}:
            return
        if event.obj is not None:
            self.fresh[key] = event.obj
        else:
            self.unread[key] = event.uid


class Reflector(Generic[T]):
    """Follows one resource and delivers facts. ``synced`` is set once all that exists was delivered.

    A kind that is not served, nor was by older servers, is delivered as an empty list.

    ``streams``: lists are asked for as the beginning of a watch, until a server turns out not to offer that, or not to end one.

    ``whole`` keeps what objects look like in full.
    """

    def __init__(
        self,
        resource: WatchedResource[T],
        wire: ListWatchClient,
        sink: Sink,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        report: Callable[[str], None] = lambda line: None,
        whole: WholeObjects | None = None,
        streams: bool = False,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        #: Why the last list failed; "" once one succeeded.
        self.trouble = ""
        self._wire, self._sink, self._clock, self._rng, self._report = wire, sink, clock, rng, report
        self._reader = Reader(resource, report, whole)
        #: The kind as it is served today, and as servers may serve it that were not asked yet.
        self._newest, self._untried = resource, resource.older
        self._whole = whole
        self._backoff, self._gone_by = Backoff(clock, rng), Backoff(clock, rng)
        self._away = Backoff(clock, rng, longest_s=_AWAY_S)
        self._known: dict[str, T] = {}
        self._version = ""
        self._must_list = True
        #: True while the kind is read as an older server serves it.
        self._older = False
        #: True while the server is known not to serve the kind.
        self.unserved = False
        self._refusing_since: float | None = None
        #: True when the server may have gone back in time since it was last heard of.
        self._doubtful = False
        self._streams = streams
        #: True when the last watch ended without having told of a change.
        self._quiet = False
        self._cut_short = 0

    @property
    def known(self) -> Collection[T]:
        """All objects, as they were last heard of."""
        return self._known.values()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                if self._must_list and not self._streams:
                    await self._list()
                if self._doubtful and not self._must_list:
                    await self._look_whether_behind()
                self._doubtful = False
                await self._watch()
            except ClusterError as error:
                await self._recover(error)

    async def _recover(self, error: ClusterError) -> None:
        self.trouble = str(error) if self._must_list else self.trouble
        if error.status == 404 and self._must_list:
            await self._look_elsewhere(error)
            return
        pause_s = self._backoff_for(error).pause(error.retry_after_s)
        self._must_list = self._must_list or error.is_expired or _YET_TO_COME in str(error)
        self._doubtful = self._doubtful or not error.status
        self._report(f"{self.resource.plural}: {error}; {'listing' if self._must_list else 'watching'} again in {pause_s:.1f}s")
        await asyncio.sleep(pause_s)

    async def _look_elsewhere(self, error: ClusterError) -> None:
        """Ask for the kind as other servers serve it; where all were asked, wait."""
        if self._untried:
            self._read_as(self._untried[0], self._untried[1:])
            return
        all_asked, self._older = not self._older, False
        self._read_as(self._newest, self._newest.older)
        if all_asked:
            await self._wait_for_kind(error)

    def _read_as(self, resource: WatchedResource[T], untried: tuple[WatchedResource[T], ...]) -> None:
        if resource is not self.resource:
            self.resource, self._reader = resource, Reader(resource, self._report, self._whole)
        self._untried = untried

    async def _wait_for_kind(self, error: ClusterError) -> None:
        """A cluster that does not serve this kind has none of it. It may come with an upgrade. Report that once."""
        if not self.synced.is_set():
            self._sink.begin()
            self._sink.end()
            self.synced.set()
        pause_s = max(self.resource.unserved_s, error.retry_after_s or 0.0)
        if not self.unserved:
            what = f"{self.resource.plural}: not served ({error}), so there are none"
            self._report(f"{what}; asking again every {pause_s:.0f}s until the kind is served")
        self.unserved = True
        await asyncio.sleep(pause_s)

    def _backoff_for(self, error: ClusterError) -> Backoff:
        """Return how the pauses grow after such an error. How long a server was away says nothing about how it is now."""
        if error.is_expired:
            return self._gone_by
        return self._away if error.reason == UNREACHABLE else self._backoff

    # -- lists -------------------------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        await self._agree_with(*await self._all_pages())

    async def _agree_with(self, fresh: dict[str, T], unread: Mapping[str, str], version: str) -> None:
        """Tell how a list differs from what is known. ``unread`` are UIDs of what is there and cannot be read.

        Raises  ClusterError if the list goes back in time
        """
        back, refused = is_older(version, self._version), self._refusing_since is not None
        if back:
            self._bear_with(version)
        self._refusing_since = None
        self._sink.begin()
        for key, old in list(self._known.items()):
            new = fresh.get(key)
            if (new is None or new.metadata.uid != old.metadata.uid) and unread.get(key) != old.metadata.uid:
                await self._gone(key, old)
        for key, obj in fresh.items():
            await self._listed(key, obj, version, is_back=back, twice=back or refused)
        self._version = version
        if self.resource is not self._newest and not self._older:
            self._report(
                f"{self.resource.plural}: {self._newest.api_version} is not served; reading {self.resource.api_version}"
            )
        self._older = self.resource is not self._newest
        self._must_list = self.unserved = False
        self.trouble = ""
        self._sink.end()
        self.synced.set()

    def _bear_with(self, version: str) -> None:
        """Return if lists have been going back in time for so long that this is how things are.

        Raises  ClusterError until then
        """
        since = self._refusing_since = self._clock() if self._refusing_since is None else self._refusing_since
        if self._clock() - since < _RESTORED_S:
            text = f"the list is of version {version}, older than {self._version} which was seen before"
            raise ClusterError(text, 503, "BackInTime")
        self._report(
            f"{self.resource.plural}: version {version} for {_RESTORED_S:g}s: the cluster was restored, and is read anew"
        )

    async def _all_pages(self) -> tuple[dict[str, T], dict[str, str], str]:
        """Return all objects by key, the UIDs of those that cannot be read, and the version of the list."""
        params = self._params(limit=str(_PAGE))
        fresh: dict[str, T] = {}
        unread: dict[str, str] = {}
        while True:
            try:
                page = self._reader.page(await self._wire.get(self.resource.path, params))
            except ClusterError as error:
                if not (error.is_expired and "continue" in params):
                    raise
                # The pages ran out of time: one answer with everything then, as it is now.
                fresh.clear()
                unread.clear()
                params = self._params()
                continue
            fresh.update((obj.key, obj) for obj in page.objects)
            unread.update(page.unread)
            if not page.more:
                return fresh, unread, page.version
            params = {**params, "continue": page.more}

    # -- watches -----------------------------------------------------------------------------------------------------------

    async def _look_whether_behind(self) -> None:
        """Ask what version the server is at: a watch after one that is yet to come would be silent until then.

        Raises  ClusterError if the server is behind what was seen
        """
        page = self._reader.page(await self._wire.get(self.resource.path, self._params(limit="1")))
        if is_older(page.version, self._version):
            raise ClusterError(f"{_YET_TO_COME}: the server is at {page.version}, {self._version} was seen before", 504)

    async def _watch(self) -> None:
        """Read events until the stream ends; where all that exists is still to be told, it comes first."""
        began, events, changes = self._clock(), 0, 0
        listing = _Listing[T]() if self._must_list else None
        params = self._params(
            watch="true",
            allowWatchBookmarks="true",
            timeoutSeconds=str(_QUIET_S if self._quiet else int(300 * (1.0 + self._rng.random()))),
            **({"resourceVersion": self._version} if listing is None else _AS_STREAM),
        )
        try:
            async with self._wire.watch(self.resource.path, params, _IDLE_S) as lines:
                async for line in lines:
                    event = self._reader.event(line)
                    if listing is None:
                        await self._take(event)
                    elif event.ends_list:
                        await self._agree_with(listing.fresh, listing.unread, event.version)
                        listing, self._cut_short = None, 0
                    else:
                        listing.take(event)
                    events += 1
                    changes += event.type != "BOOKMARK"
        except ClusterError as error:
            if listing is None or _may_ask_again(error):
                raise
            self._streams = error.status not in _NO_STREAMS
            await self._list()
            return
        if listing is not None:
            self._cut_short += 1
            self._streams = self._cut_short < _CUT_SHORT
            raise ClusterError("the stream ended before all that exists was told")
        self._quiet, self._doubtful = not changes, not events
        if not events and self._clock() - began < _SHORT_S:
            raise ClusterError("the watch ended at once, without an event")

    async def _take(self, event: WatchEvent[T]) -> None:
        obj = event.obj
        if obj is not None:
            key = obj.key
            known = self._known.get(key)
            if event.type == "DELETED":
                if known is not None and not is_older(obj.metadata.resource_version, known.metadata.resource_version):
                    await self._gone(key, obj if obj.metadata.uid == known.metadata.uid else known)
            else:
                if known is not None and known.metadata.uid != obj.metadata.uid:
                    await self._gone(key, known)
                await self._seen(key, obj)
        elif event.type == "DELETED" and event.key in self._known:
            await self._gone(event.key, self._known[event.key])
        if event.version and not is_older(event.version, self._version):
            self._version = event.version

    # -- facts -------------------------------------------------------------------------------------------------------------

    async def _listed(self, key: str, obj: T, version: str, *, is_back: bool, twice: bool) -> None:
        """Take in an object of a list, which is of this version.

        A list is the truth even where a later version of the object was seen: the server lost that one. Facts about others
        never go back in time, so this is delivered as if it were another object. Where versions may have been given out
        ``twice``, the same one may mean something else; in a list that goes back as a whole, a later one, too.
        """
        known = self._known.get(key)
        if known is not None:
            was, now = known.metadata.resource_version, obj.metadata.resource_version
            if known == obj if twice else was == now:
                if self.resource.retold(obj):
                    await self._sink.put(Seen(obj, version))
                return
            if is_back or was == now or is_older(now, was):
                await self._sink.put(Gone(known))
        self._known[key] = obj
        await self._sink.put(Seen(obj))

    async def _seen(self, key: str, obj: T) -> None:
        known = self._known.get(key)
        if known is not None:
            was, now = known.metadata.resource_version, obj.metadata.resource_version
            if was == now or is_older(now, was):
                return
        self._known[key] = obj
        await self._sink.put(Seen(obj))

    async def _gone(self, key: str, obj: T) -> None:
        self._known.pop(key, None)
        if self._whole is not None:
            self._whole.drop(obj)
        await self._sink.put(Gone(obj))

    def _params(self, **params: str) -> dict[str, str]:
        return {**params, "fieldSelector": self.resource.fields} if self.resource.fields else params


def _may_ask_again(error: ClusterError) -> bool:
    """Return True if a list that failed as a stream may as well be asked for as one again."""
    return error.status in _ASK_AGAIN or error.is_expired or error.retry_after_s is not None or _YET_TO_COME in str(error)
