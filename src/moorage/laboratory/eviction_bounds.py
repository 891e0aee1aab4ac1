"""Whether preemption can find a node for a pod, by cheap tests: most trials change one node, so no other becomes a candidate.

They answer for a pod whose verdict on a node depends on that node and its pods alone. All other pods need a real attempt.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from msgspec.structs import replace

from moorage.cycle.cycle import Cycle
from moorage.cycle.pod_class import Feasible
from moorage.cycle.what_if import FailedAttempt, OneNode
from moorage.engine.scheduler import Scheduler
from moorage.errors import MoorageError
from moorage.framework.plugin_runner import run_filter
from moorage.framework.profile import Profile
from moorage.framework.verdict_table import Verdicts
from moorage.plugins.default_preemption import DefaultPreemption
from moorage.plugins.dynamic_resources import DynamicResources
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["known_feasible", "may_be_bounded", "rows_to_preempt", "without_vain_nomination"]


def known_feasible(scheduler: Scheduler, cycle: Cycle, pod: PodInfo, profile: Profile) -> Feasible | None:
    """Return the rows that no plugin refuses, by the cached verdicts; None if not known, or other pods are nominated."""
    others = any(one.uid != pod.uid for pods in scheduler.queue.nominated.values() for one in pods)
    if others or cycle.percentage_of_nodes_to_score:
        return None
    return cycle.feasible(profile, pod, scheduler.snapshot)


def without_vain_nomination(scheduler: Scheduler, cycle: Cycle, pod: PodInfo, profile: Profile) -> PodInfo:
    """Return the pod without its nomination if its nominated node refuses it: then it is decided like any other pod."""
    if not pod.status.nominated_node_name:
        return pod
    known = known_feasible(scheduler, cycle, pod, profile)
    row = scheduler.snapshot.table.row_of.get(pod.status.nominated_node_name)
    if known is None or row is None or known.rows[row]:
        return pod
    return PodInfo(replace(pod.pod, status=replace(pod.status, nominated_node_name="")))


def may_be_bounded(pod: PodInfo, known: Feasible | None) -> bool:
    """Return whether, after an attempt that found no node, only nodes that change can become candidates of preemption."""
    return known is not None and known.by_row and not pod.status.nominated_node_name and pod.spec.scheduling_group is None


def rows_to_preempt(
    scheduler: Scheduler, cycle: Cycle, pod: PodInfo, profile: Profile, changed: Collection[int] | None = None
) -> Collection[int] | None:
    """Return the rows on which preemption may help a pod that all nodes refuse; None if they are not known, or some node fits.

    ``changed``: the rows that changed since an attempt found no node, if the pod ``may_be_bounded``
    """
    known = known_feasible(scheduler, cycle, pod, profile)
    if known is None or known.number:
        return None
    found: set[int] = set()
    for step in profile.at("postFilter"):
        if isinstance(step.plugin, DefaultPreemption):
            rows = _candidates(step.plugin, scheduler, pod, profile, known, changed)
            if rows is None:
                return None
            found |= rows
        elif not isinstance(step.plugin, DynamicResources) or step.name not in known.found.skipped:
            return None
    return found


def _candidates(
    plugin: DefaultPreemption, scheduler: Scheduler, pod: PodInfo, profile: Profile, known: Feasible,
    changed: Collection[int] | None,
) -> set[int] | None:  # fmt: skip
    """Return the rows on which one plugin may help; None if that is not known."""
    if not plugin.has_lesser(pod, scheduler.snapshot):
        return set()
    try:
        if _is_ineligible(plugin, scheduler, pod, profile, known):
            return set()
        if changed is None or not known.by_row:
            return None
        rows = [row for row in changed if row < len(scheduler.snapshot.table)]
        return {row for row in rows if _has_room_without_lesser(scheduler, pod, profile, known, row)}
    except MoorageError:  # the attempt reports it
        return None


def _is_ineligible(plugin: DefaultPreemption, scheduler: Scheduler, pod: PodInfo, profile: Profile, known: Feasible) -> bool:
    """Return whether the pod may not preempt now: by its policy, or because its victims are still there."""
    snapshot, verdicts = scheduler.snapshot, Verdicts(len(scheduler.snapshot.table))
    row = snapshot.table.row_of.get(pod.status.nominated_node_name)
    if row is not None:
        run_filter(profile, known.found, pod, NodeView(snapshot, np.array([row], dtype=np.intp)), verdicts)
    attempt: Any = FailedAttempt(profile, known.found, pod, snapshot, verdicts, scheduler.queue.nominated)
    return bool(plugin.ineligible(pod, attempt))


def _has_room_without_lesser(scheduler: Scheduler, pod: PodInfo, profile: Profile, known: Feasible, row: int) -> bool:
    """Return whether the pod fits on a node without its pods of lower priority."""
    lesser = [other for other in scheduler.snapshot.table.pods[row].values() if other.priority < pod.priority]
    if not lesser:
        return False
    with OneNode(profile, known.found, pod, scheduler.snapshot, row, ()) as node:
        for other in lesser:
            node.remove(other)
        return node.refused_by() is None
