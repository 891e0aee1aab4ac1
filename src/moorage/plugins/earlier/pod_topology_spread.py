"""PodTopologySpread up to 1.35: pods that are only nominated wake no pod.

Up to 1.27 every pod is scored; without constraints all nodes get 100. Up to 1.26 a constraint with an empty selector counts
all pods of the namespace.

Source    kube-scheduler 1.35, plugins/podtopologyspread/plugin.go; 1.27.16, scoring.go; 1.26.15, common.go
"""

from __future__ import annotations

from typing import Final

from moorage.api.requirements import Requirement
from moorage.api.selectors import Selector
from moorage.framework.points import Reuse
from moorage.framework.verdicts import Skip
from moorage.plugins.earlier.placed_pods import WokenByPlacedPods
from moorage.plugins.pod_topology_spread import PodTopologySpread
from moorage.plugins.spread_scores import SpreadPreference
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.spread_constraint import SpreadConstraint
from moorage.state.view import NodeView

__all__ = ["PodTopologySpreadV126", "PodTopologySpreadV127", "PodTopologySpreadV135"]


class PodTopologySpreadV135(WokenByPlacedPods, PodTopologySpread):
    """The plugin; see the module docstring."""

    reuse = PodTopologySpread.reuse


class PodTopologySpreadV127(PodTopologySpreadV135):
    """The plugin; see the module docstring."""

    @property
    def reuse(self) -> Reuse:
        return Reuse(signature=self._signature, signature_reads=())

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> SpreadPreference:
        found = super().pre_score(pod, snapshot, feasible)
        return SpreadPreference((), all_labels=False) if isinstance(found, Skip) else found


#: Matches every pod, as an empty selector does, and is not empty: no pod has a label with this key.
_EVERY_POD: Final = Selector((Requirement("", "DoesNotExist"),))


class PodTopologySpreadV126(PodTopologySpreadV127):
    """The plugin; see the module docstring."""

    def _own(self, pod: PodInfo) -> tuple[SpreadConstraint, ...]:
        own = super()._own(pod)
        if not any(one.selector.is_empty for one in own):
            return own
        return tuple(one._replace(selector=_EVERY_POD) if one.selector.is_empty else one for one in own)
