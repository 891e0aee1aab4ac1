"""TaintToleration: reject nodes with taints the pod does not tolerate; prefer nodes with fewer PreferNoSchedule taints.

Reads     the pod's tolerations; nodes' taints
Rejects   nodes with a NoSchedule or NoExecute taint that no toleration matches; preemption does not help
Scores    nodes higher the fewer untolerated PreferNoSchedule taints they have: the most gives 0, none gives 100
Wakes on  a node added without such taints; such taints removed from a node; a change of the pod's own tolerations
Source    kube-scheduler 1.36, plugins/tainttoleration/taint_toleration.go
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.core import Node, Toleration
from moorage.api.taints import find_untolerated
from moorage.framework.changes import Change
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import Depends, Signature
from moorage.framework.registry import Handle
from moorage.framework.verdicts import Hold, Reject
from moorage.plugins.default_normalize import default_normalize
from moorage.plugins.taint_remedies import remedies_of_taints
from moorage.state.cluster import Snapshot
from moorage.state.columns import IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.taint_matching import DO_NOT_SCHEDULE, count_untolerated, rows_tolerated
from moorage.state.view import NodeInfo, NodeView

__all__ = ["REASON", "TaintToleration"]

# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) had untolerated taint(s)"
SOFT = "PreferNoSchedule"
NODE_ADDED_OR_CHANGED = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT)
TOLERATIONS_CHANGED = ClusterEvent(Resource.POD, Action.UPDATE_POD_TOLERATION)


class TaintToleration:
    """The plugin. It is never skipped at scoring, so in a cluster without taints every node gets 100."""

    name = "TaintToleration"
    depends = Depends.NODES
    signs_by = ()
    scales_by_highest = True

    def __init__(self) -> None:
        self._numeric = False

    def attach(self, handle: Handle) -> None:
        self._numeric = handle.gates["TaintTolerationComparisonOperators"]

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        yield Reject(~rows_tolerated(pod, nodes, DO_NOT_SCHEDULE, self._numeric), REASON, unresolvable=True)

    def filter_node(self, pod: PodInfo, node: NodeInfo) -> Hold | None:
        return None if self._untolerated(pod, node.node) is None else Hold.because(REASON, unresolvable=True)

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> tuple[Toleration, ...]:
        return tuple(held for held in pod.spec.tolerations if held.effect in {"", SOFT})

    def score(self, tolerations: tuple[Toleration, ...], nodes: NodeView) -> IntArray:
        return count_untolerated(tolerations, nodes, SOFT, self._numeric)

    def normalize(self, tolerations: tuple[Toleration, ...], scores: IntArray) -> IntArray:
        return default_normalize(scores, reverse=True)

    def sign(self, pod: PodInfo) -> Signature:
        return {"spec.tolerations": pod.spec.tolerations}

    def remedies(self, state: object, pod: PodInfo, node: NodeView) -> Iterator[Change]:
        held, found = pod.spec.tolerations, node.first.node
        hard = [one for one in found.spec.taints if find_untolerated((one,), held, DO_NOT_SCHEDULE, self._numeric) is not None]
        return remedies_of_taints(found, pod.key, hard)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(NODE_ADDED_OR_CHANGED, when=self._became_tolerable)
        # Tolerations can only be added to a pod, so any change may be the one it lacked.
        yield Wake(TOLERATIONS_CHANGED, when=lambda pod, old, new: pod.uid == new.uid)

    def _became_tolerable(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        return self._untolerated(pod, new) is None and (old is None or self._untolerated(pod, old) is not None)

    def _untolerated(self, pod: PodInfo, node: Node) -> object | None:
        return find_untolerated(node.spec.taints, pod.spec.tolerations, DO_NOT_SCHEDULE, self._numeric)
