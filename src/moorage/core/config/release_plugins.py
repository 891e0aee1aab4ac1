"""The plugins of kube-scheduler's releases, their extension points, and the default plugins, from ``release_plugins.toml``.

In 1.19 to 1.21 an algorithm provider is a plugin set for each extension point, into which a profile's own sets are merged.
ClusterAutoscalerProvider packs nodes and DefaultProvider spreads over them; otherwise they are equal. In v1beta2, resource
scoring is a strategy of NodeResourcesFit, and the plugins that it replaces are rejected.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from moorage.api.feature_gates import FeatureGates
from moorage.basis import table_of
from moorage.core.config.configuration import PluginRef, PluginSet
from moorage.errors import Fault

V1: Final = "kubescheduler.config.k8s.io/v1"
V1BETA2: Final = "kubescheduler.config.k8s.io/v1beta2"
V1BETA1: Final = "kubescheduler.config.k8s.io/v1beta1"
V1BETA3: Final = "kubescheduler.config.k8s.io/v1beta3"
KIND: Final = "KubeSchedulerConfiguration"
DEFAULT_PROVIDER: Final = "DefaultProvider"
PROVIDERS: Final = (DEFAULT_PROVIDER, "ClusterAutoscalerProvider")
#: The resource locks of 1.19 to 1.21: an object's annotation, a Lease, or both at once.
LOCKS: Final = ("endpoints", "configmaps", "leases", "endpointsleases", "configmapsleases")

#: Extension point → plugins in the order they run; scores with their weights.
Sets = Mapping[str, tuple[PluginRef, ...]]

_TABLE: Final[Mapping[str, Any]] = table_of("moorage.core.config", "release_plugins.toml")


def _points(release: str) -> Mapping[str, tuple[str, ...]]:
    return {plugin: tuple(points.split()) for plugin, points in _TABLE["points"][release].items()}


def _named(names: str) -> tuple[PluginRef, ...]:
    return tuple(PluginRef(name=name) for name in names.split())


def _weighted(items: Iterable[tuple[str, int]]) -> tuple[PluginRef, ...]:
    return tuple(PluginRef(name=name, weight=weight) for name, weight in items)


def _listed(version: str) -> tuple[PluginRef, ...]:
    parts = (one.split() for one in _TABLE["defaults"][version])
    return tuple(PluginRef(name=name, weight=int(weight[0])) if weight else PluginRef(name=name) for name, *weight in parts)


#: Plugin → the extension points it implements, in 1.36, 1.22 and 1.21.
POINTS_1_36: Final = _points("1.36")
POINTS_1_22: Final = _points("1.22")
POINTS_1_21: Final = _points("1.21")
#: Every extension point that a profile of 1.19 to 1.21 may configure, in the order kube-scheduler visits them.
POINTS: Final = (
    "preFilter", "filter", "postFilter", "reserve", "preScore", "score", "preBind", "bind", "postBind", "permit", "queueSort",
)  # fmt: skip

#: Plugins of earlier releases that v1 and v1beta2 reject by name wherever they are enabled or configured.
REMOVED_IN_V1: Final = tuple(_TABLE["removed"]["v1"].split())
REMOVED_IN_V1BETA2: Final = tuple(_TABLE["removed"]["v1beta2"].split())
#: Plugins whose arguments are always validated with the document, and those of 1.22 in v1beta1.
CHECKED_WHEN_LOADED: Final = frozenset(_TABLE["checked"]["v1"].split())
CHECKED_IN_V1BETA1: Final = frozenset(_TABLE["checked"]["v1beta1"].split())

_DEFAULTS: Final = _listed("v1")
_WITH_DISK_LIMITS: Final = _listed("1.30")
#: The defaults of a v1beta2 configuration: those of kube-scheduler 1.22, by extension point.
V1BETA2_DEFAULTS: Final[Sets] = {
    **{point: _named(names) for point, names in _TABLE["sets"]["v1beta2"].items()},
    "score": _weighted(_TABLE["scores"]["v1beta2"].items()),
}
#: Extension point → plugins that 1.27 adds: before NodeAffinity in PreFilter, and at the end of PreScore.
ADDED_BY_1_27: Final[Mapping[str, tuple[str, ...]]] = {
    "preFilter": ("VolumeZone",),
    "preScore": ("NodeResourcesFit", "NodeResourcesBalancedAllocation"),
}


def in_order_of_names(plugins: tuple[PluginRef, ...], gates: FeatureGates) -> tuple[PluginRef, ...]:
    """Return default plugins with NodeName before NodeUnschedulable if it runs first in the gates' release."""
    if not gates.emulated.filters_names_first:
        return plugins
    found = list(plugins)
    at = next(i for i, plugin in enumerate(found) if plugin.name == "NodeName")
    found[at - 1 : at + 1] = found[at], found[at - 1]
    return tuple(found)


def default_plugins(gates: FeatureGates) -> tuple[PluginRef, ...]:
    """Return the default plugins of the gates' release, 1.29 or later, as entries of ``multiPoint``."""
    found = list(in_order_of_names(_WITH_DISK_LIMITS if gates.emulated.limits_in_tree_disks else _DEFAULTS, gates))
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


def provider(name: str, gates: FeatureGates) -> Sets:
    """Return the plugin sets of one of ``PROVIDERS`` in the release of the gates."""
    series = gates.emulated.series
    named = {**_TABLE["sets"]["1.21"], **_TABLE["sets"].get(series, {})}
    sets = {point: _named(plugins) for point, plugins in named.items()}
    packs = name != DEFAULT_PROVIDER
    scores = {_packing(plugin) if packs else plugin: weight for plugin, weight in _TABLE["scores"]["1.21"].items()}
    if gates["VolumeCapacityPriority"]:
        scores["VolumeBinding"] = 1
    if not gates["DefaultPodTopologySpread"]:
        # PodTopologySpread does not spread pods without constraints, so SelectorSpread has to.
        sets["preScore"] += (PluginRef(name="SelectorSpread"),)
        scores["SelectorSpread"] = 1
    sets["score"] = _weighted(scores.items())
    return sets


def _packing(plugin: str) -> str:
    return "NodeResourcesMostAllocated" if plugin == "NodeResourcesLeastAllocated" else plugin


_RESOURCE_SCORES: Final = ("NodeResourcesLeastAllocated", "NodeResourcesMostAllocated", "RequestedToCapacityRatio")


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
