"""``Consolidation``: periodically remove nodes whose pods fit on the other nodes, as Karpenter does.

``Cluster.consolidate`` chooses the nodes: it verifies with the engine that all pods are placed without them, and that kubectl
can drain them within the disruption budgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final

from moorage.api.core import ENDED_PHASES, Taint
from moorage.api.workloads import PodDisruptionBudget
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.cluster_objects import cluster_input
from moorage.laboratory.dynamics.node_pools import delete_node, empty_node
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.laboratory.plan.node_types import NodeType
from moorage.simulator.autoscalers.cluster_autoscaler.removal_rules import DrainContext, pods_to_move
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo


def movable_pods(simulation: SimulatedCluster, row: int) -> list[PodInfo] | None:
    """Return the pods that leave a node when it is removed; None if one of them keeps it, or its budget is spent.

    The pods of DaemonSets, mirror pods and terminating ones go with the node.
    """
    cluster = simulation.scheduler.cluster
    context = DrainContext(simulation.now, tuple(cluster.objects(PodDisruptionBudget).values()))
    held = cluster.table.pods[row]
    moves = pods_to_move((one.pod for one in held.values() if one.pod.status.phase not in ENDED_PHASES), context)
    if moves.blocking is not None or moves.waiting:
        return None
    return [held[pod.metadata.uid] for pod in moves.pods if pod.metadata.deletion_timestamp is None]


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
