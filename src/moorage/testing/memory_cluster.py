"""An in-memory cluster for tests of the runtime: an API server's rules for pods, a delayed watch, and injected faults.

    cluster = MemoryCluster([a_node("n1", allocatable={"cpu": "4", "pods": "10"})])
    cluster.faults.append(Trouble("bind", after=True))      # the next bind succeeds, and its response is lost
    cluster.watch(inbox)                                    # deliver facts like a watch, delayed by ``lag_s``

``history`` keeps every accepted write in order, for an oracle that is independent of the scheduler.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec.structs import replace

from moorage.api.core import Object, Pod
from moorage.api.pod_groups import Condition, PodGroup, with_condition
from moorage.core.engine.facts import Fact, Gone, Seen
from moorage.errors import ClusterError, MoorageError
from moorage.live.runtime.inbox import Inbox
from moorage.live.runtime.ports import EventNote, EventRecord, RequestsEnded, StatusChange

T = TypeVar("T")


@dataclass(slots=True)
class Trouble:
    """A fault in the next ``times`` requests of a verb for which ``when`` returns True.

    ``after``: execute the request before the error is returned. ``hold_s``: delay it that long.
    """

    verb: str
    error: ClusterError | None = field(default_factory=lambda: ClusterError("connection reset"))
    after: bool = False
    hold_s: float = 0.0
    times: int = 1
    when: Callable[[Any], bool] = lambda obj: True


@dataclass(frozen=True, slots=True)
class WriteEntry:
    """One accepted write, in the order of ``revision``."""

    revision: int
    verb: str
    obj: Object
    at_s: float


class MemoryCluster:
    """Objects by kind and key, and their watchers. Implements ``moorage.live.runtime.ports.ClusterWriter``."""

    def __init__(self, objects: Iterable[Object] = (), *, lag_s: float = 0.01, latency_s: float = 0.002) -> None:
        self.lag_s, self.latency_s = lag_s, latency_s
        self.faults: list[Trouble] = []
        self.history: list[WriteEntry] = []
        self.notes: list[EventNote] = []
        #: Events by name in their last form; ``notes`` contains each once.
        self.events: dict[str, EventRecord] = {}
        #: The number of requests by verb, counted on arrival.
        self.requests: dict[str, int] = {}
        #: While True, watches deliver nothing; ``relist`` then delivers the differences.
        self.stalled = False
        self._under_way: set[asyncio.Task[None]] = set()
        self._objects: dict[tuple[type[Object], str], Object] = {}
        self._watchers: list[Inbox] = []
        self._undelivered: deque[Fact] = deque()
        self._delivered: dict[tuple[type[Object], str], Object] = {}
        for obj in objects:
            self.put(obj)

    # -- other clients --------------------------------------------------------------------------------------------------

    def put(self, obj: Object, verb: str = "put") -> Object:
        """Create or replace an object, as another client would."""
        revision = len(self.history) + 1
        stored: Object = replace(obj, metadata=replace(obj.metadata, resource_version=str(revision)))
        self._objects[_key(stored)] = stored
        self.history.append(WriteEntry(revision, verb, stored, _now()))
        self._deliver(Seen(stored))
        return stored

    def remove(self, obj: Object) -> None:
        """Delete an object at once."""
        gone = self._objects.pop(_key(obj), None)
        if gone is not None:
            self.history.append(WriteEntry(len(self.history) + 1, "remove", gone, _now()))
            self._deliver(Gone(gone))

    def get(self, kind: type[Object], key: str) -> Any:
        """Return an object by ``namespace/name``, or None."""
        return self._objects.get((kind, key))

    def pods(self) -> list[Pod]:
        """Return all pods."""
        return [obj for obj in self._objects.values() if isinstance(obj, Pod)]

    def watch(self, inbox: Inbox) -> None:
        """Deliver all objects to an inbox, as one list, and every change from now on."""
        self._watchers.append(inbox)
        source = inbox.source("everything")
        source.begin()
        for key, obj in self._objects.items():
            self._delivered[key] = obj
            inbox.put_now(Seen(obj))
        source.end()

    def relist(self) -> None:
        """Resume delivery, and deliver the differences: only the last state of each object, like a list."""
        self.stalled = False
        for key, old in list(self._delivered.items()):
            new = self._objects.get(key)
            if new is None or _uid(new) != _uid(old):
                self._deliver(Gone(old))
        for key, obj in self._objects.items():
            if self._delivered.get(key) != obj:
                self._deliver(Seen(obj))

    def _deliver(self, fact: Fact) -> None:
        if self.stalled or not self._watchers:
            return
        obj = getattr(fact, "obj")  # noqa: B009
        if isinstance(fact, Seen):
            self._delivered[_key(obj)] = obj
        else:
            self._delivered.pop(_key(obj), None)
        self._undelivered.append(fact)
        asyncio.get_running_loop().call_later(self.lag_s, self._arrive)

    def _arrive(self) -> None:
        """Deliver the oldest pending change: two timers that are due at once may fire in any order."""
        fact = self._undelivered.popleft()
        for inbox in self._watchers:
            inbox.put_now(fact)

    # -- the port -------------------------------------------------------------------------------------------------------

    async def bind(self, pod: Pod, node: str, check: Callable[[], None]) -> None:
        check()
        await self._request("bind", pod, lambda: self._bind(pod, node))

    def bind_soon(self, binds: Sequence[tuple[Pod, str]], check: Callable[[], None], done: RequestsEnded) -> bool:
        for at, (pod, node) in enumerate(binds):
            self._start(_reported(self.bind(pod, node, check), at, done))
        return True

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _bind(self, pod: Pod, node: str) -> None:
        held = self._own(pod)
        if held.metadata.deletion_timestamp is not None:
            raise ClusterError(f"pod {pod.name} is being deleted, cannot be assigned to a host", 409, "Conflict")
        if held.spec.node_name:
            raise ClusterError(f"pod {pod.name} is already assigned to node {held.spec.node_name!r}", 409, "Conflict")
        status = replace(held.status, nominated_node_name="")
        self.put(replace(held, spec=replace(held.spec, node_name=node), status=status), "bind")

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        found: Pod | None = await self._request("read_pod", None, lambda: self.get(Pod, f"{namespace}/{name}"))
        return found

    async def patch_status(self, pod: Pod, change: StatusChange) -> Pod:
        return await self._request("patch_status", pod, lambda: self._patch_status(pod, change))

    def _patch_status(self, pod: Pod, change: StatusChange) -> Pod:
        held = self._named(pod)
        status = held.status
        if change.condition is not None:
            others = tuple(one for one in status.conditions if one.type != change.condition.type)
            status = replace(status, conditions=(*others, change.condition))
        if change.nominated is not None:
            status = replace(status, nominated_node_name=change.nominated)
        if status == held.status:
            return held
        changed = self.put(replace(held, status=status), "patch_status")
        assert isinstance(changed, Pod)
        return changed

    async def patch_group(self, group: PodGroup, condition: Condition) -> PodGroup:
        return await self._request("patch_group", group, lambda: self._patch_group(group, condition))

    def _patch_group(self, group: PodGroup, condition: Condition) -> PodGroup:
        held = self.get(PodGroup, group.key)
        if held is None:
            raise ClusterError(f"PodGroup {group.key} not found", 404, "NotFound")
        changed = with_condition(held, condition, condition.last_transition_time)
        if changed is not held:
            changed = self.put(changed, "patch_group")
        assert isinstance(changed, PodGroup)
        return changed

    async def delete_pod(self, pod: Pod) -> None:
        await self._request("delete_pod", pod, lambda: self._delete_pod(pod))

    def _delete_pod(self, pod: Pod) -> None:
        held = self._named(pod)
        if held.metadata.deletion_timestamp is not None:
            return
        marked = replace(held, metadata=replace(held.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
        self.put(marked, "delete_pod")
        grace_s = held.spec.termination_grace_period_seconds
        asyncio.get_running_loop().call_later(30 if grace_s is None else grace_s, self.remove, marked)

    async def write(
        self, old: Object | None, new: Object, subresource: str, made: Callable[[Object], None] | None = None
    ) -> Object:
        written = await self._request("write", new, lambda: self._write(old, new))
        if made is not None:
            made(written)
        return written

    def _write(self, old: Object | None, new: Object) -> Object:
        held: Any = self._objects.get(_key(new))
        if held is not None and (old is None or held.metadata.resource_version != old.metadata.resource_version):
            raise ClusterError("the object has been modified", 409, "Conflict")
        return self.put(new, "write")

    async def amend(self, obj: Object, change: Callable[[Any], Object], subresource: str) -> Object:
        return await self._request("amend", obj, lambda: self._amend(obj, change))

    def _amend(self, obj: Object, change: Callable[[Any], Object]) -> Object:
        held = self._objects.get(_key(obj))
        if held is None or (_uid(obj) and _uid(held) != _uid(obj)):
            raise ClusterError(f"{type(obj).__name__} {_key(obj)[1]} not found", 404, "NotFound")
        changed = change(held)
        return self.put(changed, "amend") if changed != held else held

    async def read(self, obj: Object) -> Object | None:
        found = await self._request("read", obj, lambda: self._objects.get(_key(obj)))
        return found if found is not None and _uid(obj) in {"", _uid(found)} else None

    async def delete(self, obj: Object) -> None:
        await self._request("delete", obj, lambda: self.remove(obj))

    async def record(self, event: EventRecord) -> None:
        await self._request("record", event.note, lambda: self._record(event))

    def record_soon(self, events: Sequence[EventRecord], done: RequestsEnded) -> bool:
        async def in_order() -> None:
            for at, event in enumerate(events):
                await _reported(self.record(event), at, done)

        self._start(in_order())
        return True

    def _record(self, event: EventRecord) -> None:
        if event.count == 1:
            self.notes.append(event.note)
        self.events[event.name] = event

    def _named(self, pod: Pod) -> Pod:
        held = self.get(Pod, pod.key)
        if held is None:
            raise ClusterError(f'pods "{pod.name}" not found', 404, "NotFound")
        assert isinstance(held, Pod)
        return held

    def _own(self, pod: Pod) -> Pod:
        held = self._named(pod)
        if held.uid != pod.uid:
            raise ClusterError(f"UID in precondition: {pod.uid}, UID in object meta: {held.uid}", 409, "Conflict")
        return held

    async def _request(self, verb: str, obj: Any, carry_out: Callable[[], T]) -> T:
        self.requests[verb] = self.requests.get(verb, 0) + 1
        await asyncio.sleep(self.latency_s)
        trouble = next((one for one in self.faults if one.verb == verb and one.times > 0 and one.when(obj)), None)
        if trouble is None:
            return carry_out()
        trouble.times -= 1
        if trouble.hold_s:
            await asyncio.sleep(trouble.hold_s)
        if trouble.error is None:
            return carry_out()
        if trouble.after:
            carry_out()
        raise trouble.error


async def _reported(request: Awaitable[None], at: int, done: RequestsEnded) -> None:
    """Await a request and call ``done`` with its index and its error, or None."""
    try:
        await request
    except MoorageError as error:
        done([at], error)
    else:
        done([at], None)


def _key(obj: Object) -> tuple[type[Object], str]:
    return type(obj), obj.key


def _uid(obj: Object) -> str:
    return obj.metadata.uid


def _now() -> float:
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return 0.0
