"""Arguments of DynamicResources: how long it may search for devices and wait for them to be ready.

Source  kube-scheduler 1.36.2, apis/config/v1/defaults.go and apis/config/validation/validation_pluginargs.go
"""

from __future__ import annotations

from typing import Self

from msgspec import structs

from moorage.api.durations import format_duration
from moorage.errors import Fault
from moorage.framework.args import Duration, PluginArgs
from moorage.framework.features import FeatureGates

__all__ = ["DynamicResourcesArgs"]


class DynamicResourcesArgs(PluginArgs, frozen=True):
    """Timeouts in seconds. ``filter_timeout`` is per node, 0 disables it. Setting either requires its feature gates."""

    filter_timeout: Duration | None = None
    binding_timeout: Duration | None = None

    def completed(self, gates: FeatureGates) -> Self:
        filter_s, binding_s = self.filter_timeout, self.binding_timeout
        if filter_s is None and gates["DRASchedulerFilterTimeout"]:
            filter_s = 10.0
        if binding_s is None and _may_bind_slowly(gates):
            binding_s = 600.0
        return structs.replace(self, filter_timeout=filter_s, binding_timeout=binding_s)

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        return [*self._filter_faults(f"{path}.filterTimeout", gates), *self._binding_faults(f"{path}.bindingTimeout", gates)]

    def _filter_faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        if self.filter_timeout is None:
            return []
        if not gates["DRASchedulerFilterTimeout"]:
            return [Fault("Forbidden", path, "DRASchedulingFilterTimeout feature gate is disabled")]
        wrong = self.filter_timeout < 0
        return [Fault("Invalid value", path, "must be zero or positive", _text(self.filter_timeout))] if wrong else []

    def _binding_faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        if self.binding_timeout is None:
            return []
        if not _may_bind_slowly(gates):
            text = "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled"
            return [Fault("Forbidden", path, text)]
        wrong = self.binding_timeout < 1
        return [Fault("Invalid value", path, "must be at least 1 second", _text(self.binding_timeout))] if wrong else []


def _may_bind_slowly(gates: FeatureGates) -> bool:
    return gates["DRADeviceBindingConditions"] and gates["DRAResourceClaimDeviceStatus"]


def _text(seconds: float) -> str:
    return format_duration(round(seconds * 1e9))
