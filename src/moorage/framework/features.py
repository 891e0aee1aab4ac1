"""Feature gates: the switches of kube-scheduler 1.36 that change what is decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.errors import Fault

__all__ = ["GATES", "FeatureGates"]

#: Gate → on by default in 1.36.
GATES: Final[Mapping[str, bool]] = {
    "DRAAdminAccess": True,
    "DRAConsumableCapacity": True,
    "DRADeviceBindingConditions": True,
    "DRADeviceTaintRules": False,
    "DRADeviceTaints": True,
    "DRAExtendedResource": True,
    "DRANodeAllocatableResources": False,
    "DRAPartitionableDevices": True,
    "DRAPrioritizedList": True,
    "DRASchedulerFilterTimeout": True,
    "DynamicResourceAllocation": True,
    "GangScheduling": False,
    "GenericWorkload": False,
    "InPlacePodLevelResourcesVerticalScaling": True,
    "InPlacePodVerticalScaling": True,
    "NodeDeclaredFeatures": True,
    "NodeInclusionPolicyInPodTopologySpread": True,
    "PodLevelResources": True,
    "SchedulerPopFromBackoffQ": True,
    "StorageCapacityScoring": False,
    "TaintTolerationComparisonOperators": False,
}


class FeatureGates:
    """Which gates are open. Ask with ``gates["Name"]``; a name that is not in ``GATES`` is a KeyError, so a typo is found."""

    def __init__(self, overrides: Mapping[str, bool] | None = None) -> None:
        self._open = {**GATES, **(overrides or {})}

    def __getitem__(self, gate: str) -> bool:
        return self._open[gate]

    @staticmethod
    def faults(overrides: Mapping[str, bool]) -> list[Fault]:
        """Return a fault for each gate that does not exist."""
        known = ", ".join(GATES)
        return [
            Fault("Unsupported value", f"featureGates.{gate}", f"known here: {known}", gate)
            for gate in overrides
            if gate not in GATES
        ]
