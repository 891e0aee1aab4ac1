"""Confirm binds, evictions and writes that the API server accepted but no watch has delivered, by reading the object.

A successful bind counts as done, and its pod stays assumed until a watch confirms it. If the API server restarts without its
last writes, no watch ever does: its lists show no change. So ``Confirmer`` reads a pod that is still assumed after some
seconds; if it is on no node, it counts as a new pod. Likewise, if a victim is not being deleted, its preemptor is tried again;
and if another object is older than the answer to our write, that answer is dropped.

The bind of an extender is not checked, as in kube-scheduler, since the extender may bind later than it replies.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from moorage.api.core import Pod
from moorage.api.meta import Object, is_older
from moorage.core.engine.facts import Gone, Seen, WriteLost
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import ClusterError
from moorage.live.runtime.inbox import Inbox
from moorage.live.runtime.ports import Clock, ClusterWriter
from moorage.state.pod_info import PodInfo

#: A watch delivers a bind within a second; a silent watch is restarted after forty seconds.
_FIRST_S, _LONGEST_S = 10.0, 60.0
#: The pause between two reads, so that a slow watch causes few requests.
_BETWEEN_S = 0.05
#: The shortest wait before the next reads, so that objects that are due at about the same time are read together.
_LEAST_S = 0.1
_LOST = "the API server acknowledged it and then lost it; retrying"


@dataclass(slots=True, eq=False)
class _Taken:
    """A bind to ``node``, or, with a ``preemptor``, an eviction that the API server accepted."""

    pod: PodInfo
    node: str
    preemptor: PodInfo | None
    pause_s: float = _FIRST_S

    @property
    def key(self) -> tuple[str, bool]:
        return self.pod.uid, self.preemptor is not None

    def is_as_expected(self, found: Pod | None) -> bool:
        if found is None or found.uid != self.pod.uid:
            return self.preemptor is not None
        return found.spec.node_name == self.node if self.preemptor is None else bool(found.metadata.deletion_timestamp)


@dataclass(slots=True, eq=False)
class _Answered:
    """A write that the API server answered with ``obj``."""

    obj: Object
    pause_s: float = _FIRST_S

    @property
    def key(self) -> tuple[str, bool]:
        return f"{type(self.obj).__name__} {self.obj.key}", False

    def is_as_expected(self, found: Object | None) -> bool:
        return found is not None and not is_older(_version(found), _version(self.obj))


class Confirmer:
    """Reads objects whose change no watch has delivered. It puts lost binds and writes into the inbox, and retries the
    preemptors of lost evictions. ``report`` gets a line for each lost change.
    """

    def __init__(
        self, cluster: ClusterWriter, inbox: Inbox, clock: Clock, scheduler: Scheduler, report: Callable[[str], None]
    ) -> None:
        self._cluster, self._inbox, self._clock = cluster, inbox, clock
        self._scheduler, self._report = scheduler, report
        #: The last change of each pod or object; and a heap of all of them by due time.
        self._taken: dict[tuple[str, bool], _Taken | _Answered] = {}
        self._due: list[tuple[float, int, _Taken | _Answered]] = []
        #: Binds that were accepted together, with their due time, oldest first. Few are still unconfirmed by then.
        self._bound: deque[tuple[float, Sequence[tuple[PodInfo, str]]]] = deque()
        self._serial = 0
        self._news = asyncio.Event()

    def bound(self, binds: Sequence[tuple[PodInfo, str]]) -> None:
        """Record binds that the API server has just accepted."""
        if self._taken:
            for pod, _ in binds:
                self._taken.pop((pod.uid, False), None)
        self._bound.append((self._clock() + _FIRST_S, binds))
        self._news.set()

    def evicted(self, victim: PodInfo, preemptor: PodInfo) -> None:
        """Record an eviction that the API server has just accepted."""
        self._look_after(_Taken(victim, "", preemptor))

    def is_evicted(self, uid: str) -> bool:
        """Return whether the API server has accepted an eviction of a pod that no watch has delivered yet."""
        taken = self._taken.get((uid, True))
        return taken is not None and self._is_open(taken)

    def wrote(self, obj: Object) -> None:
        """Record an object that the API server has just returned for a write."""
        self._look_after(_Answered(obj))

    def _look_after(self, taken: _Taken | _Answered, pause_s: float | None = None) -> None:
        self._serial += 1
        self._taken[taken.key] = taken
        due = self._clock() + (taken.pause_s if pause_s is None else pause_s)
        heapq.heappush(self._due, (due, self._serial, taken))
        self._news.set()

    async def run(self) -> None:
        """Confirm the recorded changes until cancelled."""
        while True:
            now = self._clock()
            self._look_after_binds(now)
            times = [waiting[0][0] for waiting in (self._due, self._bound) if waiting]
            if not times:
                self._news.clear()
                await self._news.wait()
                continue
            wait_s = min(times) - now
            if wait_s > 0:
                await asyncio.sleep(min(max(wait_s, _LEAST_S), _FIRST_S))
                continue
            taken = heapq.heappop(self._due)[2]
            if self._is_open(taken):
                await self._ask(taken)
                await asyncio.sleep(_BETWEEN_S)
            elif self._taken.get(taken.key) is taken:
                del self._taken[taken.key]

    def _look_after_binds(self, now: float) -> None:
        """Look after the binds that are due and that no watch has delivered."""
        while self._bound and self._bound[0][0] <= now:
            for pod, node in self._bound.popleft()[1]:
                if self._is_bound_unconfirmed(pod.uid) and self._scheduler.cluster.node_of(pod.uid) == node:
                    self._look_after(_Taken(pod, node, None), 0.0)

    def _is_open(self, taken: _Taken | _Answered) -> bool:
        if self._taken.get(taken.key) is not taken:
            return False
        if isinstance(taken, _Answered):
            return self._scheduler.is_unconfirmed(taken.obj)
        if taken.preemptor is None:
            return self._is_bound_unconfirmed(taken.pod.uid)
        victim = self._scheduler.cluster.pod(taken.pod.uid)
        return victim is not None and not victim.terminating

    def _is_bound_unconfirmed(self, uid: str) -> bool:
        """Return whether a pod is bound, and still only assumed because no watch has delivered the bind."""
        return self._scheduler.cluster.is_assumed(uid) and self._scheduler.binding_of(uid) is None

    async def _ask(self, taken: _Taken | _Answered) -> None:
        """Read the object. If the change is not lost, or the read fails, check again later unless a watch has confirmed it."""
        found: Any = None
        try:
            if isinstance(taken, _Answered):
                found = await self._cluster.read(taken.obj)
            else:
                found = await self._cluster.read_pod(taken.pod.namespace, taken.pod.name)
            later = taken.is_as_expected(found)
        except ClusterError:
            later = True
        if not self._is_open(taken):
            if self._taken.get(taken.key) is taken:
                del self._taken[taken.key]
        elif later:
            self._look_after(replace(taken, pause_s=min(taken.pause_s * 2, _LONGEST_S)))
        else:
            del self._taken[taken.key]
            self._report_lost(taken, found)

    def _report_lost(self, taken: _Taken | _Answered, found: Any) -> None:
        if isinstance(taken, _Answered):
            self._report(f"{taken.key[0]}: the API server acknowledged a write and then lost it")
            self._inbox.put_now(WriteLost(taken.obj, found))
            return
        pod = taken.pod
        if taken.preemptor is not None:
            self._report(f"evict {pod.key} for {taken.preemptor.key}: {_LOST}")
            self._scheduler.activate([taken.preemptor])
            self._inbox.poke()
            return
        self._report(f"bind {pod.key} to {taken.node}: {_LOST}")
        self._inbox.put_now(Gone(pod.pod))
        if found is not None and found.uid == pod.uid:
            self._inbox.put_now(Seen(found))


def _version(obj: Object) -> str:
    return obj.metadata.resource_version
