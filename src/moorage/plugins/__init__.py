"""The built-in plugins, one module each. To add a plugin, write its module and list its class in ``BUILTIN``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api.releases import RELEASES, TODAY, Release
from moorage.framework.registry import Registry
from moorage.plugins.default_binder import DefaultBinder
from moorage.plugins.default_preemption import DefaultPreemption
from moorage.plugins.dynamic_resources import DynamicResources
from moorage.plugins.gang_scheduling import GangScheduling
from moorage.plugins.image_locality import ImageLocality
from moorage.plugins.inter_pod_affinity import InterPodAffinity
from moorage.plugins.node_affinity import NodeAffinity
from moorage.plugins.node_declared_features import NodeDeclaredFeatures
from moorage.plugins.node_name import NodeName
from moorage.plugins.node_ports import NodePorts
from moorage.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.plugins.node_unschedulable import NodeUnschedulable
from moorage.plugins.node_volume_limits import NodeVolumeLimits
from moorage.plugins.pod_group_pods_count import PodGroupPodsCount
from moorage.plugins.pod_topology_spread import PodTopologySpread
from moorage.plugins.priority_sort import PrioritySort
from moorage.plugins.scheduling_gates import SchedulingGates
from moorage.plugins.shared.releases import PLUGINS_1_21, VARIANTS
from moorage.plugins.taint_toleration import TaintToleration
from moorage.plugins.topology_placement_generator import TopologyPlacementGenerator
from moorage.plugins.volume_binding import VolumeBinding
from moorage.plugins.volume_restrictions import VolumeRestrictions
from moorage.plugins.volume_zone import VolumeZone

__all__ = ["BUILTIN", "builtin_registry"]

#: Every built-in plugin class, sorted by name. The order has no effect on scheduling.
BUILTIN: tuple[Any, ...] = (
    DefaultBinder,
    DefaultPreemption,
    DynamicResources,
    GangScheduling,
    ImageLocality,
    InterPodAffinity,
    NodeAffinity,
    NodeDeclaredFeatures,
    NodeName,
    NodePorts,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    NodeUnschedulable,
    NodeVolumeLimits,
    PodGroupPodsCount,
    PodTopologySpread,
    PrioritySort,
    SchedulingGates,
    TaintToleration,
    TopologyPlacementGenerator,
    VolumeBinding,
    VolumeRestrictions,
    VolumeZone,
)


def builtin_registry(release: str = TODAY) -> Registry:
    """Return the registry of a release's built-in plugins. The current one also holds plugins that Kubernetes has removed."""
    found = RELEASES[release]
    return Registry(PLUGINS_1_21.values() if found.legacy_flags else _plugins_of(found))


def _plugins_of(release: Release) -> Iterator[Any]:
    removed = (PLUGINS_1_21[name] for name in release.removed_plugins)
    for cls in (*BUILTIN, *removed):
        if cls.name not in release.lacks:
            ended = release.variants.get(cls.name)
            yield cls if ended is None else VARIANTS[cls.name, ended]
