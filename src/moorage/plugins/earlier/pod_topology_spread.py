"""PodTopologySpread up to 1.35: pods that are only nominated wake no pod.

Source    kube-scheduler 1.35, plugins/podtopologyspread/plugin.go
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.framework.events import Wake
from moorage.plugins.earlier.placed_pods import for_placed_pods
from moorage.plugins.pod_topology_spread import PodTopologySpread

__all__ = ["PodTopologySpreadV135"]


class PodTopologySpreadV135(PodTopologySpread):
    """The plugin; see the module docstring."""

    reuse = PodTopologySpread.reuse

    def wakes_on(self) -> Iterator[Wake]:
        return for_placed_pods(super().wakes_on())
