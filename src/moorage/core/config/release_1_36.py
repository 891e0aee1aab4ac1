"""The plugins of kube-scheduler 1.36, their extension points, and the default plugins.

The table of extension points covers plugins that are not registered here, so that a profile resolves to what kube-scheduler
would run even if Moorage has no plugin of that name.

Source  kube-scheduler 1.36.2, apis/config/v1/default_plugins.go, apis/config/validation/validation.go and framework/plugins
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.core.config.configuration import PluginRef
from moorage.framework.feature_gates import FeatureGates

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"

#: Plugins of earlier releases that are rejected by name wherever they are enabled or configured.
REMOVED_PLUGINS: Final = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")

#: Plugin → the extension points it implements.
PLUGIN_POINTS: Final[Mapping[str, tuple[str, ...]]] = {
    "DefaultBinder": ("bind",),
    "DefaultPreemption": ("preEnqueue", "postFilter"),
    "DynamicResources": ("preEnqueue", "preFilter", "filter", "postFilter", "score", "reserve", "preBind"),
    "GangScheduling": ("preEnqueue", "permit"),
    "ImageLocality": ("score",),
    "InterPodAffinity": ("preFilter", "filter", "preScore", "score"),
    "NodeAffinity": ("preFilter", "filter", "preScore", "score"),
    "NodeDeclaredFeatures": ("preFilter", "filter"),
    "NodeName": ("filter",),
    "NodePorts": ("preFilter", "filter"),
    "NodeResourcesBalancedAllocation": ("preScore", "score"),
    "NodeResourcesFit": ("preFilter", "filter", "preScore", "score", "placementScore"),
    "NodeUnschedulable": ("filter",),
    "NodeVolumeLimits": ("preFilter", "filter"),
    "PodGroupPodsCount": ("placementScore",),
    "PodTopologySpread": ("preFilter", "filter", "preScore", "score"),
    "PrioritySort": ("queueSort",),
    "SchedulingGates": ("preEnqueue",),
    "TaintToleration": ("filter", "preScore", "score"),
    "TopologyPlacementGenerator": ("placementGenerate",),
    "VolumeBinding": ("preFilter", "filter", "preScore", "score", "reserve", "preBind"),
    "VolumeRestrictions": ("preFilter", "filter"),
    "VolumeZone": ("preFilter", "filter"),
}

#: Plugins whose arguments are always validated with the document. (Those of NodeResourcesFit are validated when the plugin is
#: built, so invalid ones pass in a profile that does not run it.)
CHECKED_WHEN_LOADED: Final = frozenset(
    [
        "DefaultPreemption",
        "DynamicResources",
        "InterPodAffinity",
        "NodeAffinity",
        "NodeResourcesBalancedAllocation",
        "PodTopologySpread",
        "VolumeBinding",
    ]
)

#: The default plugins in order, with their weights.
_DEFAULTS: Final = (
    PluginRef(name="SchedulingGates"),
    PluginRef(name="PrioritySort"),
    PluginRef(name="NodeUnschedulable"),
    PluginRef(name="NodeName"),
    PluginRef(name="TaintToleration", weight=3),
    PluginRef(name="NodeAffinity", weight=2),
    PluginRef(name="NodePorts"),
    PluginRef(name="NodeResourcesFit", weight=1),
    PluginRef(name="VolumeRestrictions"),
    PluginRef(name="NodeVolumeLimits"),
    PluginRef(name="VolumeBinding"),
    PluginRef(name="VolumeZone"),
    PluginRef(name="PodTopologySpread", weight=2),
    PluginRef(name="InterPodAffinity", weight=2),
    PluginRef(name="DefaultPreemption"),
    PluginRef(name="NodeResourcesBalancedAllocation", weight=1),
    PluginRef(name="ImageLocality", weight=1),
    PluginRef(name="DefaultBinder"),
)

#: The default plugins of 1.30, which limits in-tree disks by default.
_WITH_DISK_LIMITS: Final = (
    *_DEFAULTS[:9],
    PluginRef(name="EBSLimits"),
    PluginRef(name="GCEPDLimits"),
    _DEFAULTS[9],
    PluginRef(name="AzureDiskLimits"),
    *_DEFAULTS[10:],
)


def default_plugins(gates: FeatureGates) -> tuple[PluginRef, ...]:
    """Return the default plugins of the gates' release, 1.29 or later, as entries of ``multiPoint``."""
    found = list(_WITH_DISK_LIMITS if gates.emulated.limits_in_tree_disks else _DEFAULTS)
    if "PodSchedulingReadiness" in gates.emulated.gates and not gates["PodSchedulingReadiness"]:
        del found[0]
    if gates["NodeDeclaredFeatures"]:
        found.append(PluginRef(name="NodeDeclaredFeatures"))
    if gates["DynamicResourceAllocation"]:
        # Before preemption: releasing an unused claim is better than evicting a running pod.
        at = next(i for i, plugin in enumerate(found) if plugin.name == "DefaultPreemption")
        found.insert(at, PluginRef(name="DynamicResources", weight=2))
    if gates["GangScheduling"]:
        found.append(PluginRef(name="GangScheduling"))
    if gates["TopologyAwareWorkloadScheduling"]:
        found += [PluginRef(name="TopologyPlacementGenerator"), PluginRef(name="PodGroupPodsCount", weight=1)]
    return tuple(one for one in found if one.name not in gates.emulated.lacks)
