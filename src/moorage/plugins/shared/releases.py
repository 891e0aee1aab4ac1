"""The plugins of each Kubernetes release, and the class that implements each in that release.

``PLUGINS_1_21`` lists the plugins of 1.21, which stands for 1.19 to 1.21. A profile of the current release may still name a
plugin that Kubernetes has removed; the plugin then behaves as in 1.21. A module is imported when one of its classes is asked
for, so that the current release does not load the rules of all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, Generic, TypeVar

_K = TypeVar("_K")


class _Classes(Mapping[_K, Any], Generic[_K]):
    """Classes by key; ``where``: key → the module and the name of the class."""

    def __init__(self, where: Mapping[_K, tuple[str, str]]) -> None:
        self._where = where

    def __getitem__(self, key: _K) -> Any:
        module, name = self._where[key]
        return getattr(import_module(module), name)

    def __iter__(self) -> Iterator[_K]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)


#: Module → the classes of 1.21. A class of a plugin whose rule has changed since ends in ``V121``.
_MODULES_1_21: Final = {
    "moorage.plugins.default_binder": "DefaultBinder",
    "moorage.plugins.node_name": "NodeName",
    "moorage.plugins.node_ports": "NodePorts",
    "moorage.plugins.node_unschedulable": "NodeUnschedulable",
    "moorage.plugins.priority_sort": "PrioritySort",
    "moorage.plugins.earlier.default_preemption": "DefaultPreemptionV121",
    "moorage.plugins.earlier.image_locality": "ImageLocalityV121",
    "moorage.plugins.v1_21.in_tree_limits": "AzureDiskLimits CinderLimits EBSLimits GCEPDLimits",
    "moorage.plugins.earlier.inter_pod_affinity": "InterPodAffinityV121",
    "moorage.plugins.earlier.node_affinity": "NodeAffinityV121",
    "moorage.plugins.v1_21.node_label": "NodeLabel",
    "moorage.plugins.v1_21.node_prefer_avoid_pods": "NodePreferAvoidPods",
    "moorage.plugins.earlier.balanced_allocation": "NodeResourcesBalancedAllocationV121",
    "moorage.plugins.earlier.node_resources_fit": "NodeResourcesFitV121",
    "moorage.plugins.v1_21.node_resources_least_allocated": "NodeResourcesLeastAllocated",
    "moorage.plugins.v1_21.node_resources_most_allocated": "NodeResourcesMostAllocated",
    "moorage.plugins.earlier.node_volume_limits": "NodeVolumeLimitsV121",
    "moorage.plugins.earlier.pod_topology_spread": "PodTopologySpreadV121",
    "moorage.plugins.v1_21.requested_to_capacity_ratio": "RequestedToCapacityRatio",
    "moorage.plugins.v1_21.selector_spread": "SelectorSpread",
    "moorage.plugins.v1_21.service_affinity": "ServiceAffinity",
    "moorage.plugins.earlier.taint_toleration": "TaintTolerationV121",
    "moorage.plugins.earlier.volume_binding": "VolumeBindingV121",
    "moorage.plugins.earlier.volume_restrictions": "VolumeRestrictionsV121",
    "moorage.plugins.earlier.volume_zone": "VolumeZoneV121",
}

#: Module → plugin → the releases in which its rules ended; the class of EBSLimits until 1.26 is ``EBSLimitsV126``. Those of
#: ``later`` are named for the release in which they begin.
_MODULES: Final[Mapping[str, Mapping[str, str]]] = {
    "moorage.plugins.earlier.balanced_allocation": {"NodeResourcesBalancedAllocation": "1.24 1.26 1.32 1.34 1.35"},
    "moorage.plugins.earlier.default_preemption": {"DefaultPreemption": "1.22 1.23 1.26 1.28 1.34.7"},
    "moorage.plugins.earlier.disk_limits": {
        "AzureDiskLimits": "1.26 1.29 1.31", "CinderLimits": "1.29 1.31", "EBSLimits": "1.26 1.29 1.31",
        "GCEPDLimits": "1.27 1.29 1.31",
    },
    "moorage.plugins.earlier.dynamic_resources": {"DynamicResources": "1.33 1.34 1.35 1.35.4 1.36.0 1.36.2"},
    "moorage.plugins.earlier.image_locality": {"ImageLocality": "1.28 1.29 1.35"},
    "moorage.plugins.earlier.inter_pod_affinity": {"InterPodAffinity": "1.26 1.27 1.33 1.35"},
    "moorage.plugins.earlier.node_affinity": {"NodeAffinity": "1.23 1.26 1.29"},
    "moorage.plugins.earlier.node_ports": {"NodePorts": "1.32"},
    "moorage.plugins.earlier.node_resources_fit": {
        "NodeResourcesFit": "1.23 1.24 1.25 1.26 1.27 1.29 1.31 1.32 1.33 1.34 1.35",
    },
    "moorage.plugins.earlier.node_volume_limits": {"NodeVolumeLimits": "1.22 1.24 1.26 1.27 1.29 1.31 1.32 1.35"},
    "moorage.plugins.earlier.pod_topology_spread": {"PodTopologySpread": "1.23 1.26 1.27 1.35"},
    "moorage.plugins.earlier.resource_scores": {
        "NodeResourcesLeastAllocated": "1.22", "NodeResourcesMostAllocated": "1.22", "RequestedToCapacityRatio": "1.22",
    },
    "moorage.plugins.earlier.selector_spread": {"SelectorSpread": "1.28"},
    "moorage.plugins.earlier.taint_toleration": {"TaintToleration": "1.23 1.34.1"},
    "moorage.plugins.earlier.volume_binding": {"VolumeBinding": "1.22 1.23 1.24 1.26 1.28 1.29 1.32 1.33"},
    "moorage.plugins.earlier.volume_restrictions": {"VolumeRestrictions": "1.26 1.28 1.33"},
    "moorage.plugins.earlier.volume_zone": {"VolumeZone": "1.26 1.28"},
    "moorage.plugins.later.default_preemption": {"DefaultPreemption": "1.37"},
    "moorage.plugins.later.dynamic_resources": {"DynamicResources": "1.37"},
    "moorage.plugins.later.gang_scheduling": {"GangScheduling": "1.37"},
    "moorage.plugins.later.image_locality": {"ImageLocality": "1.37"},
}  # fmt: skip

_IN_TREE: Final = "moorage.plugins.v1_21.in_tree_limits"

#: Plugin → its class in 1.21.
PLUGINS_1_21: Final = _Classes(
    dict(
        sorted((name.removesuffix("V121"), (module, name)) for module, names in _MODULES_1_21.items() for name in names.split())
    )
)

#: Plugin, and the release in which its rule ended → the class with that rule. ``Release.variants`` names them.
VARIANTS: Final = _Classes(
    {(name, "1.22"): (_IN_TREE, name) for name in _MODULES_1_21[_IN_TREE].split()}
    | {
        (plugin, release): (module, f"{plugin}V{release.replace('.', '')}")
        for module, plugins in _MODULES.items()
        for plugin, releases in plugins.items()
        for release in releases.split()
    }
)
