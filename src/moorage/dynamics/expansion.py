"""Estimate how many nodes of a pool pending pods need: the engine places the pods on copies of the pool's node.

The new nodes run only their DaemonSet pods. If a pod has affinity to other pods or spread constraints, the rest of the cluster
is loaded, too.

Source  cluster-autoscaler 1.33, estimator/binpacking_estimator.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from moorage.api.core import Node, Pod
from moorage.api.meta import Object
from moorage.cycle.search_scope import SearchScope
from moorage.engine.facts import Gone, Seen
from moorage.laboratory.new_nodes import daemon_pods
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo

__all__ = ["ExpansionEstimate"]

_NO_PREEMPTION = SearchScope(post_filter=False)


class ExpansionEstimate:
    """Estimates: ``left`` returns the pods that ``upcoming`` nodes do not take, ``needed`` how many more nodes to add.

    ``around`` returns the objects of the cluster without its pending pods; ``policies`` returns those that admission reads.
    """

    def __init__(self, options: Options, around: Callable[[], Iterable[Object]], policies: Callable[[], list[Object]]) -> None:
        self._options, self._around, self._policies = options, around, policies
        self._empty: SimulatedCluster | None = None

    def _scratch(self, pods: Iterable[PodInfo]) -> SimulatedCluster:
        if any(pod.has_affinity or pod.spread_constraints for pod in pods):
            made, _ = prepare(self._options)
            made.load(self._around())
            return made
        if self._empty is None:
            self._empty, _ = prepare(self._options)
            self._empty.keeps_records = False
        return self._empty

    def left(self, pods: Sequence[PodInfo], upcoming: Sequence[Node]) -> list[PodInfo]:
        """Return the pods that fit neither on upcoming nodes nor, if the cluster is loaded, on existing ones."""
        if not upcoming and not any(pod.has_affinity or pod.spread_constraints for pod in pods):
            return list(pods)
        scratch = self._scratch(pods)
        held = self._add(scratch, upcoming)
        left = [pod for pod in pods if not self._fits(scratch, pod, held)]
        self._clear(scratch, held)
        return left

    def needed(
        self, pods: Sequence[PodInfo], upcoming: Sequence[Node], make: Callable[[int], Node], most: int
    ) -> tuple[int, tuple[PodInfo, ...]]:
        """Return how many nodes to add, at most ``most``, and the pods that then fit. ``make`` creates the n-th node."""
        scratch = self._scratch(pods)
        held = self._add(scratch, upcoming)
        placed: list[PodInfo] = []
        hopeless: set[bytes] = set()
        count = 0
        for pod in sorted(pods, key=_size, reverse=True):
            shape = pod.waiting_shape()
            if shape in hopeless:
                continue
            if self._fits(scratch, pod, held):
                placed.append(pod)
                continue
            fresh = self._add(scratch, [make(count)]) if count < most else []
            if fresh and self._fits(scratch, pod, held):
                placed.append(pod)
                count += 1
                held += fresh
            else:
                hopeless.add(shape)
                self._clear(scratch, fresh)
        self._clear(scratch, held)
        return count, tuple(placed)

    def _add(self, scratch: SimulatedCluster, nodes: Sequence[Node]) -> list[Object]:
        if not nodes:
            return []
        daemons = daemon_pods(nodes, self._policies())
        scratch.tell([*map(Seen, nodes), *map(Seen, daemons)])
        for daemon in daemons:
            scratch.attempt(scratch.pods[daemon.metadata.uid], _NO_PREEMPTION)
        return [*daemons, *nodes]

    def _fits(self, scratch: SimulatedCluster, pod: PodInfo, held: list[Object]) -> bool:
        """Place a pod if it fits, and add it to ``held``."""
        if not len(scratch.scheduler.cluster.table):
            return False
        scratch.tell([Seen(pod.pod)])
        scratch.attempt(pod.pod, _NO_PREEMPTION)
        now = scratch.pods.get(pod.uid)
        if now is not None and now.spec.node_name:
            held.append(pod.pod)
            return True
        scratch.delete(pod.uid)
        return False

    def _clear(self, scratch: SimulatedCluster, held: Iterable[Object]) -> None:
        """Remove pods and nodes from the scratch cluster."""
        listed = list(held)
        for obj in listed:
            if isinstance(obj, Pod) and obj.metadata.uid in scratch.pods:
                scratch.delete(obj.metadata.uid)
        scratch.tell([Gone(obj) for obj in listed if not isinstance(obj, Pod)])


def _size(pod: PodInfo) -> float:
    return pod.requests.get("cpu", 0) / 1000 + pod.requests.get("memory", 0) / (4 << 30)
