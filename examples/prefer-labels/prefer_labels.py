"""PreferLabels: score nodes by labels, with points given in the scheduler's configuration.

A Score plugin with arguments that scores all nodes at once: each distinct label value is looked up once.
"""

from __future__ import annotations

from moorage.errors import Fault
from moorage.framework.args import PluginArgs
from moorage.framework.feature_gates import FeatureGates
from moorage.framework.points import Reusable, Reuse, Scope, ScorePlugin
from moorage.state.columns import IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["PreferLabels"]


class PreferLabelsArgs(PluginArgs, frozen=True):
    """``key`` is the node label, ``points`` the score of each of its values, 0-100; other values score 0."""

    key: str = "topology.kubernetes.io/zone"
    points: dict[str, int] = {}

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        return [
            Fault("Invalid value", f"{path}.points[{value}]", "not in valid range [0, 100]", points)
            for value, points in self.points.items()
            if not 0 <= points <= 100
        ]


class PreferLabels(ScorePlugin[PodInfo], Reusable):
    """Scores a node by its label value. It reads only nodes, so its scores can be cached."""

    name = "PreferLabels"
    Args = PreferLabelsArgs
    reuse = Reuse(Scope.NODE, signature=lambda pod: {}, signature_reads=())

    def __init__(self, args: PreferLabelsArgs) -> None:
        self.args = args

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        label = nodes.label(self.args.key)
        return label.spread(nodes.ids(label), lambda value: self.args.points.get(value or "", 0), int)
