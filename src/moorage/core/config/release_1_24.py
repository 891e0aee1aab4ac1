"""The defaults of a v1beta3 configuration: those of kube-scheduler 1.23 and 1.24, as one list for all extension points.

Source  kube-scheduler 1.24, apis/config/v1beta3/default_plugins.go
"""

from __future__ import annotations

from typing import Final

from moorage.core.config.configuration import PluginRef
from moorage.framework.features import FeatureGates

__all__ = ["API_VERSION", "default_plugins"]

API_VERSION: Final = "kubescheduler.config.k8s.io/v1beta3"

_DEFAULTS: Final = (
    PluginRef(name="PrioritySort"),
    PluginRef(name="NodeUnschedulable"),
    PluginRef(name="NodeName"),
    PluginRef(name="TaintToleration", weight=3),
    PluginRef(name="NodeAffinity", weight=2),
    PluginRef(name="NodePorts"),
    PluginRef(name="NodeResourcesFit", weight=1),
    PluginRef(name="VolumeRestrictions"),
    PluginRef(name="EBSLimits"),
    PluginRef(name="GCEPDLimits"),
    PluginRef(name="NodeVolumeLimits"),
    PluginRef(name="AzureDiskLimits"),
    PluginRef(name="VolumeBinding"),
    PluginRef(name="VolumeZone"),
    PluginRef(name="PodTopologySpread", weight=2),
    PluginRef(name="InterPodAffinity", weight=2),
    PluginRef(name="DefaultPreemption"),
    PluginRef(name="NodeResourcesBalancedAllocation", weight=1),
    PluginRef(name="ImageLocality", weight=1),
    PluginRef(name="DefaultBinder"),
)


def default_plugins(gates: FeatureGates) -> tuple[PluginRef, ...]:
    """Return the default plugins as entries of ``multiPoint``; no gate changes them."""
    del gates
    return _DEFAULTS
