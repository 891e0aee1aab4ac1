"""NodeUnschedulable: reject cordoned nodes, unless the pod tolerates the unschedulable taint.

Reads     spec.unschedulable of nodes; the pod's tolerations
Rejects   cordoned nodes; preemption does not help
Wakes on  a schedulable node added; a node uncordoned; a toleration of the taint added to the pod
Source    kube-scheduler 1.36, plugins/nodeunschedulable/node_unschedulable.go
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.core import Node, Taint
from moorage.api.node_selectors import find_untolerated
from moorage.framework.changes import Change, Detail, RefusingPlugin, TermsPlugin
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import Attachable, FilterNodePlugin, Reuse, Scope
from moorage.framework.registry import Handle
from moorage.framework.verdicts import Hold, Reject
from moorage.plugins.shared.taint_remedies import remedies_of_cordon
from moorage.plugins.shared.term_names import CORDON as CORDONED
from moorage.plugins.taint_toleration import tolerations_of
from moorage.state.view import BoolArray, NodeInfo, NodeView, PodInfo

# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) were unschedulable"
CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
NODE_ADDED_OR_CHANGED = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT)
TOLERATIONS_CHANGED = ClusterEvent(Resource.POD, Action.UPDATE_POD_TOLERATION)


class NodeUnschedulable(RefusingPlugin[PodInfo], FilterNodePlugin[PodInfo], TermsPlugin[object], Attachable):
    name = "NodeUnschedulable"
    reuse = Reuse(Scope.NODE, tolerations_of, signature_reads=())

    def __init__(self) -> None:
        self._numeric = False

    def attach(self, handle: Handle) -> None:
        self._numeric = handle.gates["TaintTolerationComparisonOperators"]

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        if not self._tolerates_cordon(pod):
            yield Reject(nodes.unschedulable, REASON, unresolvable=True)

    def filter_node(self, pod: PodInfo, node: NodeInfo) -> Hold | None:
        if not node.node.spec.unschedulable or self._tolerates_cordon(pod):
            return None
        return Hold.because(REASON, unresolvable=True)

    def why(self, state: object, pod: PodInfo, node: NodeView) -> Detail | None:
        return Detail("cordoned", (CORDONED,)) if node.first.node.spec.unschedulable else None

    def terms(self, state: object, pod: PodInfo, nodes: NodeView) -> Iterator[tuple[str, BoolArray]]:
        if not self._tolerates_cordon(pod):
            yield CORDONED, nodes.unschedulable

    def remedies(self, state: object, pod: PodInfo, node: NodeView) -> Iterator[Change]:
        return remedies_of_cordon(node.first.node)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(NODE_ADDED_OR_CHANGED, when=self._became_schedulable, by_shape=True)
        yield Wake(TOLERATIONS_CHANGED, when=self._now_tolerates, by_shape=True)

    def _now_tolerates(self, pod: PodInfo, old: PodInfo, new: PodInfo) -> bool:
        return pod.uid == new.uid and self._tolerates_cordon(new)

    @staticmethod
    def _became_schedulable(pod: PodInfo, old: Node | None, new: Node) -> bool:
        return not new.spec.unschedulable and (old is None or old.spec.unschedulable)

    def _tolerates_cordon(self, pod: PodInfo) -> bool:
        return find_untolerated((CORDON,), pod.spec.tolerations, numeric=self._numeric) is None
