"""Try pods without binding them, if the outcome is certain to be the same.

Binding a pod in a simulation succeeds unless a plugin acts on it at Reserve or later. If none does, the decision alone gives
the outcome, and the pod only has to be counted on its node for the pods that follow.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from moorage.api.core import Pod
from moorage.cycle.cycle import Cycle
from moorage.cycle.decision import Decision
from moorage.cycle.search_scope import SearchScope
from moorage.engine.scheduler import Scheduler
from moorage.framework.profile import Profile
from moorage.laboratory.eviction_bounds import rows_to_preempt, without_vain_nomination
from moorage.laboratory.placements import PodPlacement
from moorage.laboratory.recorded_simulation import RecordedSimulation
from moorage.plugins.default_preemption import DefaultPreemption
from moorage.plugins.dynamic_resources import DynamicResources
from moorage.queue import QueuedPod, QueuePlace
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo

__all__ = ["OnlyNode", "quick_decision", "quick_placements", "rests"]

_FILTERED = SearchScope(post_filter=False)

#: The points at which a plugin can fail the pod after the decision, and those at which it only observes the pod.
_AFTER = ("reserve", "permit", "preBind", "postBind")


def quick_placements(
    simulation: RecordedSimulation, pods: Sequence[Pod], scope: SearchScope, *, stop_on_failure: bool
) -> list[PodPlacement] | None:
    """Return the outcome of an attempt for each pod; None if only real attempts give it. Nothing changes."""
    scheduler = simulation.scheduler
    if scheduler.cycle.extenders or scheduler.cluster.groups is not None:
        return None
    placements: list[PodPlacement] = []
    assumed: list[str] = []
    start = scheduler.cycle.order.start
    try:
        for pod in pods:
            placed = _quick_placement(scheduler, PodInfo(pod), scope, None if pod is pods[-1] else assumed)
            if placed is None:
                return None
            placements.append(placed)
            if stop_on_failure and not placed:
                break
    finally:
        for uid in reversed(assumed):
            scheduler.cluster.forget(uid)
        scheduler.cycle.order.start = start
    return placements


class OnlyNode(NamedTuple):
    """The only node that a pod can be nominated to."""

    name: str


def quick_decision(
    simulation: SimulatedCluster, pod: Pod, profile: Profile, cycle: Cycle | None = None, changed: Collection[int] | None = None
) -> Decision | OnlyNode | None:
    """Return the decision on a pod if an attempt is certain to end with it; None if only a real attempt gives the outcome.

    ``OnlyNode``: an attempt limited to this node has the same outcome.

    ``cycle`` caches its verdicts on the pod for the next decision on it; None: nothing is cached.
    ``changed``: the rows that changed since an attempt found no node, if that bounds preemption (``eviction_bounds``)
    """
    scheduler = simulation.scheduler
    queued = scheduler.queue.get(pod.metadata.uid)
    if scheduler.cycle.extenders or scheduler.cluster.groups is not None or not _may_be_tried(scheduler, pod, queued):
        return None
    info = PodInfo(pod)
    if cycle is not None:
        rows = rows_to_preempt(scheduler, cycle, info, profile, changed)
        if rows is not None and len(rows) <= 1:
            table = scheduler.cluster.table
            return OnlyNode(table.nodes[next(iter(rows))].name) if rows else Decision(info)
        info = without_vain_nomination(scheduler, cycle, info, profile)
    cycle = cycle or Cycle(scheduler.cycle.seed, scheduler.cycle.percentage_of_nodes_to_score, by_class=False)
    decision = cycle.decide(profile, info, scheduler.snapshot, scheduler.queue.nominated, _FILTERED)
    if decision.node is not None:
        return decision if rests(profile, decision) else None
    return None if _may_preempt(profile, decision, scheduler) else decision


def _may_preempt(profile: Profile, decision: Decision, scheduler: Scheduler) -> bool:
    """Return False if PostFilter is certain to find no node for a pod that Filter refused everywhere."""
    if decision.error is not None or decision.verdicts is None:
        return False
    idle = decision.found.skipped if decision.found is not None else frozenset()
    for step in profile.at("postFilter"):
        if isinstance(step.plugin, DefaultPreemption):
            if step.plugin.may_help(decision.pod, decision.verdicts, scheduler.snapshot):
                return True
        elif not isinstance(step.plugin, DynamicResources) or step.name not in idle:
            return True
    return False


def _may_be_tried(scheduler: Scheduler, pod: Pod, queued: QueuedPod | None) -> bool:
    if queued is None or queued.gated or queued.pod.terminating or queued.place is QueuePlace.IN_FLIGHT:
        return False
    return scheduler.cluster.node_of(pod.metadata.uid) is None


def _quick_placement(scheduler: Scheduler, pod: PodInfo, scope: SearchScope, assumed: list[str] | None) -> PodPlacement | None:
    """Decide for one pod, and count it on its node. ``assumed`` collects UIDs of counted pods; None: count no pod."""
    profile = scheduler.profiles.get(pod.spec.scheduler_name)
    if profile is None or not _may_be_tried(scheduler, pod.pod, scheduler.queue.get(pod.uid)):
        return None
    decision = scheduler.cycle.decide(profile, pod, scheduler.snapshot, scheduler.queue.nominated, scope)
    if decision.node is None:
        return _failure(decision, scheduler) if assumed is None else None
    if not rests(profile, decision):
        return None
    if assumed is not None:
        if scheduler.queue.nomination(pod.uid):
            return None
        scheduler.cluster.assume(pod, decision.node)
        assumed.append(pod.uid)
    return PodPlacement(pod.key, decision.node, feasible=decision.feasible, evaluated=decision.evaluated)


def rests(profile: Profile, decision: Decision) -> bool:
    """Return True if no plugin acts on the pod after the decision."""
    busy = decision.found is not None and not profile.resting.isdisjoint(decision.found.states)
    return not busy and not any(profile.restless_at(point) for point in _AFTER)


def _failure(decision: Decision, scheduler: Scheduler) -> PodPlacement | None:
    after = decision.post_filter
    if after is None or decision.error is not None:
        return None
    nominated = scheduler.queue.nomination(decision.pod.uid) if after.nominated is None else after.nominated
    victims = tuple(victim.key for victim in after.victims)
    return PodPlacement(decision.pod.key, None, decision.message, nominated or "", victims, evaluated=decision.evaluated)
