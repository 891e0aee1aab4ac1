"""The hub: follow the cluster while browsers are connected, and send them its changes at most four times a second.

All readers share one ring buffer of frames. Each reader keeps only its position, so a slow reader costs no memory: once the
ring has overwritten its next frame, it gets a reset event and reads the snapshot again. Nothing is followed while no browser is
connected.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from moorage.api.core import Node, Pod
from moorage.errors import InputError
from moorage.interfaces.web.history import Past, TimelineRows, rows_at, timeline_document
from moorage.interfaces.web.mirror import (
    Changes,
    Header,
    Mirror,
    PriceOf,
    SnapshotRows,
    View,
    causes_of,
    lacking_of,
    snapshot_document,
)
from moorage.interfaces.web.rows import PodRow, QueueState, WorkloadRow, is_ended, pod_row

#: Seconds between two frames.
FRAME_S: Final = 0.25
#: Maximum number of frames, and of rows in all frames, in the ring.
MOST_FRAMES: Final = 256
MOST_ROWS: Final = 50_000
#: Maximum number of changed objects in a frame; the others wait for the next one.
_MOST_CHANGES: Final = 4000
#: Number of objects to read before other tasks run, and of pending pods whose queue state is updated in each frame.
_CHUNK: Final = 100
_QUEUE_LOOKUPS: Final = 1000
#: Seconds without a request after which the hub stops following.
IDLE_S: Final = 60.0
#: Seconds between two keep-alive comments on a stream without changes, after each of which the reader's rights are looked at.
_QUIET_S: Final = 5.0
#: Number of encoded frames and snapshots that are cached for other readers.
_KEPT_FRAMES: Final = 16
_KEPT_SNAPSHOTS: Final = 4
#: Seconds after which the typical shapes of pods, and the groups of nodes, are computed again.
_SHAPES_S: Final = 30.0
_GROUPS_S: Final = 2.0
_NODES_OF_NOW: Final = "Nodes are as they are now; the pods are those of that time."

_LOG: Final = logging.getLogger(__name__)

Make = Callable[[], Node | Pod | WorkloadRow | None]


class Source(Protocol):
    """Provides the nodes and pods of a cluster. ``live`` is False for a cluster that does not change."""

    release: str
    live: bool
    notes: tuple[str, ...]

    def nodes(self) -> Iterator[Node]: ...
    def pods(self) -> Iterator[Pod]: ...

    def workloads(self) -> Iterator[WorkloadRow]:
        """Return what controllers say of their pods; nothing where that is not known."""

    def follow(self, on_change: Callable[[str, str, Make | None], None]) -> None:
        """Call ``on_change(kind, key, read)`` for each change of a node, pod or workload.

        ``read`` returns it; None if it was deleted
        """

    def unfollow(self) -> None: ...

    def queue_state(self, uid: str) -> QueueState:
        """Return the state of a pod in the scheduler's queue."""


class _Frame(NamedTuple):
    number: int
    at: str
    changes: Changes


class Hub:
    """Follows a source for any number of readers."""

    def __init__(
        self, source: Source, clock: Callable[[], float] = time.time, price_of: PriceOf | None = None,
        recorded: Past | None = None,
    ) -> None:  # fmt: skip
        self.source, self._recorded = source, recorded
        self._price_of = price_of
        self.mirror = self._new_mirror()
        #: Differs for each start of the process.
        self._boot = secrets.token_hex(4)
        self._clock = clock
        self.frames: deque[_Frame] = deque()
        self._rows = 0
        self._number = 0
        self._readers = 0
        self._asked_at = 0.0
        self._dirty: dict[tuple[str, str], Make | None] = {}
        self._arrived = asyncio.Event()
        self._loading: asyncio.Task[None] | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._encoded: OrderedDict[tuple[int, View], bytes] = OrderedDict()
        self._snapshots: OrderedDict[tuple[int, View, str], asyncio.Task[bytes]] = OrderedDict()
        self._looked_up: Iterator[PodRow] = iter(())

    def _new_mirror(self) -> Mirror:
        made = Mirror()
        made.price_of = self._price_of
        return made

    @property
    def id(self) -> str:
        return f"{self._boot}-{self._number}"

    # -- following -----------------------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Wait until the mirror holds the whole cluster."""
        self._asked_at = time.monotonic()
        if self._loading is None:
            self._loading = asyncio.create_task(self._load(), name="web interface")
        await asyncio.shield(self._loading)

    async def _load(self) -> None:
        self.mirror = self._new_mirror()
        self.source.follow(self._on_change)
        try:
            await self._read(self.source.nodes(), self.mirror.put_node)
            await self._read(self.source.pods(), self._put_pod)
            await self._read(self.source.workloads(), lambda row: self.mirror.put_workload(row.key, row))
            await self._apply()
            self.mirror.learn_shapes()
            self.mirror.settle()
            self.mirror.observed = self._clock()
        except BaseException:
            self._stop()
            raise
        self.frames.clear()
        self._rows = 0
        self._number += 1
        self._ticking = asyncio.create_task(self._tick(), name="web interface frames")

    async def _read(self, objects: Iterable[Any], put: Callable[[Any], None]) -> None:
        read = iter(objects)
        while chunk := list(islice(read, _CHUNK)):
            for one in chunk:
                put(one)
            await asyncio.sleep(0)

    def _put(self, kind: str, key: str, new: Node | Pod | WorkloadRow | None) -> None:
        if kind == "workload":
            self.mirror.put_workload(key, new if isinstance(new, WorkloadRow) else None)
        elif new is None:
            if kind == "node":
                self.mirror.drop_node(key, self._clock())
            else:
                self.mirror.drop_pod(key, self._clock())
        elif isinstance(new, Node):
            self.mirror.put_node(new)
        elif isinstance(new, Pod):
            self._put_pod(new)

    def _put_pod(self, pod: Pod) -> None:
        if is_ended(pod):
            self.mirror.drop_pod(pod.key, self._clock())
        else:
            queue = self.source.queue_state(pod.uid) if not pod.spec.node_name else QueueState()
            self.mirror.put_pod(pod_row(pod, queue), self._clock())

    def _on_change(self, kind: str, key: str, make: Make | None) -> None:
        self._dirty[kind, key] = make

    async def _apply(self) -> None:
        """Apply the changes received since the last frame to the mirror, up to the maximum for a frame."""
        for count in range(_MOST_CHANGES):
            if not self._dirty:
                return
            kind, key = first = next(iter(self._dirty))
            make = self._dirty.pop(first)
            with suppress(InputError):  # an object that cannot be read; the scheduler reports it
                self._put(kind, key, None if make is None else make())
            if count % _CHUNK == _CHUNK - 1:
                await asyncio.sleep(0)

    async def _tick(self) -> None:
        try:
            await self._follow()
        except Exception:  # a bug here must not stop the server; the next reader starts again
            _LOG.exception("the web interface stops following the cluster")
        finally:
            self._stop()

    async def _follow(self) -> None:
        shaped_at = grouped_at = time.monotonic()
        while self._readers or time.monotonic() - self._asked_at < IDLE_S:
            await asyncio.sleep(FRAME_S)
            await self._apply()
            self._look_up_queue()
            now = time.monotonic()
            if now - shaped_at > _SHAPES_S:
                self.mirror.learn_shapes()
                shaped_at = now
            regroup = now - grouped_at > _GROUPS_S
            grouped_at = now if regroup else grouped_at
            changes = self.mirror.take(regroup=regroup)
            if changes is not None:
                self._add(changes)

    def _look_up_queue(self) -> None:
        """Update the queue state of the next pending pods, as it changes without a change of the object."""
        if not self.mirror.pending:
            return
        rows = list(islice(self._looked_up, _QUEUE_LOOKUPS))
        if len(rows) < _QUEUE_LOOKUPS:
            self._looked_up = iter(list(self.mirror.pending.values()))
        for row in rows:
            if self.mirror.pending.get(row.key) is row and row.state in {"pending", "backoff"}:
                queue = self.source.queue_state(row.uid)
                new = msgspec.structs.replace(row, state=queue.state or row.state, attempts=queue.attempts)
                self.mirror.put_pod(new, self._clock())

    def _add(self, changes: Changes) -> None:
        self._number += 1
        self.frames.append(_Frame(self._number, self.now(), changes))
        self._rows += changes.size
        while len(self.frames) > MOST_FRAMES or (self._rows > MOST_ROWS and len(self.frames) > 1):
            self._rows -= self.frames.popleft().changes.size
        self.wake()

    def _stop(self) -> None:
        """Stop following, and free the memory."""
        self.source.unfollow()
        self._dirty.clear()
        self._loading = self._ticking = None
        self.frames.clear()
        self._encoded.clear()
        self._snapshots.clear()
        self.mirror = self._new_mirror()
        self._number += 1
        self.wake()

    def wake(self) -> None:
        """Wake all readers, so that they send new frames and notices."""
        arrived, self._arrived = self._arrived, asyncio.Event()
        arrived.set()

    def end(self) -> None:
        """Stop following, because the server stops."""
        for task in (self._loading, self._ticking):
            if task is not None:
                task.cancel()

    # -- reading -------------------------------------------------------------------------------------------------------

    def now(self) -> str:
        return _stamp(self._clock())

    async def snapshot(self, view: View, user: str, *, writable: bool = False, asks: bool = True) -> bytes:
        """Return the encoded snapshot, compressed with gzip. Readers of the same user and view share it."""
        await self.ready()
        key = (self._number, view, user)
        task = self._snapshots.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            header = Header(
                release=self.source.release, id=self.id, at=self.now(), live=self.source.live, writable=writable, user=user,
                notes=self.source.notes, asks=asks,
            )  # fmt: skip
            encode = partial(_encoded_snapshot, SnapshotRows.of(self.mirror), header, view)
            task = self._snapshots[key] = asyncio.create_task(asyncio.to_thread(encode))
            while len(self._snapshots) > _KEPT_SNAPSHOTS:
                self._snapshots.popitem(last=False)
        return await asyncio.shield(task)

    async def history(self, view: View, span: tuple[float, float] | None = None, run: Past | None = None) -> bytes:
        """Return the encoded history of a time span (default: all known history), compressed with gzip. ``run``: of a run."""
        await self.ready()
        recorded, now = run or self._recorded, self._clock() if run is None else run.span[1]
        rows = TimelineRows.of(self.mirror) if recorded is None else await asyncio.to_thread(recorded.rows)
        return await asyncio.to_thread(lambda: _compressed(timeline_document(rows, now, view, span)))

    async def past(self, view: View, user: str, at: float, run: Past | None = None) -> bytes:
        """Return the encoded snapshot of a time in the past, or of a run, compressed with gzip."""
        await self.ready()
        recorded = run or self._recorded
        notes = (_NODES_OF_NOW,) if recorded is None else ()
        header = Header(release=self.source.release, id="", at=_stamp(at), live=False, writable=False, user=user, notes=notes)
        rows, gone = SnapshotRows.of(self.mirror), list(self.mirror.gone)
        found = partial(rows_at, rows, gone, at) if recorded is None else partial(recorded.state, at)
        return await asyncio.to_thread(lambda: _encoded_snapshot(found(), header, view))

    async def events(
        self, view: Callable[[], Any], last: str, notices: Callable[[], list[bytes]] = list
    ) -> AsyncIterator[bytes]:  # fmt: skip
        """Yield the frames after the one with the id ``last``. ``view`` returns the View of the reader at the moment.

        ``notices`` returns the events for this reader alone since its last call.
        """
        await self.ready()
        self._readers += 1
        try:
            at = self._position(last)
            if at is None:
                yield self._reset()
                at = self._number
            seen = await view()
            yield b": connected\n\n"
            while True:
                arrived = self._arrived
                for frame in self._after(at):
                    at = frame.number
                    yield self._encode(frame, seen)
                if at < self._number:
                    yield self._reset()
                    at = self._number
                    continue
                for notice in notices():
                    yield notice
                try:
                    async with asyncio.timeout(_QUIET_S):
                        await arrived.wait()
                except TimeoutError:
                    yield b": \n\n"
                if await view() != seen:
                    yield self._reset()
                    return
        finally:
            self._readers -= 1
            self._asked_at = time.monotonic()

    def _position(self, last: str) -> int | None:
        """Return the number of a frame by its id; None if frames after it are lost."""
        boot, _, number = last.partition("-")
        if boot != self._boot or not (number.isascii() and number.isdigit() and len(number) < 16):
            return None if last else self._number
        at = int(number)
        oldest = self.frames[0].number - 1 if self.frames else self._number
        return at if oldest <= at <= self._number else None

    def _after(self, at: int) -> list[_Frame]:
        """Return the frames after a position; none if the ring no longer holds the next one."""
        if not self.frames or self.frames[0].number > at + 1:
            return []
        return list(islice(self.frames, at + 1 - self.frames[0].number, None))

    def _reset(self) -> bytes:
        return f"id: {self.id}\nevent: reset\ndata: {{}}\n\n".encode()

    def _encode(self, frame: _Frame, view: View) -> bytes:
        key = (frame.number, view)
        found = self._encoded.get(key)
        if found is None:
            body = msgspec.json.encode(_delta(f"{self._boot}-{frame.number}", frame, self.mirror, view))
            found = f"id: {self._boot}-{frame.number}\nevent: delta\ndata: ".encode() + body + b"\n\n"
            self._encoded[key] = found
            while len(self._encoded) > _KEPT_FRAMES:
                self._encoded.popitem(last=False)
        return found


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _encoded_snapshot(rows: SnapshotRows, header: Header, view: View) -> bytes:
    return _compressed(snapshot_document(rows, header, view))


def _compressed(document: dict[str, Any]) -> bytes:
    return gzip.compress(msgspec.json.encode(document), compresslevel=1)


def _delta(id_: str, frame: _Frame, mirror: Mirror, view: View) -> dict[str, Any]:
    changes = frame.changes
    return {
        "id": id_,
        "at": frame.at,
        "nodes": {"set": changes.nodes, "gone": changes.nodes_gone},
        "pods": {
            "set": [
                {name: value for name, value in msgspec.structs.asdict(row).items() if name not in {"bound_at", "uid"}}
                for row in changes.pods
                if view.shows(row.key)
            ],
            "gone": [key for key in changes.pods_gone if view.shows(key)],
        },
        "causes": causes_of(mirror.causes, view),
        "lacking": lacking_of(mirror.lacking, view),
        "attempts": [one for one in changes.attempts if view.shows(one.pod)],
    }
