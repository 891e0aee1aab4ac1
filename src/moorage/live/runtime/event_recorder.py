"""The event recorder: write Events (``kubectl get events``) in the background.

A repeated event of one object becomes a series: the recorder writes the first two occurrences at once, the count of later ones
every half hour, and a last count after six minutes without an occurrence. Events wait in a bounded queue; events that do not
fit are dropped and counted. A few are written at a time, those of one object in order. While the API server cannot be reached,
the recorder retries these few, and the other events wait.

Where the API server did not answer for ``events.k8s.io/v1`` at the start, events are of core/v1 and have a count instead of a
series (see ``event_counts``).

Source  client-go/tools/events/event_broadcaster.go
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from uuid import UUID
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from moorage.errors import ClusterError, MoorageError
from moorage.live.runtime.event_counts import EventCounts
from moorage.live.runtime.ports import Clock, ClusterWriter, EventNote, EventRecord, WallClock

#: The longest note of an Event that the API accepts, in bytes.
NOTE_LIMIT = 1024
_SUFFIX = " ..."
#: The longest name that the API accepts; an event whose name would be longer is named by a UUID, as in kube-scheduler.
_LONGEST_NAME = 253
_WAITING = 10_000
_WRITERS = 4
#: The most events of a lane that are sent together.
_AT_ONCE = 16
_REMEMBERED = 4096
_FINISH_S = 360.0
_REFRESHES = 5
_TRIES = 12
_RETRY_S = 10.0
_LOOK_S = 0.01


class _Series(Struct, gc=False):
    """An event that was written or is queued, and the time of its last occurrence in seconds on the loop's clock."""

    event: EventRecord
    last_s: float


class Recorder:
    """Turns notes into Events. ``report`` gets a line for each event that could not be written."""

    def __init__(self, cluster: ClusterWriter, clock: Clock, wall: WallClock, report: Callable[[str], None]) -> None:
        self._cluster, self._clock, self._wall, self._report = cluster, clock, wall, report
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._lanes: tuple[deque[EventRecord], ...] = tuple(deque() for _ in range(_WRITERS))
        self._news = tuple(asyncio.Event() for _ in range(_WRITERS))
        self._waiting = 0
        #: Set where events are of core/v1, with the first event of each count.
        self._counts: EventCounts | None = None
        self._firsts: OrderedDict[tuple[str, ...], EventRecord] = OrderedDict()
        #: The number of events that did not fit in the queue or that the API server rejected.
        self.dropped = 0
        self._writing = 0

    def use_core_events(self) -> None:
        """Write Events of core/v1 from now on, because ``events.k8s.io/v1`` is not served."""
        self._counts = EventCounts()

    def note(self, note: EventNote) -> None:
        """Queue an event. Does not wait."""
        self.note_all([note])

    def note_all(self, notes: Iterable[EventNote]) -> None:
        """Queue events. Does not wait."""
        now, wall = self._clock(), self._wall()
        for note in notes:
            if self._counts is not None:
                self._count(self._counts, note, now, wall)
                continue
            pod, related = note.regarding.metadata, note.related
            about = (pod.uid, pod.namespace, pod.name, pod.resource_version)  # a series has all fields of a note but the text
            key = (*about, note.kind, note.reason, note.action, note.reporter, "" if related is None else related.metadata.uid)
            series = self._series.get(key)
            if series is None:
                self._begin(note, key, now, wall)
            else:
                self._repeat(series, key, now, wall)

    def _begin(self, note: EventNote, key: tuple[str, ...], now: float, wall: str) -> None:
        text = shortened(note.text)
        kept = note if text is note.text else replace(note, text=text)
        event = EventRecord(kept, _name_of(note, (*key, wall, str(now))), wall)
        if self._put(event):
            self._series[key] = _Series(event, now)
            if len(self._series) > _REMEMBERED:
                self._end(self._series.popitem(last=False)[1])

    def _repeat(self, series: _Series, key: tuple[str, ...], now: float, wall: str) -> None:
        first_repeat = series.event.count == 1
        series.last_s = now
        series.event = replace(series.event, count=series.event.count + 1, last=wall)
        self._series.move_to_end(key)
        if first_repeat:
            self._put(series.event)

    def _count(self, counts: EventCounts, note: EventNote, now: float, wall: str) -> None:
        counted = counts.add(note, shortened(note.text), now)
        if counted is None:
            return
        first = self._firsts.pop(counted.key, None)
        kept = replace(note, text=counted.text, related=None)
        if first is None or counted.occurred == 1:
            name = _name_of(note, (*counted.key, wall, str(now)))
            first = EventRecord(kept, name, wall, counted.occurred, wall, core=True, combined=counted.combined)
            event = first
        else:
            event = replace(first, note=kept, count=counted.occurred, last=wall)
        self._firsts[counted.key] = first
        if len(self._firsts) > _REMEMBERED:
            self._firsts.popitem(last=False)
        self._put(event)

    def _put(self, event: EventRecord) -> bool:
        if self._waiting >= _WAITING:
            self.dropped += 1
            return False
        self._waiting += 1
        lane = crc32(event.note.regarding.uid.encode()) % _WRITERS  # events of one pod stay in order
        waiting = self._lanes[lane]
        if not waiting:
            self._news[lane].set()
        waiting.append(event)
        return True

    def _end(self, series: _Series) -> None:
        """Queue the last count of a series that has ended; a count of up to two is already written."""
        if series.event.count > 2:
            self._put(series.event)

    async def flush(self, patience_s: float) -> None:
        """Write the queued events and the last counts of series, for at most ``patience_s``, while ``run`` runs."""
        for series in self._series.values():
            self._end(series)
        end = self._clock() + patience_s
        while (self._writing or any(self._lanes)) and self._clock() < end:
            await asyncio.sleep(_LOOK_S)

    # -- tasks -------------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for lane in range(_WRITERS):
                tasks.create_task(self._send(self._lanes[lane], self._news[lane]))
            tasks.create_task(self._keep_up())

    async def _keep_up(self) -> None:
        rounds = 0
        while True:
            await asyncio.sleep(_FINISH_S)
            rounds += 1
            self._finish()
            if rounds % _REFRESHES == 0:
                for series in self._series.values():
                    self._end(series)

    def _finish(self) -> None:
        """End the series that have not occurred for ``_FINISH_S``."""
        before = self._clock() - _FINISH_S
        for key, series in list(self._series.items()):
            if series.last_s < before:
                del self._series[key]
                self._end(series)

    async def _send(self, lane: deque[EventRecord], news: asyncio.Event) -> None:
        while True:
            while not lane:
                news.clear()
                await news.wait()
            events = _first_occurrences(lane) or [lane.popleft()]
            self._waiting -= len(events)
            self._writing += len(events)
            try:
                for event, failed in await self._written(events):
                    await self._write(event, failed)
            finally:
                self._writing -= len(events)

    async def _written(self, events: list[EventRecord]) -> list[tuple[EventRecord, ClusterError | None]]:
        """Write events together. Return those that are not written, each with the error of its try, None if not tried."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed: list[tuple[EventRecord, ClusterError | None]] = []
        left = len(events)

        def done(which: Sequence[int], error: MoorageError | None) -> None:
            nonlocal left
            left -= len(which)
            if error is not None:
                failed.extend((events[at], error if isinstance(error, ClusterError) else None) for at in which)
            if not left and not ended.done():
                ended.set_result(None)

        if events[0].count > 1 or not self._cluster.record_soon(events, done):
            return [(event, None) for event in events]
        await ended
        return failed

    async def _write(self, event: EventRecord, failed: ClusterError | None = None) -> None:
        """Write an event; ``failed`` is the error of an earlier try."""
        note = event.note
        for tries in range(1, _TRIES + 1):
            try:
                if failed is None or tries > 1:
                    await self._cluster.record(event)
                    return
                error = failed
            except ClusterError as found:
                error = found
            if error.status == 409:  # it exists: the reply to an earlier try was lost
                return
            wait_s = _wait_s(error)
            if wait_s is None or tries == _TRIES:
                self.dropped += 1
                self._report(f"event {note.reason} of {note.regarding.key}: {error}")
                return
            await asyncio.sleep(wait_s)


def _first_occurrences(lane: deque[EventRecord]) -> list[EventRecord]:
    """Remove and return events from the front of a lane up to the first series, at most ``_AT_ONCE``."""
    events: list[EventRecord] = []
    while lane and lane[0].count == 1 and len(events) < _AT_ONCE:
        events.append(lane.popleft())
    return events


def _wait_s(error: ClusterError) -> float | None:
    """Return the seconds to wait before the next try; None if the API server refused the event."""
    if error.retry_after_s is not None:
        return error.retry_after_s
    if error.status == 401:  # the credentials have expired
        return 0.0
    return _RETRY_S if error.may_have_happened else None


def _name_of(note: EventNote, parts: Iterable[str]) -> str:
    """Return the pod's name with a suffix that is unique among events, and the same in a repeated run."""
    digested = chr(0).join(parts).encode()
    name = f"{note.regarding.name}.{blake2b(digested, digest_size=8).hexdigest()}"
    return name if len(name) <= _LONGEST_NAME else str(UUID(bytes=blake2b(digested, digest_size=16).digest()))


def shortened(text: str) -> str:
    """Return the text, cut to the length that the API accepts for an Event's note."""
    if len(text) <= NOTE_LIMIT and text.isascii():
        return text
    raw = text.encode("utf-8", "replace")
    if len(raw) <= NOTE_LIMIT:
        return text
    return raw[: NOTE_LIMIT - len(_SUFFIX)].decode("utf-8", "ignore") + _SUFFIX
