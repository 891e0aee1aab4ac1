"""The names that a Policy may use, and the plugins they map to.

Predicates always run in the order given here, not in the document's order; priorities are sorted by name. Two predicates are
mandatory.

Source  kube-scheduler 1.21, framework/plugins/legacy_registry.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = [
    "DEFAULT_PREDICATES", "DEFAULT_PRIORITIES", "EQUAL_PRIORITY", "MANDATORY_PREDICATES", "PREDICATES", "PRIORITIES",
    "predicate_name", "priority_name",
]  # fmt: skip

#: Gives every node the same score, so it is left out.
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

#: The predicates of a Policy that does not set them.
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

#: The priorities of a Policy that does not set them, with their weights.
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
    """Return the current name of a predicate."""
    return "PodFitsHostPorts" if name == "PodFitsPorts" else name


def priority_name(name: str) -> str:
    """Return the current name of a priority."""
    return "SelectorSpreadPriority" if name == "ServiceSpreadingPriority" else name
