"""PodTopologySpread up to 1.35: pods that are only nominated wake no pod.

Source    kube-scheduler 1.35, plugins/podtopologyspread/plugin.go
"""

from __future__ import annotations

from moorage.plugins.earlier.placed_pods import WokenByPlacedPods
from moorage.plugins.pod_topology_spread import PodTopologySpread

__all__ = ["PodTopologySpreadV135"]


class PodTopologySpreadV135(WokenByPlacedPods, PodTopologySpread):
    """The plugin; see the module docstring."""

    reuse = PodTopologySpread.reuse
