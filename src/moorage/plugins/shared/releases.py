"""The plugins of each Kubernetes release, and the class that implements each in that release.

``PLUGINS_1_21`` lists the plugins of 1.21, which stands for 1.19 to 1.21. A profile of the current release may still name a
plugin that Kubernetes has removed; the plugin then behaves as in 1.21.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moorage.plugins import default_binder as binder
from moorage.plugins import node_name, node_ports, node_unschedulable, priority_sort
from moorage.plugins.earlier import balanced_allocation as earlier_balance
from moorage.plugins.earlier import default_preemption as earlier_preemption
from moorage.plugins.earlier import disk_limits as earlier_disks
from moorage.plugins.earlier import dynamic_resources as earlier_devices
from moorage.plugins.earlier import image_locality as earlier_images
from moorage.plugins.earlier import inter_pod_affinity as earlier_affinity
from moorage.plugins.earlier import node_affinity as earlier_node_affinity
from moorage.plugins.earlier import node_ports as earlier_ports
from moorage.plugins.earlier import node_resources_fit as earlier_fit
from moorage.plugins.earlier import node_volume_limits as earlier_limits
from moorage.plugins.earlier import pod_topology_spread as earlier_spread
from moorage.plugins.earlier import resource_scores as earlier_scores
from moorage.plugins.earlier import selector_spread as earlier_siblings
from moorage.plugins.earlier import taint_toleration as earlier_taints
from moorage.plugins.earlier import volume_binding as earlier_binding
from moorage.plugins.earlier import volume_restrictions as earlier_restrictions
from moorage.plugins.earlier import volume_zone as earlier_zones
from moorage.plugins.later import default_preemption as later_preemption
from moorage.plugins.later import dynamic_resources as later_devices
from moorage.plugins.later import gang_scheduling as later_gangs
from moorage.plugins.later import image_locality as later_images
from moorage.plugins.v1_21 import (
    default_preemption,
    image_locality,
    in_tree_limits,
    inter_pod_affinity,
    node_affinity,
    node_label,
    node_prefer_avoid_pods,
    node_resources_balanced_allocation,
    node_resources_fit,
    node_resources_least_allocated,
    node_resources_most_allocated,
    node_volume_limits,
    pod_topology_spread,
    requested_to_capacity_ratio,
    selector_spread,
    service_affinity,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)

__all__ = ["PLUGINS_1_21", "VARIANTS"]

#: Plugin → its class in 1.21. Classes from ``v1_21`` hold that release's behaviour; the five others have not changed since.
PLUGINS_1_21: Final[Mapping[str, Any]] = {
    "AzureDiskLimits": in_tree_limits.AzureDiskLimits,
    "CinderLimits": in_tree_limits.CinderLimits,
    "DefaultBinder": binder.DefaultBinder,
    "DefaultPreemption": default_preemption.DefaultPreemptionV121,
    "EBSLimits": in_tree_limits.EBSLimits,
    "GCEPDLimits": in_tree_limits.GCEPDLimits,
    "ImageLocality": image_locality.ImageLocalityV121,
    "InterPodAffinity": inter_pod_affinity.InterPodAffinityV121,
    "NodeAffinity": node_affinity.NodeAffinityV121,
    "NodeLabel": node_label.NodeLabel,
    "NodeName": node_name.NodeName,
    "NodePorts": node_ports.NodePorts,
    "NodePreferAvoidPods": node_prefer_avoid_pods.NodePreferAvoidPods,
    "NodeResourcesBalancedAllocation": node_resources_balanced_allocation.NodeResourcesBalancedAllocationV121,
    "NodeResourcesFit": node_resources_fit.NodeResourcesFitV121,
    "NodeResourcesLeastAllocated": node_resources_least_allocated.NodeResourcesLeastAllocated,
    "NodeResourcesMostAllocated": node_resources_most_allocated.NodeResourcesMostAllocated,
    "NodeUnschedulable": node_unschedulable.NodeUnschedulable,
    "NodeVolumeLimits": node_volume_limits.NodeVolumeLimitsV121,
    "PodTopologySpread": pod_topology_spread.PodTopologySpreadV121,
    "PrioritySort": priority_sort.PrioritySort,
    "RequestedToCapacityRatio": requested_to_capacity_ratio.RequestedToCapacityRatio,
    "SelectorSpread": selector_spread.SelectorSpread,
    "ServiceAffinity": service_affinity.ServiceAffinity,
    "TaintToleration": taint_toleration.TaintTolerationV121,
    "VolumeBinding": volume_binding.VolumeBindingV121,
    "VolumeRestrictions": volume_restrictions.VolumeRestrictionsV121,
    "VolumeZone": volume_zone.VolumeZoneV121,
}

#: Plugin, and the release in which its rule ended → the class with that rule. ``Release.variants`` names them. The
#: rules of releases after the newest are named for the release in which they begin.
VARIANTS: Final[Mapping[tuple[str, str], Any]] = {
    ("AzureDiskLimits", "1.22"): in_tree_limits.AzureDiskLimits,
    ("AzureDiskLimits", "1.26"): earlier_disks.AzureDiskLimitsV126,
    ("AzureDiskLimits", "1.29"): earlier_disks.AzureDiskLimitsV129,
    ("AzureDiskLimits", "1.31"): earlier_disks.AzureDiskLimitsV131,
    ("CinderLimits", "1.22"): in_tree_limits.CinderLimits,
    ("CinderLimits", "1.29"): earlier_disks.CinderLimitsV129,
    ("CinderLimits", "1.31"): earlier_disks.CinderLimitsV131,
    ("DefaultPreemption", "1.22"): earlier_preemption.DefaultPreemptionV122,
    ("DefaultPreemption", "1.23"): earlier_preemption.DefaultPreemptionV123,
    ("DefaultPreemption", "1.26"): earlier_preemption.DefaultPreemptionV126,
    ("DefaultPreemption", "1.28"): earlier_preemption.DefaultPreemptionV128,
    ("DefaultPreemption", "1.34.7"): earlier_preemption.DefaultPreemptionV1347,
    ("DefaultPreemption", "1.37"): later_preemption.DefaultPreemptionV137,
    ("DynamicResources", "1.33"): earlier_devices.DynamicResourcesV133,
    ("DynamicResources", "1.34"): earlier_devices.DynamicResourcesV134,
    ("DynamicResources", "1.35"): earlier_devices.DynamicResourcesV135,
    ("DynamicResources", "1.35.4"): earlier_devices.DynamicResourcesV1354,
    ("DynamicResources", "1.36.0"): earlier_devices.DynamicResourcesV1360,
    ("DynamicResources", "1.36.2"): earlier_devices.DynamicResourcesV1362,
    ("DynamicResources", "1.37"): later_devices.DynamicResourcesV137,
    ("EBSLimits", "1.22"): in_tree_limits.EBSLimits,
    ("EBSLimits", "1.26"): earlier_disks.EBSLimitsV126,
    ("EBSLimits", "1.29"): earlier_disks.EBSLimitsV129,
    ("EBSLimits", "1.31"): earlier_disks.EBSLimitsV131,
    ("GCEPDLimits", "1.22"): in_tree_limits.GCEPDLimits,
    ("GCEPDLimits", "1.27"): earlier_disks.GCEPDLimitsV127,
    ("GCEPDLimits", "1.29"): earlier_disks.GCEPDLimitsV129,
    ("GCEPDLimits", "1.31"): earlier_disks.GCEPDLimitsV131,
    ("GangScheduling", "1.37"): later_gangs.GangSchedulingV137,
    ("ImageLocality", "1.28"): earlier_images.ImageLocalityV128,
    ("ImageLocality", "1.29"): earlier_images.ImageLocalityV129,
    ("ImageLocality", "1.35"): earlier_images.ImageLocalityV135,
    ("ImageLocality", "1.37"): later_images.ImageLocalityV137,
    ("InterPodAffinity", "1.26"): earlier_affinity.InterPodAffinityV126,
    ("InterPodAffinity", "1.27"): earlier_affinity.InterPodAffinityV127,
    ("InterPodAffinity", "1.33"): earlier_affinity.InterPodAffinityV133,
    ("InterPodAffinity", "1.35"): earlier_affinity.InterPodAffinityV135,
    ("NodeAffinity", "1.23"): earlier_node_affinity.NodeAffinityV123,
    ("NodeAffinity", "1.26"): earlier_node_affinity.NodeAffinityV126,
    ("NodeAffinity", "1.29"): earlier_node_affinity.NodeAffinityV129,
    ("NodePorts", "1.32"): earlier_ports.NodePortsV132,
    ("NodeResourcesBalancedAllocation", "1.24"): earlier_balance.NodeResourcesBalancedAllocationV124,
    ("NodeResourcesBalancedAllocation", "1.26"): earlier_balance.NodeResourcesBalancedAllocationV126,
    ("NodeResourcesBalancedAllocation", "1.32"): earlier_balance.NodeResourcesBalancedAllocationV132,
    ("NodeResourcesBalancedAllocation", "1.34"): earlier_balance.NodeResourcesBalancedAllocationV134,
    ("NodeResourcesBalancedAllocation", "1.35"): earlier_balance.NodeResourcesBalancedAllocationV135,
    ("NodeResourcesFit", "1.23"): earlier_fit.NodeResourcesFitV123,
    ("NodeResourcesFit", "1.24"): earlier_fit.NodeResourcesFitV124,
    ("NodeResourcesFit", "1.25"): earlier_fit.NodeResourcesFitV125,
    ("NodeResourcesFit", "1.26"): earlier_fit.NodeResourcesFitV126,
    ("NodeResourcesFit", "1.27"): earlier_fit.NodeResourcesFitV127,
    ("NodeResourcesFit", "1.29"): earlier_fit.NodeResourcesFitV129,
    ("NodeResourcesFit", "1.31"): earlier_fit.NodeResourcesFitV131,
    ("NodeResourcesFit", "1.32"): earlier_fit.NodeResourcesFitV132,
    ("NodeResourcesFit", "1.33"): earlier_fit.NodeResourcesFitV133,
    ("NodeResourcesFit", "1.34"): earlier_fit.NodeResourcesFitV134,
    ("NodeResourcesFit", "1.35"): earlier_fit.NodeResourcesFitV135,
    ("NodeResourcesLeastAllocated", "1.22"): earlier_scores.NodeResourcesLeastAllocatedV122,
    ("NodeResourcesMostAllocated", "1.22"): earlier_scores.NodeResourcesMostAllocatedV122,
    ("NodeVolumeLimits", "1.22"): earlier_limits.NodeVolumeLimitsV122,
    ("NodeVolumeLimits", "1.24"): earlier_limits.NodeVolumeLimitsV124,
    ("NodeVolumeLimits", "1.26"): earlier_limits.NodeVolumeLimitsV126,
    ("NodeVolumeLimits", "1.27"): earlier_limits.NodeVolumeLimitsV127,
    ("NodeVolumeLimits", "1.29"): earlier_limits.NodeVolumeLimitsV129,
    ("NodeVolumeLimits", "1.31"): earlier_limits.NodeVolumeLimitsV131,
    ("NodeVolumeLimits", "1.32"): earlier_limits.NodeVolumeLimitsV132,
    ("NodeVolumeLimits", "1.35"): earlier_limits.NodeVolumeLimitsV135,
    ("PodTopologySpread", "1.23"): earlier_spread.PodTopologySpreadV123,
    ("PodTopologySpread", "1.26"): earlier_spread.PodTopologySpreadV126,
    ("PodTopologySpread", "1.27"): earlier_spread.PodTopologySpreadV127,
    ("PodTopologySpread", "1.35"): earlier_spread.PodTopologySpreadV135,
    ("RequestedToCapacityRatio", "1.22"): earlier_scores.RequestedToCapacityRatioV122,
    ("SelectorSpread", "1.28"): earlier_siblings.SelectorSpreadV128,
    ("TaintToleration", "1.23"): earlier_taints.TaintTolerationV123,
    ("TaintToleration", "1.34.1"): earlier_taints.TaintTolerationV1341,
    ("VolumeBinding", "1.22"): earlier_binding.VolumeBindingV122,
    ("VolumeBinding", "1.23"): earlier_binding.VolumeBindingV123,
    ("VolumeBinding", "1.24"): earlier_binding.VolumeBindingV124,
    ("VolumeBinding", "1.26"): earlier_binding.VolumeBindingV126,
    ("VolumeBinding", "1.28"): earlier_binding.VolumeBindingV128,
    ("VolumeBinding", "1.29"): earlier_binding.VolumeBindingV129,
    ("VolumeBinding", "1.32"): earlier_binding.VolumeBindingV132,
    ("VolumeBinding", "1.33"): earlier_binding.VolumeBindingV133,
    ("VolumeRestrictions", "1.26"): earlier_restrictions.VolumeRestrictionsV126,
    ("VolumeRestrictions", "1.28"): earlier_restrictions.VolumeRestrictionsV128,
    ("VolumeRestrictions", "1.33"): earlier_restrictions.VolumeRestrictionsV133,
    ("VolumeZone", "1.26"): earlier_zones.VolumeZoneV126,
    ("VolumeZone", "1.28"): earlier_zones.VolumeZoneV128,
}
