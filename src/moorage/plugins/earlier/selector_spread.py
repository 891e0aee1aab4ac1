"""SelectorSpread of 1.22 to 1.28: a pod's siblings are those of its services and of the controller that owns it.

Reads     services that select the pod, its controller, and pods on the nodes
Scores    nodes and zones with fewer siblings higher
Source    kube-scheduler 1.23.5, plugins/selectorspread/selector_spread.go and plugins/helper/spread.go
"""

from __future__ import annotations

from moorage.plugins.spread.spread_counts import default_selector
from moorage.plugins.v1_21.selector_spread import SelectorSpread, Siblings
from moorage.state.view import NodeView, PodInfo, Snapshot


class SelectorSpreadV128(SelectorSpread):
    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> Siblings:
        found = super().pre_score(pod, snapshot, feasible)
        return found if found.selector is None else found._replace(selector=default_selector(pod, snapshot))
