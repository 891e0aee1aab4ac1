"""Try pods without binding them, where the outcome is certain to be the same.

Binding a pod in a simulation succeeds unless a plugin has a say from Reserve on. Where none has, the decision alone tells the
outcome, and the pod only has to be counted on its node for the pods that follow.
"""

from __future__ import annotations

from collections.abc import Sequence

from moorage.api.core import Pod
from moorage.cycle.decision import Decision
from moorage.cycle.search_scope import SearchScope
from moorage.engine.scheduler import Scheduler
from moorage.framework.profile import Profile
from moorage.laboratory.placements import PodPlacement
from moorage.laboratory.recorded_simulation import RecordedSimulation
from moorage.state.pod_info import PodInfo

__all__ = ["quick_placements", "rests"]

#: The points at which a plugin has a say after the decision, and those at which it learns of the pod.
_AFTER = ("reserve", "permit", "preBind", "postBind")


def quick_placements(
    simulation: RecordedSimulation, pods: Sequence[Pod], scope: SearchScope, *, stop_on_failure: bool
) -> list[PodPlacement] | None:
    """Return what an attempt for each pod would come to; None if only the attempts can tell. Nothing changes."""
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


def _quick_placement(scheduler: Scheduler, pod: PodInfo, scope: SearchScope, assumed: list[str] | None) -> PodPlacement | None:
    """Decide for one pod. ``assumed`` gets its UID if it is counted on its node; None: it is the last one."""
    queued, profile = scheduler.queue.get(pod.uid), scheduler.profiles.get(pod.spec.scheduler_name)
    if queued is None or queued.gated or profile is None or pod.terminating or queued.place.value == "in-flight":
        return None
    if scheduler.cluster.node_of(pod.uid) is not None:
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
    """Return True if no plugin has anything to do for the pod after the decision."""
    busy = decision.found is not None and not profile.resting.isdisjoint(decision.found.states)
    return not busy and not any(profile.restless_at(point) for point in _AFTER)


def _failure(decision: Decision, scheduler: Scheduler) -> PodPlacement | None:
    after = decision.post_filter
    if after is None or decision.error is not None:
        return None
    nominated = scheduler.queue.nomination(decision.pod.uid) if after.nominated is None else after.nominated
    victims = tuple(victim.key for victim in after.victims)
    return PodPlacement(decision.pod.key, None, decision.message, nominated or "", victims, evaluated=decision.evaluated)
