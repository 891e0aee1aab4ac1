"""The nodes that the Filter plugins accept for one pod now; nothing changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from moorage.cycle.cycle import Cycle
from moorage.cycle.decision import Decision
from moorage.cycle.search_scope import EVERYWHERE
from moorage.framework.verdicts import Code
from moorage.laboratory.frames import ColumnFrame, frame_of
from moorage.laboratory.history import scope_of
from moorage.laboratory.placements import Feasibility
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable

__all__ = ["feasibility_of", "fitting_rows"]

#: A cycle that filters every node and caches nothing.
_JUDGE = Cycle(by_class=False, nominated_first=False, errors_end=False)


def feasibility_of(simulation: SimulatedCluster, pod: PodInfo, nodes: Sequence[str] | None) -> Feasibility:
    """Return which of ``nodes`` (None: all) accept a pod. Extenders are not asked.

    Raises  InputError for a node that does not exist
    """
    scheduler = simulation.scheduler
    snapshot = scheduler.snapshot
    scope = replace(scope_of(simulation, nodes), post_filter=False)
    profile = scheduler.profiles.get(pod.spec.scheduler_name)
    if profile is None:
        return Feasibility(pod.key, [], frame_of(_NAMES, ()), f"no profile has the name {pod.spec.scheduler_name}")
    everywhere = replace(profile, percentage_of_nodes_to_score=100)
    decision = _JUDGE.decide(everywhere, pod, snapshot, scheduler.queue.nominated, scope)
    rows = range(len(snapshot.table)) if scope.rows is None else scope.rows.tolist()
    fitting = [] if decision.node is None else [row for row in rows if decision.status_of(row) is None]
    names = [snapshot.table.nodes[row].name for row in fitting]
    return Feasibility(pod.key, names, _refusals(decision, snapshot.table, rows), "" if names else decision.message)


def fitting_rows(simulation: SimulatedCluster, pod: PodInfo) -> npt.NDArray[np.intp]:
    """Return the rows of the node table that no Filter plugin refuses for a pod."""
    scheduler = simulation.scheduler
    profile = scheduler.profiles.get(pod.spec.scheduler_name)
    if profile is None:
        return np.zeros(0, dtype=np.intp)
    everywhere = replace(profile, percentage_of_nodes_to_score=100)
    scope = replace(EVERYWHERE, post_filter=False)
    decision = _JUDGE.decide(everywhere, pod, scheduler.snapshot, scheduler.queue.nominated, scope)
    if decision.node is None or decision.verdicts is None:
        return np.zeros(0, dtype=np.intp)
    return np.flatnonzero(decision.verdicts.ids == 0)


_NAMES = ("node", "plugin", "reason", "resolvable")


def _refusals(decision: Decision, table: NodeTable, rows: Sequence[int]) -> ColumnFrame:
    cells = []
    for row in rows:
        status = decision.status_of(row)
        if status is not None:
            name, resolvable = table.nodes[row].name, status.code is Code.UNSCHEDULABLE
            cells += [(name, status.plugin, reason, resolvable) for reason in status.reasons]
    return frame_of(_NAMES, cells)
