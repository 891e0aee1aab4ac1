"""Check which nodes an autoscaler can remove: their pods may be evicted and pass the Filter plugins on other nodes.

Source  cluster-autoscaler 1.33, simulator/drain.go, simulator/drainability/rules
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

from moorage.api.core import ENDED_PHASES, Pod
from moorage.api.workloads import PodDisruptionBudget
from moorage.cycle.disruption_budgets import Budgets
from moorage.laboratory.feasibility import fitting_rows
from moorage.laboratory.typical_mix import is_bound_to_its_node, unplaced_copy
from moorage.simulator.owners import controller_of
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo

__all__ = ["can_move", "movable_pods"]

_SAFE: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"


def movable_pods(simulation: SimulatedCluster, row: int) -> list[PodInfo] | None:
    """Return the pods that leave a node when it is removed; None if one of them must not be evicted.

    DaemonSet and mirror pods go with the node. A pod blocks it if its annotation safe-to-evict is ``false``, if it has no
    controller, an emptyDir volume or runs in kube-system (all three unless the annotation is ``true``), or if its disruption
    budget is spent.
    """
    cluster = simulation.scheduler.cluster
    pods = [pod for pod in cluster.table.pods[row].values() if not _stays(pod.pod)]
    if any(_blocks(pod.pod) for pod in pods):
        return None
    exceeding, _ = Budgets(cluster.objects(PodDisruptionBudget).values()).split(pods)
    return None if exceeding else pods


def _stays(pod: Pod) -> bool:
    return is_bound_to_its_node(pod) or pod.status.phase in ENDED_PHASES or pod.metadata.deletion_timestamp is not None


def _blocks(pod: Pod) -> bool:
    safe = pod.metadata.annotations.get(_SAFE)
    if safe is not None:
        return safe != "true"
    local = any(volume.empty_dir is not None for volume in pod.spec.volumes)
    return controller_of(pod.metadata) is None or pod.namespace == "kube-system" or local


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
