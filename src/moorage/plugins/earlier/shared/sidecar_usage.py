"""The CPU and memory of placed pods with sidecars, as scoring counted them up to 1.31.

NodeResourcesFit scores CPU and memory with a default for each container that requests none. Of a pod's init containers, only
the one that needs the most, with the sidecars before it, counts, where that is more than all containers together.

Source    kube-scheduler 1.31.8, framework/types.go, calculateResource
"""

from __future__ import annotations

from typing import Final

from moorage.api.core import Container
from moorage.api.pod_requests import DEFAULT_CPU_MILLI, DEFAULT_MEMORY, amount
from moorage.plugins.shared.node_numbers import numbers_of
from moorage.state.view import BoolArray, IntArray, NodeInfo, NodeView, PodInfo


def excess_of(pod: PodInfo) -> tuple[int, int]:
    """Return how much less of the pod's CPU (in millicores) and memory (in bytes) scoring counted up to 1.31 than today."""
    if not any(container.restart_policy == "Always" for container in pod.spec.init_containers):
        return 0, 0
    cpu = _counted(pod, "cpu", DEFAULT_CPU_MILLI)
    memory = _counted(pod, "memory", DEFAULT_MEMORY)
    return pod.needs.nonzero_cpu - cpu, pod.needs.nonzero_memory - memory


def _counted(pod: PodInfo, resource: str, default: int) -> int:
    """Return the larger of all containers together and each init container with the sidecars up to it, plus overhead."""
    together = sum(default if (asked := _asked(one, resource)) is None else asked for one in pod.spec.containers)
    sidecars: int | None = None
    for container in pod.spec.init_containers:
        both = [count for count in (sidecars, _asked(container, resource)) if count is not None]
        needed = sum(both) if both else None
        if container.restart_policy == "Always":
            sidecars = needed
        together = max(together, default if needed is None else needed)
    return together + amount(resource, pod.spec.overhead.get(resource, 0))


def _asked(container: Container, resource: str) -> int | None:
    quantity = container.resources.requests.get(resource)
    return None if quantity is None else amount(resource, quantity)


def _excess_on(node: NodeInfo, which: int) -> int:
    return sum(excess_of(pod)[which] for pod in node.pods if pod.spec.init_containers)


_CPU: Final = numbers_of(lambda node: _excess_on(node, 0))
_MEMORY: Final = numbers_of(lambda node: _excess_on(node, 1))


class SidecarUsageView(NodeView):
    """A view whose CPU and memory with defaults are those that counted up to 1.31."""

    __slots__ = ("_nodes",)
    is_true = False

    def __init__(self, nodes: NodeView) -> None:
        super().__init__(nodes.snapshot, nodes.row_numbers)
        self._nodes = nodes

    @classmethod
    def of(cls, nodes: NodeView) -> NodeView:
        """Return a view of the same rows; the same view if nothing differs on them."""
        index = nodes.snapshot.index
        return cls(nodes) if index(_CPU).of(nodes).any() or index(_MEMORY).of(nodes).any() else nodes

    def only(self, keep: BoolArray) -> SidecarUsageView:
        return SidecarUsageView(self._nodes.only(keep))

    @property
    def nonzero_cpu(self) -> IntArray:
        return super().nonzero_cpu - self.snapshot.index(_CPU).of(self._nodes)

    @property
    def nonzero_memory(self) -> IntArray:
        return super().nonzero_memory - self.snapshot.index(_MEMORY).of(self._nodes)
