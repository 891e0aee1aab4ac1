"""GpuReserve: keep pods that ask for no GPU off nodes that have some.

A Filter that judges one node at a time: the simplest plugin there is.
"""

from __future__ import annotations

from moorage.framework.verdicts import Hold
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo

__all__ = ["GpuReserve"]

GPU = "nvidia.com/gpu"


class GpuReserve:
    """Refuses nodes with GPUs to pods without. Evicting pods from such a node would not help."""

    name = "GpuReserve"

    def filter_node(self, pod: PodInfo, node: NodeInfo) -> Hold | None:
        if node.allocatable(GPU) > 0 and not pod.requests.get(GPU):
            return Hold.because("node(s) are reserved for GPU pods", unresolvable=True)
        return None
