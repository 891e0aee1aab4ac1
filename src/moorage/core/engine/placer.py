"""The placer: the one place where the engine counts a pod on a node before the cluster says so, and takes it off again.

An attempt, the fast lane and runs of copies decide; each then calls a method here. For the lane and copies it also takes the
pod out of the queue, advances the order of nodes, numbers the bind, and tells the queue of the event; the pod of an attempt has
left the queue, and its search has advanced the order. A driver on a cluster assumes a pod, and the watch confirms it
(``EventHandlers``); a simulation may do both at once.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from moorage.api.core import Pod
from moorage.core.binding.binding import Binding
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision, Quick
from moorage.core.cycle.sheets import Sheets
from moorage.core.engine.outbox import Outbox
from moorage.core.queue import ASSIGNED_POD_ADD, SchedulingQueue
from moorage.core.queue.queued_pod import QueuedPod
from moorage.framework.profile import Profile
from moorage.state.cluster import ClusterState, PodCopies
from moorage.state.pod_info import PodInfo


class _Shared(Protocol):
    """What a placement changes of ``EngineState``."""

    cluster: ClusterState
    queue: SchedulingQueue
    outbox: Outbox
    now: float
    revision: int
    facts: int


class Found(Struct):
    """The next pod of the queue and the decision for it. The pod is still in the queue. ``among``: see ``Quick``."""

    queued: QueuedPod
    pod: PodInfo
    decision: Decision
    profile: Profile
    row: int
    node: str
    cycle: Cycle
    path: Sheets
    among: int


class Placer:
    """The writer of placements of one scheduler."""

    def __init__(self, state: _Shared) -> None:
        self._state = state

    def assume(self, found: Found) -> None:
        """Take the pod out of the queue and count it on its node."""
        self._state.queue.take_first(found.queued)
        self._state.cluster.assume_on(found.pod, found.node, found.row)
        self._moved_on(found.cycle, found.among)

    def place(self, found: Found, bound: Pod) -> None:
        """Assume the pod and confirm it as bound at once, for a driver that reports nothing in between."""
        info = found.pod.bound(bound)
        self._state.queue.drop_first(info.uid)
        self._state.cluster.place_on(info, found.node, found.row)
        self._moved_on(found.cycle, found.among)
        self._bound(info)

    def confirm(self, found: Found, bound: Pod) -> None:
        """Record that an assumed pod is bound. It replaces the driver's two facts: the bound pod and the end of the bind."""
        info = found.pod.bound(bound)
        self._state.cluster.confirm(info, found.row)
        self._bound(info)

    def assume_copy(self, queued: QueuedPod, quick: Quick, copies: PodCopies, cycle: Cycle) -> str:
        """Do the same as ``assume`` for a copy; return its node."""
        node = self._state.cluster.table.nodes[quick.row].name
        self._state.queue.take_first(queued)
        copies.place(queued.pod, node, quick.row)
        self._state.cluster.assume_placed(queued.pod.uid, node)
        self._moved_on(cycle, quick.among)
        return node

    def place_copy(self, info: PodInfo, quick: Quick, copies: PodCopies, cycle: Cycle) -> None:
        """Do the same as ``place`` for a copy; ``info`` is its bound version."""
        self._state.queue.drop_first(info.uid)
        copies.place(info, self._state.cluster.table.nodes[quick.row].name, quick.row)
        self._moved_on(cycle, quick.among)
        self._bound(info)

    def assume_popped(self, binding: Binding) -> None:
        """Count the pod of a binding on its node. The search has advanced the order of nodes already.

        Raises  StateError if a pod of that UID is placed or assumed already
        """
        state = self._state
        state.cluster.assume(binding.assumed, binding.node)
        state.queue.end_nomination(binding.queued.pod.uid)
        state.revision += 1

    def undo(self, uid: str) -> PodInfo | None:
        """Forget an assumed pod. Return it, or None if it was confirmed or deleted meanwhile."""
        self._state.revision += 1
        return self._state.cluster.forget(uid)

    def _moved_on(self, cycle: Cycle, among: int) -> None:
        """The next search starts where this one ended, and later attempts see another cluster."""
        cycle.order.advance(among, len(self._state.cluster.table))
        self._state.revision += 1

    def _bound(self, info: PodInfo) -> None:
        """Number the bind, and tell the queue of the pod that has a node now."""
        state = self._state
        state.outbox.tickets += 1
        state.revision += 1
        state.facts += 1
        if state.queue.heeds_events:
            state.queue.event(ASSIGNED_POD_ADD, None, info, state.now)
