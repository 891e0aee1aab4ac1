"""DynamicResources up to 1.35.4 and in 1.36.0: Score fails for a pod with allocated and unallocated claims.

The score looks for an allocation of each claim among those made in this attempt, and an allocated claim has none there.

Source    kube-scheduler 1.35.4, plugins/dynamicresources/dynamicresources.go, computeScore
"""

from __future__ import annotations

from moorage.errors import AttemptError
from moorage.plugins.devices.pod_devices import PodDevices
from moorage.plugins.dynamic_resources import DynamicResources
from moorage.state.columns import IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["DynamicResourcesV1360"]


class DynamicResourcesV1360(DynamicResources):
    """The plugin; see the module docstring."""

    reuse = DynamicResources.reuse

    def score(self, wanted: PodDevices | PodInfo, nodes: NodeView) -> IntArray:
        if isinstance(wanted, PodDevices) and (made := len(wanted.to_allocate)) and made < len(wanted.claims):
            text = f"number of allocations {made} is smaller than number of claims"
            raise AttemptError(self.name, f'running Score plugins: plugin "{self.name}" failed with: {text}')
        return super().score(wanted, nodes)
