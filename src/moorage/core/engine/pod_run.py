"""A run: copies of one pod that follow each other in the queue.

What is the same for all of them is checked and looked up once, when the run begins. The run ends as soon as anything unusual
happens; the fast lane then looks at the next pod from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.core import Pod
from moorage.core.binding.binding import Binding
from moorage.core.cycle.decision import Decision, Quick
from moorage.core.cycle.sheet import ShapeRoute
from moorage.core.engine.engine_state import EngineState
from moorage.core.engine.placer import Found
from moorage.core.queue.queued_pod import QueuedPod
from moorage.errors import RAISED
from moorage.framework.post_filter import PreFiltered
from moorage.state.pod_info import PodInfo


def is_copy(pod: PodInfo, other: PodInfo) -> bool:
    """Return True for a pod that has the shape of another, which is not being deleted, and shares its spec and status."""
    if pod.spec is not other.spec or pod.status is not other.status or pod.namespace != other.namespace:
        return False
    meta, its = pod.pod.metadata, other.pod.metadata
    return (
        meta.deletion_timestamp is None
        and (meta.labels is its.labels or meta.labels == its.labels)
        and meta.owner_references == its.owner_references
    )


class PodRun:
    """Places the copies of a pod that the fast lane has placed.

    ``revision`` and ``facts`` are those of the state after the last placement. The driver ends the run once they differ, and
    when ``cycle`` is no longer that of the scheduler.
    """

    def __init__(self, state: EngineState, first: Found, route: ShapeRoute) -> None:
        """``route``: see ``Sheets.decide_copy``."""
        self._state = state
        self._first = first.pod
        self.cycle, self._path = first.cycle, first.path
        self.revision, self.facts = state.revision, state.facts
        self._profile = first.profile
        self._resting = first.profile.resting
        self._route = route
        self._copies = state.cluster.copies_of(first.pod)
        self._nodes = state.cluster.table.nodes
        self._snapshot = state.cluster.snapshot
        #: The last results of PreFilter after which no plugin has work.
        self._quiet: PreFiltered | None = None

    def place_next(self, now: float, bind: Callable[[Pod, str], Pod | None]) -> Decision | None:
        """Decide on the next pod of the queue, and place it as ``FastLane.place`` does; None ends the run.

        ``bind`` is called with the pod and its node, and returns the bound version; None ends the run.
        """
        found = self.find_next(now)
        if found is None:
            return None
        state, pod, quick = self._state, found[0].pod, found[1]
        node = self._nodes[quick.row].name
        bound = bind(pod.pod, node)
        if bound is None:
            return None
        state.placer.place_copy(self._route.known.bound(pod, bound), quick, self._copies, self.cycle)
        self.revision, self.facts = state.revision, state.facts
        return quick.decision(pod, node, len(self._nodes))

    def find_next(self, now: float) -> tuple[QueuedPod, Quick] | None:
        """Decide on the next pod of the queue for ``begin_bind``; None ends the run."""
        state = self._state
        state.now = now
        queued = state.queue.first_if_quiet(now)
        if queued is None:
            return None
        pod = queued.pod
        if not is_copy(pod, self._first) or pod.uid in state.bindings.by_uid or not self._copies.may_place(pod.uid):
            return None
        quick = self._decide(pod)
        return None if quick is None else (queued, quick)

    def begin_bind(self, queued: QueuedPod, quick: Quick) -> Binding:
        """Assume the pod that ``find_next`` has returned, and begin its bind as ``FastLane.begin_bind`` does."""
        node = self._state.placer.assume_copy(queued, quick, self._copies, self.cycle)
        decision = quick.decision(queued.pod, node, len(self._nodes))
        return self._state.order_usual_bind(queued, self._profile, decision, node)

    def _decide(self, pod: PodInfo) -> Quick | None:
        """Return the decision; None if the pod needs an attempt, or a plugin has work after it."""
        try:
            quick = self._path.decide_copy(self._route, pod, self._snapshot, self.cycle.seed)
        except RAISED:  # the attempt reports it
            return None
        if quick is not None and quick.found is not self._quiet:
            if not self._profile.is_at_rest(self._resting.intersection(quick.found.states), pod, self._snapshot):
                return None
            self._quiet = quick.found
        return quick
