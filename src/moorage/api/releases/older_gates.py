"""Feature gates of 1.22 to 1.29 that change scheduling decisions: what differs from the next release.

Source  kubernetes 1.22 to 1.29, pkg/features/kube_features.go
"""

from __future__ import annotations

from typing import Final

from moorage.api.releases.earlier_gates import GATES_1_30, gates_before
from moorage.api.releases.release import ALPHA, BETA, STABLE, Gate

__all__ = ["GATES_1_22", "GATES_1_23", "GATES_1_24", "GATES_1_25", "GATES_1_26", "GATES_1_27", "GATES_1_28", "GATES_1_29"]

_ON: Final = Gate(True, BETA)
_OFF: Final = Gate(False, ALPHA)

GATES_1_29: Final = gates_before(GATES_1_30, {"MinDomainsInPodTopologySpread": _ON, "PodSchedulingReadiness": _ON})
GATES_1_28: Final = gates_before(GATES_1_29, {"ReadWriteOncePod": _ON, "SidecarContainers": _OFF}, "VolumeAttributesClass")
GATES_1_27: Final = gates_before(GATES_1_28, {}, "SchedulerQueueingHints SidecarContainers")
GATES_1_26: Final = gates_before(
    GATES_1_27,
    {
        "MatchLabelKeysInPodTopologySpread": _OFF,
        "MinDomainsInPodTopologySpread": Gate(False, BETA),
        "PodSchedulingReadiness": _OFF,
        "ReadWriteOncePod": _OFF,
    },
    "InPlacePodVerticalScaling",
)
GATES_1_25: Final = gates_before(
    GATES_1_26, {"NodeInclusionPolicyInPodTopologySpread": _OFF}, "DynamicResourceAllocation PodSchedulingReadiness"
)
GATES_1_24: Final = gates_before(
    GATES_1_25,
    {
        **dict.fromkeys(("CSIMigration", "CSIMigrationAWS", "CSIMigrationGCE", "LocalStorageCapacityIsolation"), _ON),
        "CSIMigrationAzureDisk": Gate(True, STABLE),
        "CSIMigrationPortworx": _OFF,
        "MinDomainsInPodTopologySpread": _OFF,
    },
    "MatchLabelKeysInPodTopologySpread NodeInclusionPolicyInPodTopologySpread",
)
GATES_1_23: Final = gates_before(
    GATES_1_24,
    {
        "CSIMigrationAzureDisk": _ON,
        **dict.fromkeys(
            (
                "CSIMigrationOpenStack",
                "CSIStorageCapacity",
                "DefaultPodTopologySpread",
                "PodAffinityNamespaceSelector",
                "PodOverhead",
                "PreferNominatedNode",
            ),
            _ON,
        ),
    },
    "MinDomainsInPodTopologySpread",
)
GATES_1_22: Final = gates_before(
    GATES_1_23,
    {
        **dict.fromkeys(("CSIMigrationAWS", "CSIMigrationAzureDisk", "CSIMigrationGCE"), Gate(False, BETA)),
        "GenericEphemeralVolume": _ON,
    },
    "CSIMigrationPortworx",
)
