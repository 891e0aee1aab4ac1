"""PodState: prefer nodes with terminating pods, which leave room soon, to nodes that other pods were nominated to.

Source  scheduler-plugins 903da7df82cb, pkg/podstate/pod_state.go
"""

from __future__ import annotations

from moorage.framework.handle import Handle
from moorage.framework.points import Attachable, ScoreExtensions, ScoreNodePlugin
from moorage.state.view import IntArray, NodeInfo, PodInfo
from moorage_scheduler_plugins.scaling import spread


class PodState(ScoreNodePlugin[PodInfo], ScoreExtensions[PodInfo], Attachable):
    name = "PodState"

    def __init__(self) -> None:
        self._handle: Handle | None = None

    def attach(self, handle: Handle) -> None:
        self._handle = handle

    def score_node(self, pod: PodInfo, node: NodeInfo) -> int:
        nominated = 0 if self._handle is None else len(list(self._handle.pods.nominated(node.name)))
        return sum(other.terminating for other in node.pods) - nominated

    def normalize(self, pod: PodInfo, scores: IntArray) -> IntArray:
        return spread(scores)
