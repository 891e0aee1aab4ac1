"""DynamicResources of earlier releases.

In 1.35.4 and 1.36.0 Score fails for a pod with allocated and unallocated claims: it looks for an allocation of each claim among
those made in this attempt, and an allocated claim has none there. Up to 1.34 the plugin does not score, and its only argument
is ``filterTimeout``; up to 1.33 it has no arguments.

Source    kube-scheduler 1.35.4, plugins/dynamicresources/dynamicresources.go, computeScore
"""

from __future__ import annotations

from typing import Self

from msgspec import structs

from moorage.errors import AttemptError, Fault
from moorage.framework.args import Duration, PluginArgs
from moorage.framework.features import FeatureGates
from moorage.plugins.devices.pod_devices import PodDevices
from moorage.plugins.dynamic_resources import DynamicResources
from moorage.plugins.dynamic_resources_args import DynamicResourcesArgs
from moorage.state.columns import IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["DynamicResourcesArgsV134", "DynamicResourcesV133", "DynamicResourcesV134", "DynamicResourcesV1360"]


class DynamicResourcesV1360(DynamicResources):
    """The plugin; see the module docstring."""

    reuse = DynamicResources.reuse

    def score(self, wanted: PodDevices | PodInfo, nodes: NodeView) -> IntArray:
        if isinstance(wanted, PodDevices) and (made := len(wanted.to_allocate)) and made < len(wanted.claims):
            text = f"number of allocations {made} is smaller than number of claims"
            raise AttemptError(self.name, f'running Score plugins: plugin "{self.name}" failed with: {text}')
        return super().score(wanted, nodes)


class DynamicResourcesArgsV134(PluginArgs, frozen=True):
    """``filter_timeout`` in seconds is per node, 0 disables it. It requires the feature gate DRASchedulerFilterTimeout."""

    filter_timeout: Duration | None = None

    def completed(self, gates: FeatureGates) -> Self:
        return structs.replace(self, filter_timeout=self._as_newer().completed(gates).filter_timeout)

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        return self._as_newer().faults(path, gates)

    def _as_newer(self) -> DynamicResourcesArgs:
        return DynamicResourcesArgs(filter_timeout=self.filter_timeout)


class DynamicResourcesV134(DynamicResources):
    """The plugin; see the module docstring."""

    Args = DynamicResourcesArgsV134
    reuse = DynamicResources.reuse

    def __init__(self, args: DynamicResourcesArgsV134 | None = None) -> None:
        super().__init__(DynamicResourcesArgs(filter_timeout=(args or DynamicResourcesArgsV134()).filter_timeout))


class DynamicResourcesV133(DynamicResources):
    """The plugin; see the module docstring."""

    Args = None
    reuse = DynamicResources.reuse

    def __init__(self) -> None:
        super().__init__()
