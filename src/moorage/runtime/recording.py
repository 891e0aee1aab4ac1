"""Events for people (``kubectl get events``), written without ever holding anything up.

What happens again to the same object, in the same way, is no new event but one more of a series: the first two are written at
once, the count of later ones half-hourly, and once more when there was none for six minutes. Events wait in a bounded queue;
what does not fit is dropped and counted. A few are written at a time, those of one name in their order; while the API server
cannot be reached, these are tried again and the others wait.

Source  client-go/tools/events/event_broadcaster.go
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from uuid import UUID
from zlib import crc32

from msgspec.structs import replace

from moorage.errors import ClusterError
from moorage.runtime.ports import Clock, Cluster, Event, Note, WallClock

__all__ = ["NOTE_LIMIT", "Recorder", "shortened"]

#: The API takes no longer texts for events; in bytes.
NOTE_LIMIT = 1024
_SUFFIX = " ..."
#: Longest name that the API takes; an event whose name would be longer is named like kube-scheduler's, by a UUID.
_LONGEST_NAME = 253
_WAITING = 10_000
_WRITERS = 4
_REMEMBERED = 4096
_FINISH_S = 360.0
_REFRESHES = 5
_TRIES = 12
_RETRY_S = 10.0
_LOOK_S = 0.01


@dataclass(slots=True)
class _Told:
    """An event that was written, or is about to be, and when it happened last, on the loop's clock."""

    event: Event
    last_s: float


class Recorder:
    """Turns notes into events. ``report`` is told what could not be written."""

    def __init__(self, cluster: Cluster, clock: Clock, wall: WallClock, report: Callable[[str], None]) -> None:
        self._cluster, self._clock, self._wall, self._report = cluster, clock, wall, report
        self._told: OrderedDict[tuple[str, ...], _Told] = OrderedDict()
        self._lanes: tuple[deque[Event], ...] = tuple(deque() for _ in range(_WRITERS))
        self._news = tuple(asyncio.Event() for _ in range(_WRITERS))
        self._waiting = 0
        #: Events that did not fit, or that the API server did not take.
        self.dropped = 0
        self._writing = 0

    def note(self, note: Note) -> None:
        """Tell people. Nothing here waits."""
        key, now = _key(note), self._clock()
        told = self._told.get(key)
        if told is None:
            began, text = self._wall(), shortened(note.text)
            kept = note if text is note.text else replace(note, text=text)
            event = Event(kept, _name_of(note, (*key, began, str(now))), began)
            if self._put(event):
                self._told[key] = _Told(event, now)
                self._forget_some()
            return
        first_repeat = told.event.count == 1
        told.last_s = now
        told.event = replace(told.event, count=told.event.count + 1, last=self._wall())
        self._told.move_to_end(key)
        if first_repeat:
            self._put(told.event)

    def _put(self, event: Event) -> bool:
        if self._waiting >= _WAITING:
            self.dropped += 1
            return False
        self._waiting += 1
        lane = crc32(event.note.regarding.uid.encode()) % _WRITERS  # what is told of one pod is told in order
        self._lanes[lane].append(event)
        self._news[lane].set()
        return True

    def _forget_some(self) -> None:
        while len(self._told) > _REMEMBERED:
            self._end(self._told.popitem(last=False)[1])

    def _end(self, told: _Told) -> None:
        """Write the last count of a series that is over; what happened twice was written when it did."""
        if told.event.count > 2:
            self._put(told.event)

    async def flush(self, patience_s: float) -> None:
        """Write what waits, and then the last counts of series, for so long at most. ``run`` goes on meanwhile."""
        for told in self._told.values():
            self._end(told)
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
                for told in self._told.values():
                    self._end(told)

    def _finish(self) -> None:
        """Forget what has not happened for a while."""
        before = self._clock() - _FINISH_S
        for key, told in list(self._told.items()):
            if told.last_s < before:
                del self._told[key]
                self._end(told)

    async def _send(self, lane: deque[Event], news: asyncio.Event) -> None:
        while True:
            while not lane:
                news.clear()
                await news.wait()
            event = lane.popleft()
            self._waiting -= 1
            self._writing += 1
            try:
                await self._write(event)
            finally:
                self._writing -= 1

    async def _write(self, event: Event) -> None:
        note = event.note
        for tries in range(1, _TRIES + 1):
            try:
                await self._cluster.record(event)
                return
            except ClusterError as error:
                if error.status == 409:  # it is there: the reply to an earlier try was lost
                    return
                if not error.may_have_happened or tries == _TRIES:
                    self.dropped += 1
                    self._report(f"event {note.reason} of {note.regarding.key}: {error}")
                    return
            await asyncio.sleep(_RETRY_S)


def _key(note: Note) -> tuple[str, ...]:
    """What makes two events the same: all but the words."""
    pod, related = note.regarding, note.related
    about = (pod.uid, pod.namespace, pod.name, pod.metadata.resource_version)
    return (*about, note.kind, note.reason, note.action, note.reporter, "" if related is None else related.metadata.uid)


def _name_of(note: Note, told_by: Iterable[str]) -> str:
    """Return the pod's name with a mark that no other event has, and that is the same when a run is repeated."""
    told = chr(0).join(told_by).encode()
    name = f"{note.regarding.name}.{blake2b(told, digest_size=8).hexdigest()}"
    return name if len(name) <= _LONGEST_NAME else str(UUID(bytes=blake2b(told, digest_size=16).digest()))


def shortened(text: str) -> str:
    """Return at most as much of a text as the API takes as an event's note."""
    if len(text) <= NOTE_LIMIT and text.isascii():
        return text
    raw = text.encode("utf-8", "replace")
    if len(raw) <= NOTE_LIMIT:
        return text
    return raw[: NOTE_LIMIT - len(_SUFFIX)].decode("utf-8", "ignore") + _SUFFIX
