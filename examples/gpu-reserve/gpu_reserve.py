"""GpuReserve: keep pods without a GPU request off nodes with GPUs.

A Filter for one node at a time: the simplest plugin.
"""

from __future__ import annotations

from moorage.framework.verdicts import Hold
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo

__all__ = ["GpuReserve"]

GPU = "nvidia.com/gpu"


class GpuReserve:
    """Rejects nodes with GPUs for pods that request none. Evicting pods from such a node would not help."""

    name = "GpuReserve"

    def filter_node(self, pod: PodInfo, node: NodeInfo) -> Hold | None:
        if node.allocatable(GPU) > 0 and not pod.requests.get(GPU):
            return Hold.because("node(s) are reserved for GPU pods", unresolvable=True)
        return None
