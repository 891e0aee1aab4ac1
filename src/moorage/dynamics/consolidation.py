"""``Consolidation``: periodically remove nodes whose pods fit on the other nodes, as Karpenter does.

``Cluster.consolidate`` chooses the nodes: it verifies with the engine that all pods are placed without them, and that kubectl
can drain them within the disruption budgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final

from moorage.api.core import Taint
from moorage.dynamics.idle_nodes import movable_pods
from moorage.dynamics.node_removal import delete_node, empty_node
from moorage.dynamics.simulation import Simulation
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.node_types import NodeType
from moorage.laboratory.present import cluster_input

__all__ = ["Consolidation"]

_TAINT: Final = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")


class Consolidation:
    """Every ``every_s`` seconds, ask which nodes can go, and remove at most ``most`` of them.

    ``types``   node types with prices, as ``Cluster.consolidate`` takes them; empty: remove as many nodes as possible
    ``effort``  how long the search may take, in reads of its clock: the same in every run, unlike seconds
    """

    def __init__(
        self,
        every_s: float = 3600.0,
        *,
        types: Sequence[NodeType | Mapping[str, Any]] = (),
        most: int | None = None,
        effort: int = 300,
    ) -> None:
        self._every_s, self._types, self._most, self._effort = every_s, types, most, effort
        #: The nodes that were removed, in order.
        self.removed: list[str] = []

    def start(self, simulation: Simulation) -> None:
        simulation.every(self._every_s, self._consolidate)

    def _consolidate(self, simulation: Simulation) -> None:
        if simulation.pending:
            return
        cluster = Cluster(cluster_input(simulation.objects()), simulation.options)
        reads = count()
        plan = cluster.consolidate(self._types, float(self._effort), clock=lambda: float(next(reads)))
        for name in plan.remove[: self._most]:
            pods = movable_pods(simulation.engine, simulation.table.row_of[name])
            if pods is not None:
                empty_node(simulation, name, pods, _TAINT, partial(self._remove, simulation, name))

    def _remove(self, simulation: Simulation, name: str) -> None:
        self.removed.append(name)
        delete_node(simulation, name)
