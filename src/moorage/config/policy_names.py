"""The names that a Policy may use, and the plugins they stand for.

Predicates always run in the order given here, whatever the order in the document; priorities are sorted by name. Two
predicates cannot be left out.

Source  kube-scheduler 1.21, framework/plugins/legacy_registry.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = [
    "DEFAULT_PREDICATES", "DEFAULT_PRIORITIES", "EQUAL_PRIORITY", "MANDATORY_PREDICATES", "PREDICATES", "PRIORITIES",
    "predicate_name", "priority_name",
]  # fmt: skip

#: Scores every node alike, so it is left out.
EQUAL_PRIORITY: Final = "EqualPriority"

#: Predicate → (extension point, plugin) pairs, in the order they are added to the points. The order of the predicates is the
#: order in which they run.
PREDICATES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "CheckNodeUnschedulable": (("filter", "NodeUnschedulable"),),
    "GeneralPredicates": (
        ("filter", "NodeResourcesFit"),
        ("preFilter", "NodeResourcesFit"),
        ("filter", "NodeName"),
        ("filter", "NodePorts"),
        ("preFilter", "NodePorts"),
        ("filter", "NodeAffinity"),
        ("preFilter", "NodeAffinity"),
    ),
    "HostName": (("filter", "NodeName"),),
    "PodFitsHostPorts": (("filter", "NodePorts"), ("preFilter", "NodePorts")),
    "MatchNodeSelector": (("filter", "NodeAffinity"), ("preFilter", "NodeAffinity")),
    "PodFitsResources": (("filter", "NodeResourcesFit"), ("preFilter", "NodeResourcesFit")),
    "NoDiskConflict": (("filter", "VolumeRestrictions"),),
    "PodToleratesNodeTaints": (("filter", "TaintToleration"),),
    "CheckNodeLabelPresence": (("filter", "NodeLabel"),),
    "CheckServiceAffinity": (("filter", "ServiceAffinity"), ("preFilter", "ServiceAffinity")),
    "MaxEBSVolumeCount": (("filter", "EBSLimits"),),
    "MaxGCEPDVolumeCount": (("filter", "GCEPDLimits"),),
    "MaxCSIVolumeCountPred": (("filter", "NodeVolumeLimits"),),
    "MaxAzureDiskVolumeCount": (("filter", "AzureDiskLimits"),),
    "MaxCinderVolumeCount": (("filter", "CinderLimits"),),
    "CheckVolumeBinding": (
        ("preFilter", "VolumeBinding"),
        ("filter", "VolumeBinding"),
        ("reserve", "VolumeBinding"),
        ("preBind", "VolumeBinding"),
    ),
    "NoVolumeZoneConflict": (("filter", "VolumeZone"),),
    "EvenPodsSpread": (("preFilter", "PodTopologySpread"), ("filter", "PodTopologySpread")),
    "MatchInterPodAffinity": (("filter", "InterPodAffinity"), ("preFilter", "InterPodAffinity")),
}

MANDATORY_PREDICATES: Final = ("PodToleratesNodeTaints", "CheckNodeUnschedulable")

#: What runs where a Policy does not speak of predicates.
DEFAULT_PREDICATES: Final = (
    "NoVolumeZoneConflict", "MaxEBSVolumeCount", "MaxGCEPDVolumeCount", "MaxAzureDiskVolumeCount", "MaxCSIVolumeCountPred",
    "MatchInterPodAffinity", "NoDiskConflict", "GeneralPredicates", "PodToleratesNodeTaints", "CheckVolumeBinding",
    "CheckNodeUnschedulable", "EvenPodsSpread",
)  # fmt: skip

#: Priority → the plugin that scores, and whether it also runs in PreScore.
PRIORITIES: Final[Mapping[str, tuple[str, bool]]] = {
    "BalancedResourceAllocation": ("NodeResourcesBalancedAllocation", False),
    "EvenPodsSpreadPriority": ("PodTopologySpread", True),
    "ImageLocalityPriority": ("ImageLocality", False),
    "InterPodAffinityPriority": ("InterPodAffinity", True),
    "LeastRequestedPriority": ("NodeResourcesLeastAllocated", False),
    "MostRequestedPriority": ("NodeResourcesMostAllocated", False),
    "NodeAffinityPriority": ("NodeAffinity", True),
    "NodeLabel": ("NodeLabel", False),
    "NodePreferAvoidPodsPriority": ("NodePreferAvoidPods", False),
    "RequestedToCapacityRatio": ("RequestedToCapacityRatio", False),
    "SelectorSpreadPriority": ("SelectorSpread", True),
    "ServiceAffinity": ("ServiceAffinity", False),
    "TaintTolerationPriority": ("TaintToleration", True),
}

#: What runs, with its weight, where a Policy does not speak of priorities.
DEFAULT_PRIORITIES: Final[Mapping[str, int]] = {
    "SelectorSpreadPriority": 1,
    "InterPodAffinityPriority": 1,
    "LeastRequestedPriority": 1,
    "BalancedResourceAllocation": 1,
    "NodePreferAvoidPodsPriority": 10000,
    "NodeAffinityPriority": 1,
    "TaintTolerationPriority": 1,
    "ImageLocalityPriority": 1,
    "EvenPodsSpreadPriority": 2,
}


def predicate_name(name: str) -> str:
    """Return a predicate's name of today for one of before."""
    return "PodFitsHostPorts" if name == "PodFitsPorts" else name


def priority_name(name: str) -> str:
    """Return a priority's name of today for one of before."""
    return "SelectorSpreadPriority" if name == "ServiceSpreadingPriority" else name
