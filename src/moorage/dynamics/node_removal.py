"""Empty a node and delete it, as autoscalers do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Taint
from moorage.dynamics.simulation import Simulation
from moorage.engine.facts import Gone, Seen
from moorage.laboratory.typical_mix import is_bound_to_its_node
from moorage.state.pod_info import PodInfo

__all__ = ["delete_node", "empty_node"]

#: The longest grace period of evicted pods, in seconds (--max-graceful-termination-sec of cluster-autoscaler).
_LONGEST_GRACE_S: Final = 600


def empty_node(simulation: Simulation, name: str, pods: Iterable[PodInfo], taint: Taint, then: Callable[[], None]) -> None:
    """Taint a node, evict its pods, and call ``then`` when the last grace period is over."""
    node = simulation.table.nodes[simulation.table.row_of[name]]
    simulation.tell(Seen(replace(node, spec=replace(node.spec, taints=(*node.spec.taints, taint)))))
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
