"""DynamicResources of earlier releases.

In 1.35.4 and 1.36.0 Score fails for a pod with allocated and unallocated claims: it looks for an allocation of each claim
among those made in this attempt, and an allocated claim has none there. Up to 1.36.2 a device that a taint or a constraint
refuses keeps the counters that it needs from the other devices of the search.

Up to 1.35 an alternative for all devices looks for the second one as the first alternative of its request does, the second
alternative selects what the first one does if both want all devices, a pod of a group waits until another one has allocated a
claim of both, a search that takes too long rejects the node, the text about a claim of another pod has no capitals, a request
for several devices may take several shares of one, and shares that earlier pods hold leave their counters free. Up to 1.34 the
plugin does not score, constraints for distinct attributes take any devices that have them, devices can be used although slices
of their pool are missing, need counters for each share, and only of their own slice; ``filterTimeout`` is the only argument,
either of the gates DRAResourceClaimDeviceStatus and DRADeviceBindingConditions selects the newest allocator, its texts name no
alternatives, and devices back extended resources as in ``resource_backing``. Up to 1.33 there are no arguments.

Source    kube-scheduler 1.35.4, plugins/dynamicresources/dynamicresources.go, computeScore
"""

from __future__ import annotations

from typing import Self

from msgspec import structs

from moorage.api.core import Node
from moorage.api.feature_gates import FeatureGates
from moorage.errors import AttemptError, Fault
from moorage.framework.args import Duration, PluginArgs
from moorage.plugins.devices.claim_requests import DeviceRules
from moorage.plugins.devices.pod_devices import PodDevices
from moorage.plugins.devices.pools import PoolRule
from moorage.plugins.dynamic_resources import DynamicResources, DynamicResourcesArgs
from moorage.plugins.earlier.shared.resource_backing import ResourceBackingV134
from moorage.state.view import IntArray, NodeView, PodInfo


class _FaultyScore(DynamicResources):
    """The score that fails."""

    def score(self, wanted: PodDevices | PodInfo, nodes: NodeView) -> IntArray:
        if isinstance(wanted, PodDevices) and (made := len(wanted.to_allocate)) and made < len(wanted.claims):
            text = f"number of allocations {made} is smaller than number of claims"
            raise AttemptError(self.name, f'running Score plugins: plugin "{self.name}" failed with: {text}')
        return super().score(wanted, nodes)


class DynamicResourcesV1362(DynamicResources):
    rules = DeviceRules(undoes_refusals=False)


class DynamicResourcesV1360(DynamicResourcesV1362, _FaultyScore):
    """The plugin; see the module docstring."""


class DynamicResourcesV135(DynamicResources):
    rules = DeviceRules(
        not_owner="ResourceClaim {} was not created for pod {} (pod is not owner)",
        keeps_alternative=False,
        takes_shares_again=True,
        charges_shares=False,
        shares_in_group=False,
    )

    def timed_out(self, node: Node) -> tuple[str, bool]:
        return "timed out trying to allocate devices", False


class DynamicResourcesV1354(DynamicResourcesV135, _FaultyScore):
    """The plugin; see the module docstring."""


class DynamicResourcesArgsV134(PluginArgs, frozen=True):
    """``filter_timeout`` in seconds is per node, 0 disables it. It requires the feature gate DRASchedulerFilterTimeout."""

    filter_timeout: Duration | None = None

    def completed(self, gates: FeatureGates) -> Self:
        return structs.replace(self, filter_timeout=self._as_newer().completed(gates).filter_timeout)

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        return self._as_newer().faults(path, gates)

    def _as_newer(self) -> DynamicResourcesArgs:
        return DynamicResourcesArgs(filter_timeout=self.filter_timeout)


class DynamicResourcesV134(DynamicResourcesV135):
    Args: type[PluginArgs] | None = DynamicResourcesArgsV134
    rules = DynamicResourcesV135.rules._replace(
        pools=PoolRule(any=True), status_is_new=True, names_subrequests=False, shares_counters=False, all_distinct=True
    )
    backing = ResourceBackingV134()

    def __init__(self, args: DynamicResourcesArgsV134 | None = None) -> None:
        super().__init__(DynamicResourcesArgs(filter_timeout=(args or DynamicResourcesArgsV134()).filter_timeout))


class DynamicResourcesV133(DynamicResourcesV134):
    Args = None
