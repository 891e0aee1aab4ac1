"""The built-in plugins: one rule a file. To add one, write its file and list its class in ``BUILTIN``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moorage.framework.registry import Registry
from moorage.plugins.default_binder import DefaultBinder
from moorage.plugins.default_preemption import DefaultPreemption
from moorage.plugins.dynamic_resources import DynamicResources
from moorage.plugins.image_locality import ImageLocality
from moorage.plugins.inter_pod_affinity import InterPodAffinity
from moorage.plugins.node_affinity import NodeAffinity
from moorage.plugins.node_declared_features import NodeDeclaredFeatures
from moorage.plugins.node_name import NodeName
from moorage.plugins.node_ports import NodePorts
from moorage.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.plugins.node_unschedulable import NodeUnschedulable
from moorage.plugins.pod_topology_spread import PodTopologySpread
from moorage.plugins.priority_sort import PrioritySort
from moorage.plugins.scheduling_gates import SchedulingGates
from moorage.plugins.taint_toleration import TaintToleration
from moorage.plugins.volume_binding_args import VolumeBindingArgs

__all__ = ["BUILTIN", "builtin_registry"]

#: Every plugin class that ships, in alphabetical order of its name. The order here decides nothing.
BUILTIN: tuple[Any, ...] = (
    DefaultBinder,
    DefaultPreemption,
    DynamicResources,
    ImageLocality,
    InterPodAffinity,
    NodeAffinity,
    NodeDeclaredFeatures,
    NodeName,
    NodePorts,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    NodeUnschedulable,
    PodTopologySpread,
    PrioritySort,
    SchedulingGates,
    TaintToleration,
)

#: Arguments of plugins that a configuration may name though there is no class of theirs here.
_ARGS: Final[Mapping[str, type[Any]]] = {"VolumeBinding": VolumeBindingArgs}


def builtin_registry() -> Registry:
    """Return a registry of all that ships."""
    return Registry(BUILTIN, _ARGS)
