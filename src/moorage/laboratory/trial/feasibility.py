"""The nodes that the Filter plugins accept for one pod now; nothing changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.search import EVERYWHERE
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Code, Verdicts
from moorage.laboratory.frames import ColumnFrame, frame_of
from moorage.laboratory.placements import Feasibility
from moorage.laboratory.trial.history import scope_of
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.columns import ranges
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable

__all__ = ["feasibility_of", "fitting_rows"]

#: A cycle that filters every node and caches nothing.
_JUDGE = Cycle(by_class=False, nominated_first=False, errors_end=False)
_EVERYWHERE = replace(EVERYWHERE, post_filter=False)
#: Profile → its Filter plugins alone.
_FILTERING: WeakKeyDictionary[Profile, Profile] = WeakKeyDictionary()
_NAMES = ("node", "plugin", "reason", "resolvable")
_name_of = attrgetter("metadata.name")


def feasibility_of(simulation: SimulatedCluster, pod: PodInfo, nodes: Sequence[str] | None) -> Feasibility:
    """Return which of ``nodes`` (None: all) accept a pod. Extenders are not asked.

    Raises  InputError for a node that does not exist
    """
    scheduler = simulation.scheduler
    table = scheduler.snapshot.table
    scope = replace(scope_of(simulation, nodes), post_filter=False)
    profile = scheduler.profiles.get(pod.spec.scheduler_name)
    if profile is None:
        return Feasibility(pod.key, [], frame_of(_NAMES, ()), f"no profile has the name {pod.spec.scheduler_name}")
    decision = _JUDGE.decide(_filtering(profile), pod, scheduler.snapshot, scheduler.queue.nominated, scope)
    verdicts = decision.verdicts
    if verdicts is None:
        return Feasibility(pod.key, [], frame_of(_NAMES, ()), decision.message)
    rows = np.arange(len(table)) if scope.rows is None else scope.rows
    refused = verdicts.ids[rows] != 0
    fitting = [] if decision.node is None else list(map(_name_of, map(table.nodes.__getitem__, rows[~refused].tolist())))
    return Feasibility(pod.key, fitting, _refusals(verdicts, table, rows[refused]), "" if fitting else decision.message)


def fitting_rows(simulation: SimulatedCluster, pod: PodInfo) -> npt.NDArray[np.intp]:
    """Return the rows of the node table that no Filter plugin refuses for a pod."""
    scheduler = simulation.scheduler
    profile = scheduler.profiles.get(pod.spec.scheduler_name)
    if profile is None:
        return np.zeros(0, dtype=np.intp)
    decision = _JUDGE.decide(_filtering(profile), pod, scheduler.snapshot, scheduler.queue.nominated, _EVERYWHERE)
    if decision.node is None or decision.verdicts is None:
        return np.zeros(0, dtype=np.intp)
    return np.flatnonzero(decision.verdicts.ids == 0)


def _filtering(profile: Profile) -> Profile:
    """Return a profile that filters as this one does, every node, and scores nothing."""
    made = _FILTERING.get(profile)
    if made is None:
        made = _FILTERING[profile] = replace(profile.without_scores(), percentage_of_nodes_to_score=100)
    return made


def _refusals(verdicts: Verdicts, table: NodeTable, rows: npt.NDArray[np.intp]) -> ColumnFrame:
    """Return one line for each reason of each of these rows, all of which are refused."""
    if not len(rows):
        return frame_of(_NAMES, ())
    said = [() if status is None else tuple(status.reasons) for status in verdicts.statuses]
    lines = [
        (status.plugin, reason, status.code is Code.UNSCHEDULABLE)
        for status, reasons in zip(verdicts.statuses, said, strict=True)
        for reason in reasons
        if status is not None
    ]
    counts = np.array([len(reasons) for reasons in said])
    ids = verdicts.ids[rows]
    each = counts[ids]
    # For each line of the frame: which of ``lines`` it is.
    at = ranges((counts.cumsum() - counts)[ids], each)
    if not lines:
        return frame_of(_NAMES, ())
    plugins, reasons, resolvable = frame_of(_NAMES[1:], lines).columns().values()
    names = np.empty(len(rows), dtype=object)
    names[:] = list(map(_name_of, map(table.nodes.__getitem__, rows.tolist())))
    cells = (np.repeat(names, each), plugins[at], reasons[at], resolvable[at])
    return ColumnFrame(dict(zip(_NAMES, cells, strict=True)))
