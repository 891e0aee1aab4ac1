"""``StateRecorder``: how full a cluster is, how many pods wait and how usable the rest is, over time, as NumPy columns."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.errors import InputError
from moorage.laboratory.cluster_objects import ObjectLike, read_given
from moorage.laboratory.compare.typical_mix import PodShape, eligible_shapes, typical_mix
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.laboratory.frames import ColumnFrame
from moorage.laboratory.metrics import NodeUse, WorkShape, mix_fragmentation
from moorage.laboratory.node_groups import counts_for_metrics, use_of_nodes
from moorage.simulator.admission import admit

_RESOURCES: Final = ("cpu", "memory")


class StateRecorder:
    """Samples the state every ``every_s`` seconds, from the time it is used. It causes no events and changes nothing.

    ``resources``      whose use is recorded
    ``fragmentation``  pods of the typical mix, as ``PodArrivals`` takes templates: the share of such pods that has no room
                       because what is free is in pieces; it costs a filter run for each of them whenever a node changes
    ``extra``          further columns: functions of the simulation

    Columns: ``time_s``; ``nodes`` that are ready and schedulable; ``pods`` on all nodes; ``pending``; ``allocation.R``, what
    pods request of resource R on these nodes; ``utilisation.R``, the share of what they offer; ``fragmentation``.
    """

    def __init__(
        self,
        every_s: float = 60.0,
        *,
        resources: Iterable[str] = _RESOURCES,
        fragmentation: Sequence[ObjectLike] = (),
        extra: Mapping[str, Callable[[Simulation], float]] | None = None,
    ) -> None:
        if not every_s > 0:
            raise InputError(f"every_s: {every_s!r} is not a number above 0")
        self.every_s = every_s
        self._resources = tuple(resources)
        self._shapes = _shapes(fragmentation)
        self._extra = dict(extra or {})
        names = ["time_s", "nodes", "pods", "pending"]
        names += [f"{kind}.{name}" for kind in ("allocation", "utilisation") for name in self._resources]
        names += ["fragmentation"] if self._shapes else []
        self._columns = {name: array("d") for name in (*names, *self._extra)}
        self._nodes_seen = -1
        self._counted: npt.NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._offered: list[float] = []
        self._use: NodeUse | None = None
        self._eligible: list[WorkShape] = []

    def start(self, simulation: Simulation) -> None:
        self.next_s = self._first_s = simulation.now_s
        self._taken = 0
        simulation.sample_with(self)

    def sample(self, simulation: Simulation) -> None:
        """Record the state as that of ``next_s``."""
        table = simulation.table
        if table.changes.nodes != self._nodes_seen:
            self._see_nodes(simulation)
        nodes, pods = float(np.count_nonzero(self._counted)), float(table.pod_count.view.sum())
        row = [self.next_s, nodes, pods, float(simulation.pending)]
        used = [float(table.requested(name).view[self._counted].sum()) for name in self._resources]
        row += used
        row += [one / whole if whole else 0.0 for one, whole in zip(used, self._offered, strict=True)]
        if self._shapes:
            row.append(mix_fragmentation(self._present_use(simulation), self._eligible))
        row += [float(call(simulation)) for call in self._extra.values()]
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)
        self._taken += 1
        self.next_s = self._first_s + self._taken * self.every_s

    def _see_nodes(self, simulation: Simulation) -> None:
        """Compute the values that depend on nodes alone: which ones count, what they offer, and which shapes they admit."""
        table = simulation.table
        self._nodes_seen = table.changes.nodes
        self._counted = np.array([counts_for_metrics(node) for node in table.nodes], dtype=np.bool_)
        self._offered = [float(table.allocatable(name).view[self._counted].sum()) for name in self._resources]
        if self._shapes:
            self._use = use_of_nodes(simulation.engine)
            self._eligible = eligible_shapes(simulation.engine, self._shapes)

    def _present_use(self, simulation: Simulation) -> NodeUse:
        assert self._use is not None
        table, use = simulation.table, self._use
        for at, name in enumerate(use.resources):
            use.requested[:, at] = (table.pod_count if name == "pods" else table.requested(name)).view
        return use

    # -- what was recorded -----------------------------------------------------------------------------------------------

    def columns(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return the columns by name, as copies."""
        return {name: np.array(column, dtype=np.float64) for name, column in self._columns.items()}

    @property
    def frame(self) -> ColumnFrame:
        """The columns as a frame, for ``to_pandas`` and ``to_csv``."""
        return ColumnFrame(self.columns())

    def mean(self, name: str, since_s: float = 0.0) -> float:
        """Return the mean of a column over its samples from a time on.

        Raises  InputError for a column that is not recorded, and if there is no sample
        """
        if name not in self._columns:
            raise InputError(f"no column {name}; there are {', '.join(self._columns)}")
        values = self.columns()
        kept = values[name][values["time_s"] >= since_s]
        if not len(kept):
            raise InputError(f"no sample from {since_s:g} s on")
        return float(kept.mean())


def _shapes(given: Sequence[ObjectLike]) -> list[PodShape]:
    return typical_mix(admit(read_given(given)).pods) if given else []
