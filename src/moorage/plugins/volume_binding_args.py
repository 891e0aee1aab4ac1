"""Arguments of VolumeBinding: the bind timeout, and how to score nodes by the use of their storage.

Source  kube-scheduler 1.36.2, apis/config/v1/defaults.go and apis/config/validation/validation_pluginargs.go
"""

from __future__ import annotations

from typing import Self

from msgspec import structs

from moorage.errors import Fault
from moorage.framework.args import PluginArgs
from moorage.framework.features import FeatureGates
from moorage.plugins.resources.scoring_strategies import UtilizationPoint, shape_faults

__all__ = ["VolumeBindingArgs"]

#: Static volumes with more free space score higher.
_DEFAULT_SHAPE = (UtilizationPoint(utilization=0, score=10), UtilizationPoint(utilization=100, score=0))


class VolumeBindingArgs(PluginArgs, frozen=True):
    """``shape`` requires the feature gate StorageCapacityScoring."""

    bind_timeout_seconds: int = 600
    shape: tuple[UtilizationPoint, ...] | None = None

    def completed(self, gates: FeatureGates) -> Self:
        scores = gates["StorageCapacityScoring"] and not self.shape
        return structs.replace(self, shape=_DEFAULT_SHAPE) if scores else self

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        faults = []
        if self.bind_timeout_seconds < 0:
            text = "invalid BindTimeoutSeconds, should not be a negative value"
            faults.append(Fault("Invalid value", f"{path}.bindTimeoutSeconds", text, self.bind_timeout_seconds))
        if gates["StorageCapacityScoring"]:
            faults += shape_faults(self.shape or (), f"{path}.shape", gates.emulated)
        elif self.shape is not None:
            text = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
            faults.append(Fault("Invalid value", f"{path}.shape", text, self.shape))
        return faults
