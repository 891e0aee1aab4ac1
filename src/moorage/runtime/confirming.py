"""Binds and evictions that the API server took and that no watch tells of: after a while the pod itself is asked.

A bind that was answered well counts as done, and its pod keeps its room until a watch confirms it. A server that dies and
comes back without its last writes never will: for its lists nothing has changed, as nobody was told of the bind but us. So a
pod that is still only assumed seconds later is read, and if it is on no node it comes anew. So with victims: if one that was
asked to go is there as ever, who waits for its place tries again.

An extender that says it has bound is believed, as by kube-scheduler: it may take its time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace

from moorage.api.core import Pod
from moorage.engine.facts import Gone, Seen
from moorage.errors import ClusterError
from moorage.runtime.inbox import Inbox
from moorage.runtime.ports import Clock, Cluster
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


class Confirmer:
    """Asks after what no watch has told of; what it finds out goes to the inbox, or to ``again`` with who has to try again.

    ``assumed`` says of a pod that was bound whether the engine still only assumes so, ``stays`` of one that was evicted whether
    the engine knows nothing of its end; both by UID.
    """

    def __init__(
        self,
        cluster: Cluster,
        inbox: Inbox,
        clock: Clock,
        *,
        assumed: Callable[[str], bool],
        stays: Callable[[str], bool],
        again: Callable[[PodInfo], None],
        report: Callable[[str], None],
    ) -> None:
        self._cluster, self._inbox, self._clock, self._report = cluster, inbox, clock, report
        self._assumed, self._stays, self._again = assumed, stays, again
        #: The last of each pod; and all of them by when they are due, the next to be looked at first.
        self._taken: dict[tuple[str, bool], _Taken] = {}
        self._due: list[tuple[float, int, _Taken]] = []
        self._serial = 0
        self._news = asyncio.Event()

    def bound(self, pod: PodInfo, node: str) -> None:
        """Take note that the API server has just said that a pod is on its node now."""
        self._look_after(_Taken(pod, node, None))

    def evicted(self, victim: PodInfo, preemptor: PodInfo) -> None:
        """Take note that the API server has just said that a victim goes."""
        self._look_after(_Taken(victim, "", preemptor))

    def _look_after(self, taken: _Taken) -> None:
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

    def _is_open(self, taken: _Taken) -> bool:
        unheard = self._assumed if taken.preemptor is None else self._stays
        return self._taken.get(taken.key) is taken and unheard(taken.pod.uid)

    async def _ask(self, taken: _Taken) -> None:
        pod = taken.pod
        found = None
        try:
            found = await self._cluster.read_pod(pod.namespace, pod.name)
            later = taken.is_as_expected(found)
        except ClusterError:
            later = True
        if not self._is_open(taken):
            return
        if later:
            self._look_after(replace(taken, pause_s=min(taken.pause_s * 2, _LONGEST_S)))
            return
        del self._taken[taken.key]
        if taken.preemptor is not None:
            self._report(f"evict {pod.key} for {taken.preemptor.key}: the API server took it and does not know of it any more")
            self._again(taken.preemptor)
            return
        self._report(f"bind {pod.key} to {taken.node}: the API server took it and does not know of it any more")
        self._inbox.put_now(Gone(pod.pod))
        if found is not None and found.uid == pod.uid:
            self._inbox.put_now(Seen(found))
