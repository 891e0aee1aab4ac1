"""Binds that the API server took and that no watch tells of: after a while the pod itself is asked.

A bind that was answered well counts as done, and its pod keeps its room until a watch confirms it. A server that dies and
comes back without its last writes never will: for its lists nothing has changed, as nobody was told of the bind but us. So a
pod that is still only assumed seconds later is read, and if it is on no node it comes anew.

An extender that says it has bound is believed, as by kube-scheduler: it may take its time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(slots=True, eq=False)
class _Bound:
    pod: PodInfo
    node: str
    due: float
    pause_s: float


class Confirmer:
    """``unconfirmed`` says whether the engine still only assumes a pod, by UID, with nothing under way for it."""

    def __init__(
        self, cluster: Cluster, inbox: Inbox, clock: Clock, unconfirmed: Callable[[str], bool], report: Callable[[str], None]
    ) -> None:
        self._cluster, self._inbox, self._clock, self._report = cluster, inbox, clock, report
        self._unconfirmed = unconfirmed
        #: By UID, the last bind of each pod; and all of them, the next to be looked at first.
        self._bound: dict[str, _Bound] = {}
        self._due: list[tuple[float, int, _Bound]] = []
        self._serial = 0
        self._news = asyncio.Event()

    def expect(self, pod: PodInfo, node: str) -> None:
        """Take note that the API server has just said that a pod is on its node now."""
        self._wait_for(_Bound(pod, node, self._clock() + _FIRST_S, _FIRST_S))

    def _wait_for(self, bound: _Bound) -> None:
        self._serial += 1
        self._bound[bound.pod.uid] = bound
        heapq.heappush(self._due, (bound.due, self._serial, bound))
        self._news.set()

    async def run(self) -> None:
        """Look after binds until cancelled."""
        while True:
            while not self._due:
                self._news.clear()
                await self._news.wait()
            wait_s = self._due[0][0] - self._clock()
            if wait_s > 0:
                await asyncio.sleep(min(wait_s, _FIRST_S))
                continue
            bound = heapq.heappop(self._due)[2]
            if self._is_open(bound):
                await self._ask(bound)
                await asyncio.sleep(_BETWEEN_S)
            elif self._bound.get(bound.pod.uid) is bound:
                del self._bound[bound.pod.uid]

    def _is_open(self, bound: _Bound) -> bool:
        return self._bound.get(bound.pod.uid) is bound and self._unconfirmed(bound.pod.uid)

    async def _ask(self, bound: _Bound) -> None:
        pod = bound.pod
        found = None
        try:
            found = await self._cluster.read_pod(pod.namespace, pod.name)
        except ClusterError:
            later = True
        else:
            later = found is not None and found.uid == pod.uid and found.spec.node_name == bound.node
        if not self._is_open(bound):
            return
        if later:
            pause_s = min(bound.pause_s * 2, _LONGEST_S)
            self._wait_for(_Bound(pod, bound.node, self._clock() + pause_s, pause_s))
            return
        del self._bound[pod.uid]
        self._report(f"bind {pod.key} to {bound.node}: the API server took it and does not know of it any more")
        self._inbox.put_now(Gone(pod.pod))
        if found is not None and found.uid == pod.uid:
            self._inbox.put_now(Seen(found))
