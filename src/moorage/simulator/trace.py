"""A trace: the nodes of a cluster, and the pods that arrived there, with times and durations."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.api.core import Node, Pod
from moorage.simulator.cluster_input import ClusterInput

__all__ = ["Arrival", "Trace"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that arrives ``time_s`` seconds after the start and runs ``duration_s`` seconds once placed (None: for good)."""

    time_s: float
    pod: Pod
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Nodes, and arrivals by time; those of the same time in file order."""

    nodes: tuple[Node, ...]
    arrivals: tuple[Arrival, ...]

    def as_cluster(self) -> ClusterInput:
        """Return the trace without its times: an empty cluster and all pods pending, in order of arrival."""
        return ClusterInput(nodes=self.nodes, pods=tuple(arrival.pod for arrival in self.arrivals))
