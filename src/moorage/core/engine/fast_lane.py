"""The fast lane: pods that need nothing unusual go from the queue to their node in one step.

Most pods are alike: it is their first attempt, no other pod is in backoff, in flight or held, and no plugin has work after the
decision but one that says ``binds_alone``, as DefaultBinder does. For such a pod the lane does what an attempt and its binding
cycle do, without the objects that carry a pod from one stage to the next. ``find`` returns None for any other pod, and the
caller makes an attempt; decisions, states and reports are the same with and without the lane.
"""

from __future__ import annotations

from types import MappingProxyType

from moorage.core.binding.binding import Binding
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.engine_state import EngineState
from moorage.core.engine.facts import Phase, Work
from moorage.core.engine.outbox import Decided
from moorage.core.engine.placer import Found
from moorage.core.engine.pod_run import PodRun, is_copy
from moorage.core.preemption.what_if import Nominated
from moorage.core.queue import QueuedPod, SchedulingQueue
from moorage.errors import RAISED
from moorage.framework.effects import BindPod
from moorage.framework.profile import Profile, binds_alone
from moorage.state.cluster import ClusterState

#: Extension points of the binding cycle, except bind: a pod may take the lane only if no plugin has work there.
_QUIET_POINTS = ("reserve", "permit", "preBind", "postBind")
_NONE: Nominated = MappingProxyType({})


class FastLane:
    """The fast lane of one scheduler. While ``is_open`` is False, every pod gets an attempt of its own."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        # A driver that records the changes of the cluster and the queue must see every one of them.
        self.is_open = type(state.cluster) is ClusterState and type(state.queue) is SchedulingQueue
        self._suits: dict[str, Profile | None] = {}

    def find(self, cycle: Cycle, now: float, before: Found | None = None) -> Found | PodRun | None:
        """Decide on the next pod of the queue; None if it needs an attempt. Changes nothing but caches and the clock.

        ``before``: the pod that this lane placed last, if nothing else has happened since. If the next one is a copy of it,
        return the run that begins with that one.
        """
        queue = self._state.queue
        if not self.is_open:
            return None
        queued = queue.first_if_quiet(now)
        if queued is None:
            nominated = queue.nominated
            queued = queue.first_if_quiet(now, beside_nominated=True) if nominated else None
            return None if queued is None else self._decide(queued, cycle, nominated)
        copies = before is not None and not before.profile.outside
        if copies and before is not None and queued.pod.spec is before.pod.spec and is_copy(queued.pod, before.pod):
            route = before.path.route_of(before.pod, self._state.cluster.snapshot)
            if route is not None and before.pod.volumes is None:
                return PodRun(self._state, before, route)
        return self._decide(queued, cycle, _NONE)

    def _decide(self, queued: QueuedPod, cycle: Cycle, nominated: Nominated) -> Found | None:
        """Decide on a pod of the queue; None if it needs an attempt."""
        state, cluster = self._state, self._state.cluster
        if state.bindings.held or not cluster.table.nodes:
            return None
        pod, spec = queued.pod, queued.pod.spec
        profile = self._suits.get(spec.scheduler_name) or self._profile_of(spec.scheduler_name)
        path = None if profile is None else cycle.at_once(profile)
        if profile is None or path is None:
            return None
        if pod.status.nominated_node_name or pod.uid in state.bindings.by_uid or pod.uid in cluster.uids:
            return None
        if spec.scheduling_group is not None or spec.resource_claims or pod.pod.metadata.deletion_timestamp is not None:
            return None
        try:
            if spec.volumes and pod.volumes is not None and not profile.is_at_rest(profile.rests, pod, cluster.snapshot):
                return None
            quick = path.decide_known(pod, cluster.snapshot, cycle.seed, nominated)
            pod.needs  # noqa: B018 (raises here, before anything is changed)
            if quick is None or not profile.is_at_rest(profile.resting.intersection(quick.found.states), pod, cluster.snapshot):
                return None
        except RAISED:  # the attempt reports it
            return None
        nodes = cluster.table.nodes
        node = nodes[quick.row].name
        decision = quick.decision(pod, node, len(nodes))
        return Found(queued, pod, decision, profile, quick.row, node, cycle, path, quick.among)

    def _profile_of(self, name: str) -> Profile | None:
        """Return the profile of a scheduler name if all its pods may take the lane."""
        if name not in self._suits:
            profile = self._state.profiles[name]
            self._suits[name] = profile if _suits(profile) else None
        return self._suits[name]

    # -- what follows from a decision, for a driver on a cluster -----------------------------------------------------------

    def order_bind(self, found: Found) -> Binding:
        """Do the same as ``begin_bind``, report the decision and order the binding, as an attempt does."""
        binding, outbox, pod = self.begin_bind(found), self._state.outbox, found.pod
        outbox.put(Decided(found.decision))
        outbox.put(Work(outbox.tickets, Phase.BIND, pod, found.node, (BindPod(pod, found.node),)))
        return binding

    def begin_bind(self, found: Found) -> Binding:
        """Assume the pod and return its binding, whose ``ticket`` is the bind. The caller reports the decision and binds."""
        self._state.placer.assume(found)
        return self._state.order_usual_bind(found.queued, found.profile, found.decision, found.node)


def _suits(profile: Profile) -> bool:
    binders = profile.at("bind")
    if len(binders) != 1 or not binds_alone(binders[0].plugin, binders[0].call):
        return False
    return not any(profile.restless_at(point) for point in _QUIET_POINTS)
