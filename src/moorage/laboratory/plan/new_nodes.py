"""Nodes that do not exist yet: copies of a node, and the DaemonSet pods that they get."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from moorage.api.core import Node, Pod
from moorage.api.meta import Object
from moorage.api.workloads import DaemonSet
from moorage.core.engine.facts import Seen
from moorage.framework.changes import Change
from moorage.laboratory.edit.changes import apply
from moorage.laboratory.present import ASIDE, cluster_input
from moorage.simulator.admission import admit
from moorage.simulator.simulation import SimulatedCluster
from moorage.simulator.workloads import expand

__all__ = ["add_nodes", "admitted", "daemon_pods", "like_node", "policies_of"]


def like_node(pattern: Node, name: str) -> Node:
    """Return an empty, schedulable node like another."""
    added = apply([pattern], Change("cluster", "add-node", f"node/{name}", "", None, f"like {pattern.name}"))
    return next(obj for obj in added if isinstance(obj, Node) and obj.name == name)


def policies_of(objects: Iterable[Object]) -> list[Object]:
    """Return the objects that admission reads, and the DaemonSets."""
    workloads = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Job", "CronJob")
    wanted = {kind for kind in ASIDE if kind.__name__ not in workloads}
    return [obj for obj in objects if type(obj) in wanted or type(obj).__name__ == "StorageClass"]


def daemon_pods(nodes: Iterable[Node], policies: Iterable[Object]) -> list[Pod]:
    """Return the DaemonSet pods that new nodes get, admitted."""
    held = list(policies)
    daemons = [obj for obj in held if isinstance(obj, DaemonSet)]
    if not daemons:
        return []
    return list(admit(expand(cluster_input([*held, *nodes]))).pods)


def add_nodes(simulation: SimulatedCluster, nodes: Sequence[Node], policies: Iterable[Object]) -> list[Pod]:
    """Add nodes to a simulation and place their DaemonSet pods. Return those that found no place."""
    pods = daemon_pods(nodes, policies)
    simulation.tell([*map(Seen, nodes), *map(Seen, pods)])
    for pod in pods:
        simulation.attempt(simulation.pods[pod.metadata.uid])
    return [pod for pod in pods if not simulation.pods[pod.metadata.uid].spec.node_name]


def admitted(objects: Iterable[Any], policies: Iterable[Object]) -> tuple[list[Object], tuple[str, ...]]:
    """Return pods and claims after admission, with notes on those that an API server would reject."""
    held = [obj for obj in policies if not isinstance(obj, DaemonSet)]
    known = {id(obj) for obj in held}
    made = admit(cluster_input([*held, *objects]))
    fresh: list[Object] = [*made.persistent_volume_claims, *made.pods]
    rest = [obj for obj in objects if not isinstance(obj, Pod) and type(obj).__name__ != "PersistentVolumeClaim"]
    return [obj for obj in (*rest, *fresh) if id(obj) not in known], made.report.notes
