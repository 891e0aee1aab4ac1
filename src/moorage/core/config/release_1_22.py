"""The defaults of a v1beta2 configuration: those of kube-scheduler 1.22, by extension point.

Resource scoring is a strategy of NodeResourcesFit, and the plugins that it replaces are rejected.

Source  kube-scheduler 1.22, apis/config/v1beta2/default_plugins.go and apis/config/validation/validation.go
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from moorage.core.config.configuration import PluginRef, PluginSet
from moorage.core.config.release_1_21 import API_VERSION as V1BETA1
from moorage.errors import Fault

API_VERSION: Final = "kubescheduler.config.k8s.io/v1beta2"

#: Plugin → the extension points it implements.
PLUGIN_POINTS: Final[Mapping[str, tuple[str, ...]]] = {
    "AzureDiskLimits": ("filter",),
    "CinderLimits": ("filter",),
    "DefaultBinder": ("bind",),
    "DefaultPreemption": ("postFilter",),
    "EBSLimits": ("filter",),
    "GCEPDLimits": ("filter",),
    "ImageLocality": ("score",),
    "InterPodAffinity": ("preFilter", "filter", "preScore", "score"),
    "NodeAffinity": ("preFilter", "filter", "preScore", "score"),
    "NodeName": ("filter",),
    "NodePorts": ("preFilter", "filter"),
    "NodeResourcesBalancedAllocation": ("score",),
    "NodeResourcesFit": ("preFilter", "filter", "score"),
    "NodeUnschedulable": ("filter",),
    "NodeVolumeLimits": ("filter",),
    "PodTopologySpread": ("preFilter", "filter", "preScore", "score"),
    "PrioritySort": ("queueSort",),
    "SelectorSpread": ("preScore", "score"),
    "TaintToleration": ("filter", "preScore", "score"),
    "VolumeBinding": ("preFilter", "filter", "score", "reserve", "preBind"),
    "VolumeRestrictions": ("preFilter", "filter"),
    "VolumeZone": ("filter",),
}

#: Plugins of v1beta1 that are rejected by name.
REMOVED_PLUGINS: Final = (
    "NodeLabel",
    "NodePreferAvoidPods",
    "NodeResourcesLeastAllocated",
    "NodeResourcesMostAllocated",
    "RequestedToCapacityRatio",
    "ServiceAffinity",
)

#: Of these plugins, those whose arguments are always validated in v1beta1.
CHECKED_IN_V1BETA1: Final = frozenset(
    ["NodeLabel", "NodeResourcesLeastAllocated", "NodeResourcesMostAllocated", "RequestedToCapacityRatio"]
)
_RESOURCE_SCORES: Final = ("NodeResourcesLeastAllocated", "NodeResourcesMostAllocated", "RequestedToCapacityRatio")

_NAMES: Final[Mapping[str, str]] = {
    "queueSort": "PrioritySort",
    "preFilter": """
        NodeResourcesFit NodePorts VolumeRestrictions PodTopologySpread InterPodAffinity VolumeBinding NodeAffinity
    """,
    "filter": """
        NodeUnschedulable NodeName TaintToleration NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions EBSLimits
        GCEPDLimits NodeVolumeLimits AzureDiskLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity
    """,
    "postFilter": "DefaultPreemption",
    "preScore": "InterPodAffinity PodTopologySpread TaintToleration NodeAffinity",
    "reserve": "VolumeBinding",
    "preBind": "VolumeBinding",
    "bind": "DefaultBinder",
}

_SCORES: Final = {
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "InterPodAffinity": 1,
    "NodeResourcesFit": 1,
    "NodeAffinity": 1,
    "PodTopologySpread": 2,
    "TaintToleration": 1,
}

#: Extension point → plugins in the order they run; scores with their weights.
DEFAULTS: Final[Mapping[str, tuple[PluginRef, ...]]] = {
    **{point: tuple(PluginRef(name=name) for name in names.split()) for point, names in _NAMES.items()},
    "score": tuple(PluginRef(name=name, weight=weight) for name, weight in _SCORES.items()),
}

#: Extension point → plugins that 1.27 adds: before NodeAffinity in PreFilter, and at the end of PreScore.
ADDED_BY_1_27: Final[Mapping[str, tuple[str, ...]]] = {
    "preFilter": ("VolumeZone",),
    "preScore": ("NodeResourcesFit", "NodeResourcesBalancedAllocation"),
}


def conflicts(scores: PluginSet, path: str) -> Iterator[Fault]:
    """Yield a fault if a v1beta1 profile scores by NodeResourcesFit and by plugins that it replaces.

    ``scores``: the profile's set with the defaults
    """
    others = [one.name for one in scores.enabled if one.name in _RESOURCE_SCORES]
    for i, one in enumerate(scores.enabled):
        if one.name == "NodeResourcesFit" and others:
            named = " ".join(map(json.dumps, others))
            text = f'was conflict with [{named}] in version "{V1BETA1}" (KubeSchedulerConfiguration is version "{V1BETA1}")'
            yield Fault("Invalid value", f"{path}.enabled[{i}]", text, one.name)
