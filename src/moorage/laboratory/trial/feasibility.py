"""The nodes that the Filter plugins accept for one pod now; nothing changes."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from moorage.framework.verdicts import Code, Verdicts
from moorage.laboratory.frames import ColumnFrame, frame_of
from moorage.laboratory.placements import Feasibility
from moorage.laboratory.trial.history import scope_of
from moorage.simulator.filtering import filtered, no_profile
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.columns import ranges
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable

_NAMES = ("node", "plugin", "reason", "resolvable")
_name_of = attrgetter("metadata.name")


def feasibility_of(simulation: SimulatedCluster, pod: PodInfo, nodes: Sequence[str] | None) -> Feasibility:
    """Return which of ``nodes`` (None: all) accept a pod. Extenders are not asked.

    Raises  InputError for a node that does not exist
    """
    scheduler = simulation.scheduler
    table = scheduler.snapshot.table
    scope = scope_of(simulation, nodes)
    decision = filtered(scheduler, pod, scope)
    if decision is None:
        return Feasibility(pod.key, [], frame_of(_NAMES, ()), no_profile(pod))
    verdicts = decision.verdicts
    if verdicts is None:
        return Feasibility(pod.key, [], frame_of(_NAMES, ()), decision.message)
    rows = np.arange(len(table)) if scope.rows is None else scope.rows
    refused = verdicts.ids[rows] != 0
    fitting = [] if decision.node is None else list(map(_name_of, map(table.nodes.__getitem__, rows[~refused].tolist())))
    return Feasibility(pod.key, fitting, _refusals(verdicts, table, rows[refused]), "" if fitting else decision.message)


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
