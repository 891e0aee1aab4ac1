"""``Consolidation``: periodically remove nodes whose pods fit on the other nodes, as Karpenter does.

``Cluster.consolidate`` chooses the nodes: it verifies with the engine that all pods are placed without them, and that kubectl
can drain them within the disruption budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES, Taint
from moorage.api.workloads import PodDisruptionBudget
from moorage.core.engine.facts import Gone, Seen
from moorage.core.preemption.disruption_budgets import Budgets
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.compare.typical_mix import is_bound_to_its_node, unplaced_copy
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.laboratory.plan.node_types import NodeType
from moorage.laboratory.present import cluster_input
from moorage.laboratory.trial.feasibility import fitting_rows
from moorage.simulator.autoscalers.cluster_autoscaler.drain_rules import DrainContext, DrainOptions, MovesOfPods, pods_to_move
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo

__all__ = ["Consolidation", "can_move", "delete_node", "empty_node", "movable_pods", "moves_of", "taint_node"]


# -- node removal ------------------------------------------------------------------------------------------------------
# Empty a node and delete it, as autoscalers do.

#: The longest grace period of evicted pods, in seconds (--max-graceful-termination-sec of cluster-autoscaler).
_LONGEST_GRACE_S: Final = 600


def taint_node(simulation: Simulation, name: str, taint: Taint) -> None:
    """Add a taint to a node that does not have it."""
    node = simulation.table.nodes[simulation.table.row_of[name]]
    if taint not in node.spec.taints:
        simulation.tell(Seen(replace(node, spec=replace(node.spec, taints=(*node.spec.taints, taint)))))


def empty_node(simulation: Simulation, name: str, pods: Iterable[PodInfo], taint: Taint, then: Callable[[], None]) -> None:
    """Taint a node, evict its pods, and call ``then`` when the last grace period is over."""
    taint_node(simulation, name, taint)
    longest = 0.0
    for pod in pods:
        grace = pod.spec.termination_grace_period_seconds
        grace_s = float(min(30 if grace is None else grace, _LONGEST_GRACE_S))
        longest = max(longest, grace_s)
        simulation.engine.evict(pod.uid, grace_s)
    simulation.call_at(simulation.now_s + longest, then)


def delete_node(simulation: Simulation, name: str) -> None:
    """Delete a node if it exists, with its remaining pods that go with it."""
    row = simulation.table.row_of.get(name)
    if row is not None:
        bound = [pod.pod for pod in simulation.table.pods[row].values() if is_bound_to_its_node(pod.pod)]
        simulation.tell(*map(Gone, bound), Gone(simulation.table.nodes[row]))


# -- idle nodes --------------------------------------------------------------------------------------------------------
# Check which nodes an autoscaler can remove: their pods may be evicted and pass the Filter plugins on other nodes.


def movable_pods(simulation: SimulatedCluster, row: int) -> list[PodInfo] | None:
    """Return the pods that leave a node when it is removed; None if one of them keeps it, or its budget is spent.

    The pods of DaemonSets, mirror pods and terminating ones go with the node.
    """
    cluster, moves = simulation.scheduler.cluster, moves_of(simulation, row)
    if moves.blocking is not None or moves.waiting:
        return None
    leaving = {pod.metadata.uid for pod in moves.pods if pod.metadata.deletion_timestamp is None}
    pods = [pod for pod in cluster.table.pods[row].values() if pod.uid in leaving and not is_bound_to_its_node(pod.pod)]
    exceeding, _ = Budgets(cluster.objects(PodDisruptionBudget).values()).split(pods)
    return None if exceeding else pods


def moves_of(simulation: SimulatedCluster, row: int) -> MovesOfPods:
    """Return what cluster-autoscaler would do with the pods of a node. All controllers are taken to exist."""
    cluster = simulation.scheduler.cluster
    context = DrainContext(simulation.now, tuple(cluster.objects(PodDisruptionBudget).values()))
    pods = [pod.pod for pod in cluster.table.pods[row].values() if pod.pod.status.phase not in ENDED_PHASES]
    return pods_to_move(pods, DrainOptions(), context)


def can_move(simulation: SimulatedCluster, row: int, pods: Collection[PodInfo], closed: Collection[int]) -> bool:
    """Return True if all these pods of the node at ``row`` fit on nodes at other rows of the table, outside ``closed``.

    Pods are placed one by one on the first row that has room and passes the Filter plugins. Affinity between the moved pods is
    not considered.
    """
    table = simulation.scheduler.cluster.table
    names = sorted({name for pod in pods for name in pod.requests})
    free = np.array([table.allocatable(name).view - table.requested(name).view for name in names]).reshape(len(names), -1)
    slots = table.allowed_pods.view - table.pod_count.view
    shut = {row, *closed}
    for pod in pods:
        target = next(_with_room(simulation, pod, names, free, slots, shut), None)
        if target is None:
            return False
        free[:, target] -= [pod.requests.get(name, 0) for name in names]
        slots[target] -= 1
    return True


def _with_room(
    simulation: SimulatedCluster, pod: PodInfo, names: list[str], free: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    slots: np.ndarray[tuple[int], np.dtype[np.int64]], shut: Collection[int],
) -> Iterator[int]:  # fmt: skip
    needs = np.array([pod.requests.get(name, 0) for name in names], dtype=np.int64)
    rows = fitting_rows(simulation, PodInfo(unplaced_copy(pod.pod, "moved")))
    open_ = rows[(slots[rows] > 0) & ((free[:, rows] >= needs[:, None]) | (needs[:, None] == 0)).all(axis=0)]
    return (int(target) for target in open_ if int(target) not in shut)


# -- consolidation -----------------------------------------------------------------------------------------------------

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
