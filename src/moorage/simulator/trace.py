"""A trace: the machines of a cluster, and what arrived there, in order, for how long."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.api.core import Node, Pod
from moorage.simulator.cluster_input import ClusterInput

__all__ = ["Arrival", "Trace"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that comes ``time_s`` seconds after the trace begins and, once placed, stays ``duration_s`` (None: for good)."""

    time_s: float
    pod: Pod
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Nodes, and arrivals by time; those of one moment in the order of the file."""

    nodes: tuple[Node, ...]
    arrivals: tuple[Arrival, ...]

    def as_cluster(self) -> ClusterInput:
        """Return the trace without its times: an empty cluster and all pods waiting, in the order they came."""
        return ClusterInput(nodes=self.nodes, pods=tuple(arrival.pod for arrival in self.arrivals))
