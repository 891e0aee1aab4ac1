"""The plugins of kube-scheduler 1.19, 1.20 and 1.21, their extension points, and the sets of the two algorithm providers.

A provider is a plugin set for each extension point, into which a profile's own sets are merged. ClusterAutoscalerProvider packs
nodes and DefaultProvider spreads over them; otherwise they are equal.

Source  kube-scheduler 1.21, algorithmprovider/registry.go and framework/plugins; 1.20 and 1.19, algorithmprovider/registry.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.core.config.configuration import PluginRef
from moorage.framework.feature_gates import FeatureGates

API_VERSION: Final = "kubescheduler.config.k8s.io/v1beta1"
DEFAULT_PROVIDER: Final = "DefaultProvider"
PROVIDERS: Final = (DEFAULT_PROVIDER, "ClusterAutoscalerProvider")
#: The resource locks of these releases: an object's annotation, a Lease, or both at once.
LOCKS: Final = ("endpoints", "configmaps", "leases", "endpointsleases", "configmapsleases")

#: Extension point → plugins in the order they run; scores with their weights.
Sets = Mapping[str, tuple[PluginRef, ...]]

#: Every extension point that a profile may configure, in the order kube-scheduler visits them.
POINTS: Final = (
    "preFilter", "filter", "postFilter", "reserve", "preScore", "score", "preBind", "bind", "postBind", "permit", "queueSort",
)  # fmt: skip

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
    "NodeLabel": ("filter", "score"),
    "NodeName": ("filter",),
    "NodePorts": ("preFilter", "filter"),
    "NodePreferAvoidPods": ("score",),
    "NodeResourcesBalancedAllocation": ("score",),
    "NodeResourcesFit": ("preFilter", "filter"),
    "NodeResourcesLeastAllocated": ("score",),
    "NodeResourcesMostAllocated": ("score",),
    "NodeUnschedulable": ("filter",),
    "NodeVolumeLimits": ("filter",),
    "PodTopologySpread": ("preFilter", "filter", "preScore", "score"),
    "PrioritySort": ("queueSort",),
    "RequestedToCapacityRatio": ("score",),
    "SelectorSpread": ("preScore", "score"),
    "ServiceAffinity": ("preFilter", "filter", "score"),
    "TaintToleration": ("filter", "preScore", "score"),
    "VolumeBinding": ("preFilter", "filter", "score", "reserve", "preBind"),
    "VolumeRestrictions": ("filter",),
    "VolumeZone": ("filter",),
}

#: DefaultProvider of 1.21.
_DEFAULT: Final[Mapping[str, str]] = {
    "queueSort": "PrioritySort",
    "preFilter": "NodeResourcesFit NodePorts PodTopologySpread InterPodAffinity VolumeBinding NodeAffinity",
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

#: The points that differ in 1.19, 1.20 and 1.22.
_OTHERS: Final[Mapping[str, Mapping[str, str]]] = {
    "1.19": {
        "preFilter": "NodeResourcesFit NodePorts PodTopologySpread InterPodAffinity VolumeBinding",
        "filter": """
            NodeUnschedulable NodeResourcesFit NodeName NodePorts NodeAffinity VolumeRestrictions TaintToleration EBSLimits
            GCEPDLimits NodeVolumeLimits AzureDiskLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity
        """,
        "preScore": "InterPodAffinity PodTopologySpread TaintToleration",
    },
    "1.20": {
        "preFilter": "NodeResourcesFit NodePorts PodTopologySpread InterPodAffinity VolumeBinding",
        "preScore": "InterPodAffinity PodTopologySpread TaintToleration",
    },
    "1.22": {
        "preFilter": """
            NodeResourcesFit NodePorts VolumeRestrictions PodTopologySpread InterPodAffinity VolumeBinding NodeAffinity
        """,
    },
}

_SCORES: Final = {
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "InterPodAffinity": 1,
    "NodeResourcesLeastAllocated": 1,
    "NodeAffinity": 1,
    "NodePreferAvoidPods": 10000,
    "PodTopologySpread": 2,
    "TaintToleration": 1,
}


def provider(name: str, gates: FeatureGates) -> Sets:
    """Return the plugin sets of one of ``PROVIDERS`` in the release of the gates."""
    named = {**_DEFAULT, **_OTHERS.get(gates.emulated.series, {})}
    sets = {point: tuple(PluginRef(name=plugin) for plugin in plugins.split()) for point, plugins in named.items()}
    packs = name != DEFAULT_PROVIDER
    scores = {_packing(plugin) if packs else plugin: weight for plugin, weight in _SCORES.items()}
    if gates["VolumeCapacityPriority"]:
        scores["VolumeBinding"] = 1
    if not gates["DefaultPodTopologySpread"]:
        # PodTopologySpread does not spread pods without constraints, so SelectorSpread has to.
        sets["preScore"] += (PluginRef(name="SelectorSpread"),)
        scores["SelectorSpread"] = 1
    sets["score"] = tuple(PluginRef(name=plugin, weight=weight) for plugin, weight in scores.items())
    return sets


def _packing(plugin: str) -> str:
    return "NodeResourcesMostAllocated" if plugin == "NodeResourcesLeastAllocated" else plugin
