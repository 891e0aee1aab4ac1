"""Feature gates of 1.36 that change scheduling decisions.

Source  kubernetes, pkg/features/kube_features.go and pkg/scheduler/framework/plugins/feature/feature.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.api.releases.release import ALPHA, BETA, STABLE, Gate

__all__ = ["DEPENDENT_GATES_1_36", "GATES_1_36"]

_DRA = ("DynamicResourceAllocation",)
_DECLARED = ("NodeDeclaredFeatures",)

#: Gates without effect on decisions that cannot be open while one of ``GATES_1_36`` is closed.
DEPENDENT_GATES_1_36: Final[Mapping[str, Gate]] = {
    "DRAResourceClaimGranularStatusAuthorization": Gate(True, BETA, needs=("DRAResourceClaimDeviceStatus",)),
    "ExtendWebSocketsToKubelet": Gate(True, BETA, needs=_DECLARED),
    "InPlacePodVerticalScalingInitContainers": Gate(True, BETA, needs=_DECLARED),
    "PodLevelResourceManagers": Gate(False, ALPHA, needs=("PodLevelResources",)),
    "RestartAllContainersOnContainerExits": Gate(True, BETA, needs=_DECLARED),
    "UserNamespacesHostNetworkSupport": Gate(False, ALPHA, needs=_DECLARED),
}

#: Every gate that kube-scheduler's decisions depend on, and ``WorkloadWithJob``, which the embedded controllers use.
GATES_1_36: Final[Mapping[str, Gate]] = {
    "DRAAdminAccess": Gate(True, STABLE, locked=True, needs=_DRA),
    "DRAConsumableCapacity": Gate(True, BETA, needs=_DRA),
    "DRADeviceBindingConditions": Gate(True, BETA, needs=("DRAResourceClaimDeviceStatus", *_DRA)),
    "DRADeviceTaintRules": Gate(False, BETA, needs=("DRADeviceTaints",)),
    "DRADeviceTaints": Gate(True, BETA, needs=_DRA),
    "DRAExtendedResource": Gate(True, BETA, needs=_DRA),
    "DRAListTypeAttributes": Gate(False, ALPHA, needs=_DRA),
    "DRANodeAllocatableResources": Gate(False, ALPHA, needs=_DRA),
    "DRAPartitionableDevices": Gate(True, BETA, needs=_DRA),
    "DRAPrioritizedList": Gate(True, STABLE, needs=_DRA),
    "DRAResourceClaimDeviceStatus": Gate(True, BETA),
    "DRASchedulerFilterTimeout": Gate(True, BETA, needs=_DRA),
    "DRAWorkloadResourceClaims": Gate(False, ALPHA, needs=(*_DRA, "GenericWorkload")),
    "DynamicResourceAllocation": Gate(True, STABLE, locked=True),
    "GangScheduling": Gate(False, ALPHA, needs=("GenericWorkload",)),
    "GenericWorkload": Gate(False, ALPHA),
    "InPlacePodLevelResourcesVerticalScaling": Gate(
        True, BETA, needs=("InPlacePodVerticalScaling", "NodeDeclaredFeatures", "PodLevelResources")
    ),
    "InPlacePodVerticalScaling": Gate(True, STABLE, locked=True),
    "MatchLabelKeysInPodTopologySpread": Gate(True, BETA),
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": Gate(True, BETA, needs=("MatchLabelKeysInPodTopologySpread",)),
    "NodeDeclaredFeatures": Gate(True, BETA),
    "NodeInclusionPolicyInPodTopologySpread": Gate(True, STABLE, locked=True),
    "NominatedNodeNameForExpectation": Gate(True, BETA),
    "OpportunisticBatching": Gate(True, BETA),
    "PodLevelResources": Gate(True, BETA),
    "SchedulerAsyncAPICalls": Gate(False, BETA),
    "SchedulerAsyncPreemption": Gate(True, BETA),
    "SchedulerPopFromBackoffQ": Gate(True, BETA),
    "SchedulerQueueingHints": Gate(True, STABLE, locked=True),
    "SidecarContainers": Gate(True, STABLE, locked=True),
    "StorageCapacityScoring": Gate(False, ALPHA),
    "TaintTolerationComparisonOperators": Gate(False, ALPHA),
    "TopologyAwareWorkloadScheduling": Gate(False, ALPHA, needs=("GenericWorkload",)),
    "VolumeAttributesClass": Gate(True, STABLE, locked=True),
    "VolumeLimitScaling": Gate(False, ALPHA),
    "WorkloadAwarePreemption": Gate(False, ALPHA, needs=("GangScheduling",)),
    "WorkloadWithJob": Gate(False, ALPHA, needs=("GenericWorkload",)),
}
