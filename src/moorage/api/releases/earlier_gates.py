"""Feature gates of 1.30 to 1.35 that change scheduling decisions: what differs from the next release.

Source  kubernetes 1.30 to 1.35, pkg/features/kube_features.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.api.releases.gates_1_36 import GATES_1_36
from moorage.api.releases.release import ALPHA, BETA, STABLE, Gate

__all__ = ["GATES_1_30", "GATES_1_31", "GATES_1_32", "GATES_1_33", "GATES_1_34", "GATES_1_35", "gates_before"]

_DRA: Final = ("DynamicResourceAllocation",)
_OFF: Final = Gate(False, ALPHA)


def gates_before(newer: Mapping[str, Gate], changed: Mapping[str, Gate], later: str = "") -> Mapping[str, Gate]:
    """Return the gates of a release: those of the next one, without the ``later`` ones, and with the ``changed`` ones."""
    gone = frozenset(later.split())
    return {**{name: gate for name, gate in newer.items() if name not in gone}, **changed}


GATES_1_35: Final = gates_before(
    GATES_1_36,
    {
        "CSIMigrationPortworx": Gate(True, STABLE, locked=True),
        "DRAAdminAccess": Gate(True, BETA, needs=_DRA),
        "DRAConsumableCapacity": Gate(False, ALPHA, needs=_DRA),
        "DRADeviceBindingConditions": Gate(False, ALPHA, needs=("DRAResourceClaimDeviceStatus", *_DRA)),
        "DRADeviceTaintRules": Gate(False, ALPHA, needs=("DRADeviceTaints",)),
        "DRADeviceTaints": Gate(False, ALPHA, needs=_DRA),
        "DRAExtendedResource": Gate(False, ALPHA, needs=_DRA),
        "DRAPartitionableDevices": Gate(False, ALPHA, needs=_DRA),
        "DRAPrioritizedList": Gate(True, BETA, needs=_DRA),
        "InPlacePodLevelResourcesVerticalScaling": Gate(
            False, ALPHA, needs=("InPlacePodVerticalScaling", "NodeDeclaredFeatures", "PodLevelResources")
        ),
        "NodeDeclaredFeatures": _OFF,
        "VolumeAttributesClass": Gate(True, STABLE),
    },
    """
    DRAListTypeAttributes DRANodeAllocatableResources DRAWorkloadResourceClaims TopologyAwareWorkloadScheduling
    WorkloadAwarePreemption WorkloadWithJob
    """,
)

#: Up to 1.34 no gate checks the gates that it needs.
GATES_1_34: Final = {
    name: gate._replace(needs=())
    for name, gate in gates_before(
        GATES_1_35,
        {
            "DynamicResourceAllocation": Gate(True, STABLE),
            "InPlacePodVerticalScaling": Gate(True, BETA),
            "NominatedNodeNameForExpectation": _OFF,
        },
        """
        DRADeviceTaintRules GangScheduling GenericWorkload InPlacePodLevelResourcesVerticalScaling NodeDeclaredFeatures
        OpportunisticBatching TaintTolerationComparisonOperators VolumeLimitScaling
        """,
    ).items()
}

GATES_1_33: Final = gates_before(
    GATES_1_34,
    {
        "DRAAdminAccess": _OFF,
        "DRAPrioritizedList": _OFF,
        "DynamicResourceAllocation": Gate(False, BETA),
        "PodLevelResources": _OFF,
        "SchedulerQueueingHints": Gate(True, BETA),
        "VolumeAttributesClass": Gate(False, BETA),
    },
    """
    DRAConsumableCapacity DRADeviceBindingConditions DRAExtendedResource DRASchedulerFilterTimeout
    MatchLabelKeysInPodTopologySpreadSelectorMerge NominatedNodeNameForExpectation SchedulerAsyncAPICalls
    """,
)

GATES_1_32: Final = gates_before(
    GATES_1_33,
    {
        "CSIMigrationPortworx": Gate(True, BETA),
        "DRAResourceClaimDeviceStatus": _OFF,
        "InPlacePodVerticalScaling": _OFF,
        "NodeInclusionPolicyInPodTopologySpread": Gate(True, BETA),
        "SchedulerAsyncPreemption": _OFF,
        "SidecarContainers": Gate(True, BETA),
        "VolumeCapacityPriority": _OFF,
    },
    "DRADeviceTaints DRAPartitionableDevices DRAPrioritizedList SchedulerPopFromBackoffQ StorageCapacityScoring",
)

GATES_1_31: Final = gates_before(
    GATES_1_32,
    {"DynamicResourceAllocation": _OFF, "SchedulerQueueingHints": Gate(False, BETA)},
    "DRAAdminAccess DRAResourceClaimDeviceStatus PodLevelResources SchedulerAsyncPreemption",
)

GATES_1_30: Final = gates_before(GATES_1_31, {"CSIMigrationPortworx": Gate(False, BETA), "VolumeAttributesClass": _OFF})
