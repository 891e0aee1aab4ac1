"""Binds, evictions and writes that the API server took and that no watch tells of: after a while the object itself is read.

A bind that was answered well counts as done, and its pod keeps its room until a watch confirms it. A server that dies and
comes back without its last writes never will: in its lists nothing has changed, as only we knew of the bind. So a pod that is
still only assumed seconds later is read, and if it is on no node it counts as a new one. It is the same with victims: if one
that was asked to go is there as ever, the pod that waits for its place tries again; and with other objects: if one is older
than the answer to our write, the answer counts no longer.

An extender that says it has bound is believed, as by kube-scheduler: it may take its time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace

from moorage.api.core import Pod
from moorage.api.meta import Value, is_older
from moorage.engine.facts import Gone, Seen, WriteLost
from moorage.errors import ClusterError
from moorage.runtime.inbox import Inbox
from moorage.runtime.ports import Clock, Cluster
from moorage.state.cluster import object_key
from moorage.state.pod_info import PodInfo

__all__ = ["Confirmer"]

#: Watches tell of a bind within a second; a silent one is made anew after forty.
_FIRST_S, _LONGEST_S = 10.0, 60.0
#: Between two reads, so that a watch that lags costs few requests.
_BETWEEN_S = 0.05
#: Nothing is looked at sooner, so that what comes in bursts is looked at in bursts.
_LEAST_S = 0.1


@dataclass(slots=True, eq=False)
class _Taken:
    """A bind to ``node``, or, with a ``preemptor``, an eviction that the API server took."""

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

    obj: Value
    pause_s: float = _FIRST_S

    @property
    def key(self) -> tuple[str, bool]:
        return f"{type(self.obj).__name__} {object_key(self.obj)}", False

    def is_as_expected(self, found: Value | None) -> bool:
        return found is not None and not is_older(_version(found), _version(self.obj))


class Confirmer:
    """Reads what no watch has told of; what it finds out goes to the inbox, or to ``again`` with who has to try again.

    ``assumed`` says of a pod that was bound whether the engine still only assumes so, ``stays`` of one that was evicted whether
    the engine knows nothing of its end, both by UID; ``unheard`` of an answer whether no watch has told the engine of it.
    """

    def __init__(
        self,
        cluster: Cluster,
        inbox: Inbox,
        clock: Clock,
        *,
        assumed: Callable[[str], bool],
        stays: Callable[[str], bool],
        unheard: Callable[[Value], bool],
        again: Callable[[PodInfo], None],
        report: Callable[[str], None],
    ) -> None:
        self._cluster, self._inbox, self._clock, self._report = cluster, inbox, clock, report
        self._assumed, self._stays, self._unheard, self._again = assumed, stays, unheard, again
        #: The last of each pod or object; and all of them by when they are due, the next to be looked at first.
        self._taken: dict[tuple[str, bool], _Taken | _Answered] = {}
        self._due: list[tuple[float, int, _Taken | _Answered]] = []
        self._serial = 0
        self._news = asyncio.Event()

    def bound(self, pod: PodInfo, node: str) -> None:
        """Take note that the API server has just said that a pod is on its node now."""
        self._look_after(_Taken(pod, node, None))

    def evicted(self, victim: PodInfo, preemptor: PodInfo) -> None:
        """Take note that the API server has just said that a victim goes."""
        self._look_after(_Taken(victim, "", preemptor))

    def wrote(self, obj: Value) -> None:
        """Take note that the API server has just answered a write with this."""
        self._look_after(_Answered(obj))

    def _look_after(self, taken: _Taken | _Answered) -> None:
        self._serial += 1
        self._taken[taken.key] = taken
        heapq.heappush(self._due, (self._clock() + taken.pause_s, self._serial, taken))
        self._news.set()

    async def run(self) -> None:
        """Look after all of it until cancelled."""
        while True:
            while not self._due:
                self._news.clear()
                await self._news.wait()
            wait_s = self._due[0][0] - self._clock()
            if wait_s > 0:
                await asyncio.sleep(min(max(wait_s, _LEAST_S), _FIRST_S))
                continue
            taken = heapq.heappop(self._due)[2]
            if self._is_open(taken):
                await self._ask(taken)
                await asyncio.sleep(_BETWEEN_S)
            elif self._taken.get(taken.key) is taken:
                del self._taken[taken.key]

    def _is_open(self, taken: _Taken | _Answered) -> bool:
        if self._taken.get(taken.key) is not taken:
            return False
        if isinstance(taken, _Answered):
            return self._unheard(taken.obj)
        unheard = self._assumed if taken.preemptor is None else self._stays
        return unheard(taken.pod.uid)

    async def _ask(self, taken: _Taken | _Answered) -> None:
        if isinstance(taken, _Answered):
            await self._ask_for_object(taken)
        else:
            await self._ask_for_pod(taken)

    async def _ask_for_object(self, taken: _Answered) -> None:
        found = None
        try:
            found = await self._cluster.read(taken.obj)
            later = taken.is_as_expected(found)
        except ClusterError:
            later = True
        if self._is_settled(taken, later=later):
            self._report(f"{taken.key[0]}: the API server took a write and does not know of it any more")
            self._inbox.put_now(WriteLost(taken.obj, found))

    def _is_settled(self, taken: _Taken | _Answered, *, later: bool) -> bool:
        """Say of what was read whether it was lost. Where that is still open it is looked at ``later`` again."""
        if not self._is_open(taken):
            return False
        if later:
            self._look_after(replace(taken, pause_s=min(taken.pause_s * 2, _LONGEST_S)))
            return False
        del self._taken[taken.key]
        return True

    async def _ask_for_pod(self, taken: _Taken) -> None:
        pod = taken.pod
        found = None
        try:
            found = await self._cluster.read_pod(pod.namespace, pod.name)
            later = taken.is_as_expected(found)
        except ClusterError:
            later = True
        if not self._is_settled(taken, later=later):
            return
        if taken.preemptor is not None:
            self._report(f"evict {pod.key} for {taken.preemptor.key}: the API server took it and does not know of it any more")
            self._again(taken.preemptor)
            return
        self._report(f"bind {pod.key} to {taken.node}: the API server took it and does not know of it any more")
        self._inbox.put_now(Gone(pod.pod))
        if found is not None and found.uid == pod.uid:
            self._inbox.put_now(Seen(found))


def _version(obj: Value) -> str:
    version: str = getattr(obj, "metadata").resource_version  # noqa: B009 (every kind that is written has one)
    return version
