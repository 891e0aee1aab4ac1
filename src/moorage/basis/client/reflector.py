"""A reflector: list one kind, watch it from there, and list again after a gap.

It delivers each new or changed object and each deletion in order. Deletions missed in a gap are found by comparing lists; an
object recreated under the same name is delivered as a deletion and a new object. A list older than the latest version seen is
rejected. If all lists stay older for minutes, the cluster was restored from a backup, and the list is accepted. An undecodable
object is not treated as deleted: its last decoded version stays. If the server supports watch-list, the initial list comes with
the watch; otherwise as a list.

Source  client-go, tools/cache/reflector.go
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from moorage.api.meta import Object, is_older
from moorage.basis.client.listwatch import ObjectDecoder, WatchEvent
from moorage.basis.client.raw_objects import RawObjects
from moorage.basis.client.rest import Rest
from moorage.basis.client.watched_resources import WatchedResource
from moorage.core.engine.facts import Fact, Gone, Seen
from moorage.errors import UNREACHABLE, ClusterError


class Backoff:
    """Pauses from 0.8 s to 30 s, each multiplied by a random factor from 1 to 2; reset after two minutes without a pause.

    Source  client-go/tools/cache/reflector.go
    """

    def __init__(self, clock: Callable[[], float], rng: random.Random, first_s: float = 0.8, max_s: float = 30.0) -> None:
        self._clock, self._rng = clock, rng
        self._first_s, self._max_s = first_s, max_s
        self._next_s = first_s
        self._last = clock()

    def pause(self, at_least_s: float | None = None) -> float:
        """Return the seconds to wait now, at least ``at_least_s`` (a server's Retry-After)."""
        now = self._clock()
        if now - self._last > 120.0:
            self._next_s = self._first_s
        base, self._next_s = self._next_s, min(self._max_s, self._next_s * 2)
        pause_s = max(base * (1.0 + self._rng.random()), at_least_s or 0.0)
        self._last = now + pause_s
        return pause_s


T = TypeVar("T", bound=Object)

_PAGE = 500
#: How long a watch lasts at least; each is asked for up to twice as long, so that not all end at once. Bookmarks, of which a
#: kube-apiserver sends one a minute, keep the version of a quiet kind from becoming too old.
_WATCH_S = 300.0
#: Seconds without an event, beyond the time for which a watch was asked, after which it is opened again. Connections that are
#: dead are found below HTTP (``response_stream``); this is for servers that keep one open and say nothing.
_GRACE_S = 30.0
#: How long after its begin a watch may tell of what happened while it was interrupted.
_LATE_S = 2.0
#: The same on a slow connection.
_VERY_LATE_S = 30.0
#: Longest pause, without jitter, before reconnecting to an unreachable server. client-go waits up to a minute.
_MAX_UNREACHABLE_PAUSE_S = 5.0
#: Lists that stay older for this long are from a cluster restored from a backup.
_RESTORED_S = 120.0
_TOO_LARGE = "Too large resource version"
#: Parameters of a watch-list; statuses of servers that do not support it; and statuses after which a watch-list may be
#: retried: no response, unauthorized, not found, gone, too many requests. After any other status the reflector lists.
_WATCH_LIST = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
_NO_WATCH_LIST = frozenset([400, 405, 406, 415, 422])
_RETRYABLE = frozenset([0, 401, 404, 410, 429])
#: Number of consecutive watch-lists without the end of the list after which the reflector lists.
_MAX_TRUNCATED = 3
_SHORT_S = 1.0


class Sink(Protocol):
    """Receives facts. Those of a list come between ``begin`` and ``end``."""

    async def put(self, fact: Fact) -> None: ...
    async def put_all(self, facts: Sequence[Fact]) -> None: ...
    def begin(self) -> None:
        """A complete list follows."""

    def end(self) -> None: ...


class _InitialList(Generic[T]):
    """The initial list of a watch received so far: objects by key, and the UIDs of undecodable ones."""

    def __init__(self) -> None:
        self.fresh: dict[str, T] = {}
        self.undecodable: dict[str, str] = {}

    def add(self, event: WatchEvent[T]) -> None:
        key = event.key if event.obj is None else event.obj.key
        self.fresh.pop(key, None)
        self.undecodable.pop(key, None)
        if event.type in {"DELETED", "BOOKMARK"}:
            return
        if event.obj is not None:
            self.fresh[key] = event.obj
        else:
            self.undecodable[key] = event.uid


class Reflector(Generic[T]):
    """Follows one resource and delivers facts. ``synced`` is set once all existing objects were delivered.

    A kind that is served in no known version is delivered as an empty list. ``streams``: use watch-list until the server
    turns out not to support it or not to end the list. ``raw_objects`` stores the raw JSON of objects.
    """

    def __init__(
        self, resource: WatchedResource[T], wire: Rest, sink: Sink, *, clock: Callable[[], float],
        rng: random.Random, report: Callable[[str], None] = lambda line: None, raw_objects: RawObjects | None = None,
        streams: bool = False,
    ) -> None:  # fmt: skip
        self.resource = resource
        self.synced = asyncio.Event()
        #: Error of the last list; "" after a successful one.
        self.last_error = ""
        self._wire, self._sink, self._clock, self._rng, self._report = wire, sink, clock, rng, report
        self._decoder = ObjectDecoder(resource, report, raw_objects)
        #: The current version of the kind, and the older versions not tried yet.
        self._current_version, self._untried_versions = resource, resource.older
        self._raw_objects = raw_objects
        self._backoff, self._expired_backoff = Backoff(clock, rng), Backoff(clock, rng)
        self._unreachable_backoff = Backoff(clock, rng, max_s=_MAX_UNREACHABLE_PAUSE_S)
        #: All changes until this time are delivered. What a watch first tells after an interruption may be older than its end.
        self.told_until = float("-inf")
        #: The same for a watch that may be slow to tell what it missed.
        self.told_surely = float("-inf")
        #: Called after each change of a known object: its key, and the object or None.
        self.on_change: Callable[[str, T | None], None] | None = None
        self._known: dict[str, T] = {}
        #: The keys of objects that changed since ``changes`` was called; None if it was not.
        self._changed: dict[str, None] | None = None
        self._version = ""
        self._must_list = True
        #: True while an older version of the kind is used.
        self._uses_older = False
        #: True while the server does not serve the kind.
        self.unserved = False
        self._older_since: float | None = None
        #: Since when lists and watches fail, on the clock; None while one succeeds.
        self.failing_since: float | None = None
        #: True if the server may be behind what was seen, because it was unreachable.
        self._may_be_behind = False
        self._streams = streams
        self._truncated = 0

    @property
    def known(self) -> Collection[T]:
        """The last known version of all objects."""
        return self._known.values()

    @property
    def told_version(self) -> int:
        """The resource version up to which all changes are delivered; 0 before the first list."""
        return int(self._version) if self._version.isdecimal() else 0

    def get(self, key: str) -> T | None:
        """Return the last known version of an object, by ``namespace/name``; None if there is none."""
        return self._known.get(key)

    def changes(self) -> dict[str, T | None]:
        """Return the objects that changed since the last call, by key, None for those that are gone; first all objects.

        New objects are in the order in which they came. The keys of changed objects are kept until ``forget_changes``.
        """
        changed, self._changed = self._changed, {}
        return {**self._known} if changed is None else {key: self._known.get(key) for key in changed}

    def forget_changes(self) -> None:
        """Let the next call of ``changes`` return all objects."""
        self._changed = None

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                if self._must_list and not self._streams:
                    await self._list()
                if self._may_be_behind and not self._must_list:
                    await self._check_server_version()
                self._may_be_behind = False
                await self._watch()
            except ClusterError as error:
                if self.failing_since is None:
                    self.failing_since = self._clock()
                await self._recover(error)

    async def _recover(self, error: ClusterError) -> None:
        self.last_error = str(error) if self._must_list else self.last_error
        if error.status == 404 and self._must_list:
            await self._try_other_version(error)
            return
        pause_s = self._backoff_for(error).pause(error.retry_after_s)
        self._must_list = self._must_list or error.is_expired or _TOO_LARGE in str(error)
        self._may_be_behind = self._may_be_behind or not error.status
        self._report(f"{self.resource.plural}: {error}; {'listing' if self._must_list else 'watching'} again in {pause_s:.1f}s")
        await asyncio.sleep(pause_s)

    async def _try_other_version(self, error: ClusterError) -> None:
        """Try an older version of the kind; wait if all were tried."""
        if self._untried_versions:
            self._use_version(self._untried_versions[0], self._untried_versions[1:])
            return
        all_asked, self._uses_older = not self._uses_older, False
        self._use_version(self._current_version, self._current_version.older)
        if all_asked:
            self.failing_since = None
            await self._wait_for_kind(error)

    def _use_version(self, resource: WatchedResource[T], untried: tuple[WatchedResource[T], ...]) -> None:
        if resource is not self.resource:
            self.resource, self._decoder = resource, ObjectDecoder(resource, self._report, self._raw_objects)
        self._untried_versions = untried

    async def _wait_for_kind(self, error: ClusterError) -> None:
        """Deliver an empty list for a kind that is not served, report that once, and wait: an upgrade may bring it."""
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
        """Return the backoff for an error. Unreachability has its own, as it does not mean that the server is overloaded."""
        if error.is_expired:
            return self._expired_backoff
        return self._unreachable_backoff if error.reason == UNREACHABLE else self._backoff

    # -- lists ---------------------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        began = self._clock()
        await self._apply_list(*await self._all_pages())
        self.told_until = self.told_surely = began

    async def _apply_list(self, fresh: dict[str, T], undecodable: Mapping[str, str], version: str) -> None:
        """Deliver the differences between a list and the known objects. ``undecodable`` maps undecodable objects to UIDs.

        Raises  ClusterError if the list is older than what was seen
        """
        back, refused = is_older(version, self._version), self._older_since is not None
        if back:
            self._check_restored(version)
        self._older_since = None
        self._sink.begin()
        for key, old in list(self._known.items()):
            new = fresh.get(key)
            if (new is None or new.metadata.uid != old.metadata.uid) and undecodable.get(key) != old.metadata.uid:
                await self._sink.put(self._deleted(key, old))
        for key, obj in fresh.items():
            await self._deliver_listed(key, obj, version, is_back=back, twice=back or refused)
        self._version = version
        if self.resource is not self._current_version and not self._uses_older:
            self._report(
                f"{self.resource.plural}: {self._current_version.api_version} is not served; reading "
                f"{self.resource.api_version}"
            )
        self._uses_older = self.resource is not self._current_version
        self._must_list = self.unserved = False
        self.last_error, self.failing_since = "", None
        self._sink.end()
        self.synced.set()

    def _check_restored(self, version: str) -> None:
        """Return normally if lists have been older for so long that the cluster must have been restored.

        Raises  ClusterError until then
        """
        since = self._older_since = self._clock() if self._older_since is None else self._older_since
        if self._clock() - since < _RESTORED_S:
            text = f"the list is of version {version}, older than {self._version} which was seen before"
            raise ClusterError(text, 503, "BackInTime")
        self._report(
            f"{self.resource.plural}: version {version} for {_RESTORED_S:g}s: the cluster was restored; accepting the list"
        )

    async def _all_pages(self) -> tuple[dict[str, T], dict[str, str], str]:
        """Return all objects by key, the UIDs of undecodable ones, and the version of the list."""
        params = self._params(limit=str(_PAGE))
        fresh: dict[str, T] = {}
        undecodable: dict[str, str] = {}
        while True:
            try:
                page = self._decoder.page(await self._wire.get(self.resource.path, params))
            except ClusterError as error:
                if not (error.is_expired and "continue" in params):
                    raise
                # The continue token expired: list everything in one request.
                fresh.clear()
                undecodable.clear()
                params = self._params()
                continue
            fresh.update((obj.key, obj) for obj in page.objects)
            undecodable.update(page.undecodable)
            if not page.continue_token:
                return fresh, undecodable, page.version
            params = {**params, "continue": page.continue_token}

    # -- watches -------------------------------------------------------------------------------------------------------

    async def _check_server_version(self) -> None:
        """Check the server's current version: a watch from a future version would stay silent until then.

        Raises  ClusterError if the server is behind what was seen
        """
        page = self._decoder.page(await self._wire.get(self.resource.path, self._params(limit="1")))
        if is_older(page.version, self._version):
            raise ClusterError(f"{_TOO_LARGE}: the server is at {page.version}, {self._version} was seen before", 504)

    async def _watch(self) -> None:
        """Process events until the stream ends; without a valid state, start with the initial list."""
        began, events, told = self._clock(), 0, self.told_until
        lasts_s = int(_WATCH_S * (1.0 + self._rng.random()))
        initial_list = _InitialList[T]() if self._must_list else None
        params = self._params(
            watch="true",
            allowWatchBookmarks="true",
            timeoutSeconds=str(lasts_s),
            **({"resourceVersion": self._version} if initial_list is None else _WATCH_LIST),
        )
        try:
            async with self._wire.watch(self.resource.path, params, lasts_s + _GRACE_S) as stream:
                opened = self._opened(is_synced=initial_list is None)
                async for lines in stream:
                    facts: list[Fact] = []
                    if initial_list is None and self._clock() - opened > _LATE_S:
                        told = self._clock()
                    try:
                        for line in lines:
                            event = self._decoder.event(line)
                            if initial_list is None:
                                facts += self._handle_event(event)
                            elif event.ends_list:
                                await self._apply_list(initial_list.fresh, initial_list.undecodable, event.version)
                                initial_list, self._truncated, told = None, 0, began
                            else:
                                initial_list.add(event)
                            events += 1
                    finally:
                        if facts:  # also those before a line that is an error
                            await self._sink.put_all(facts)
                        self.told_until = told
                        is_current = told == began or self._clock() - opened > _VERY_LATE_S
                        self.told_surely = told if is_current else self.told_surely
        except ClusterError as error:
            if initial_list is None or _may_retry(error):
                raise
            self._streams = error.status not in _NO_WATCH_LIST
            await self._list()
            return
        if initial_list is not None:
            self._truncated += 1
            self._streams = self._truncated < _MAX_TRUNCATED
            raise ClusterError("the watch ended before its initial list was complete")
        self._may_be_behind = not events  # not even a bookmark
        if not events and self._clock() - began < _SHORT_S:
            raise ClusterError("the watch ended at once, without an event")

    def _opened(self, *, is_synced: bool) -> float:
        """Note that a watch has begun, and return when. Without a list it shows that the kind can be followed."""
        if is_synced:
            self.failing_since = None
        return self._clock()

    def _handle_event(self, event: WatchEvent[T]) -> Sequence[Fact]:
        """Apply an event to the known objects, and return the facts to deliver."""
        obj, version = event.obj, event.version
        if version and not is_older(version, self._version):
            self._version = version
        if obj is None:
            known = self._known.get(event.key) if event.type == "DELETED" else None
            return () if known is None else (self._deleted(event.key, known),)
        key = obj.key
        known = self._known.get(key)
        if event.type == "DELETED":
            if known is None or is_older(version, known.metadata.resource_version):
                return ()
            return (self._deleted(key, obj if obj.metadata.uid == known.metadata.uid else known),)
        if known is None:
            return (self._seen(key, obj),)
        if known.metadata.uid != obj.metadata.uid:
            return (self._deleted(key, known), self._seen(key, obj))
        held = known.metadata.resource_version
        return (self._seen(key, obj),) if version != held and not is_older(version, held) else ()

    # -- delivering facts ----------------------------------------------------------------------------------------------

    async def _deliver_listed(self, key: str, obj: T, version: str, *, is_back: bool, twice: bool) -> None:
        """Deliver an object of a list with this version.

        A list is authoritative even if a later version of the object was seen: the server lost that version. The engine
        never goes back in time, so the object is delivered as deleted and new. If versions may have been issued ``twice``,
        an equal version may mean a different object; in a list that is older as a whole, so may a later one.
        """
        known = self._known.get(key)
        if known is not None:
            was, now = known.metadata.resource_version, obj.metadata.resource_version
            if known == obj if twice else was == now:
                if self.resource.redelivers(obj):
                    await self._sink.put(Seen(obj, version))
                return
            if is_back or was == now or is_older(now, was):
                await self._sink.put(Gone(known))
        await self._sink.put(self._seen(key, obj))

    def _seen(self, key: str, obj: T) -> Seen:
        """Record an object, and return the fact about it."""
        if self._changed is not None:
            if key not in self._known:
                self._changed.pop(key, None)  # an object that came again is the last one
            self._changed[key] = None
        self._known[key] = obj
        if self.on_change is not None:
            self.on_change(key, obj)
        return Seen(obj)

    def _deleted(self, key: str, obj: T) -> Gone:
        """Record a deletion, and return the fact about it."""
        self._known.pop(key, None)
        if self._changed is not None:
            self._changed[key] = None
        if self.on_change is not None:
            self.on_change(key, None)
        if self._raw_objects is not None:
            self._raw_objects.drop(obj)
        return Gone(obj)

    def _params(self, **params: str) -> dict[str, str]:
        return {**params, "fieldSelector": self.resource.fields} if self.resource.fields else params


def _may_retry(error: ClusterError) -> bool:
    """Return True if a failed watch-list may be retried as one."""
    return error.status in _RETRYABLE or error.is_expired or error.retry_after_s is not None or _TOO_LARGE in str(error)
