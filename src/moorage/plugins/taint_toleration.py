"""TaintToleration: reject nodes with taints the pod does not tolerate; prefer nodes with fewer PreferNoSchedule taints.

Reads     the pod's tolerations; nodes' taints
Rejects   nodes with a NoSchedule or NoExecute taint that no toleration matches; preemption does not help
Scores    nodes higher the fewer untolerated PreferNoSchedule taints they have: the most gives 0, none gives 100
Wakes on  a node added without such taints; such taints removed from a node; a change of the pod's own tolerations
Source    kube-scheduler 1.36, plugins/tainttoleration/taint_toleration.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NoReturn

import numpy as np

from moorage.api.core import Node, Taint, Toleration
from moorage.api.node_selectors import find_untolerated
from moorage.framework import points
from moorage.framework.changes import Change, Detail, RefusingPlugin, TermsPlugin
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.registry import Handle
from moorage.framework.verdicts import Hold, Reject
from moorage.plugins.shared.default_normalize import default_normalize
from moorage.plugins.shared.no_pre_score import NoPreScoreError
from moorage.plugins.shared.taint_remedies import remedies_of_taints
from moorage.plugins.shared.term_names import taint_name, taint_text
from moorage.state.taint_matching import DO_NOT_SCHEDULE, count_untolerated, rows_tolerated
from moorage.state.view import BoolArray, IntArray, NodeInfo, NodeView, PodInfo, Snapshot

# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) had untolerated taint(s)"
SOFT = "PreferNoSchedule"
NODE_ADDED_OR_CHANGED = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT)
TOLERATIONS_CHANGED = ClusterEvent(Resource.POD, Action.UPDATE_POD_TOLERATION)
#: Taints that the node lifecycle controller and kubectl cordon set → what they say about the node.
CONDITIONS: Final[Mapping[str, str]] = {
    "node.kubernetes.io/not-ready": "node not ready",
    "node.kubernetes.io/unreachable": "node unreachable",
    "node.kubernetes.io/memory-pressure": "node under memory pressure",
    "node.kubernetes.io/disk-pressure": "node under disk pressure",
    "node.kubernetes.io/pid-pressure": "node under process pressure",
    "node.kubernetes.io/network-unavailable": "node network unavailable",
    "node.kubernetes.io/unschedulable": "cordoned",
    "node.cloudprovider.kubernetes.io/uninitialized": "node not initialized by its cloud provider",
}


def tolerations_of(pod: PodInfo) -> points.Signature:
    """Return what the plugins that judge by taints read of a pod."""
    return {"spec.tolerations": pod.spec.tolerations}


class TaintToleration(
    RefusingPlugin[PodInfo],
    points.FilterNodePlugin[PodInfo],
    points.PreScorePlugin[tuple[Toleration, ...]],
    points.ScorePlugin[tuple[Toleration, ...]],
    points.ScoreExtensions[tuple[Toleration, ...]],
    TermsPlugin[object],
    points.Attachable,
):
    """The plugin. It is never skipped at scoring, so in a cluster without taints every node gets 100."""

    name = "TaintToleration"
    reuse = points.Reuse(points.Scope.NODE, tolerations_of, signature_reads=())

    def __init__(self) -> None:
        self._numeric = False

    def attach(self, handle: Handle) -> None:
        self._numeric = handle.gates["TaintTolerationComparisonOperators"]

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        yield Reject(~rows_tolerated(pod, nodes, DO_NOT_SCHEDULE, self._numeric), REASON, unresolvable=True)

    def filter_node(self, pod: PodInfo, node: NodeInfo) -> Hold | None:
        return None if self._untolerated(pod, node.node) is None else Hold.because(REASON, unresolvable=True)

    def why(self, state: object, pod: PodInfo, node: NodeView) -> Detail | None:
        taints = self._all_untolerated(pod, node.first.node.spec.taints)
        return Detail(", ".join(dict.fromkeys(map(_shown, taints))), tuple(map(taint_name, taints))) if taints else None

    def terms(self, state: object, pod: PodInfo, nodes: NodeView) -> Iterator[tuple[str, BoolArray]]:
        ids = nodes.ids(nodes.taints)
        refusing = [self._all_untolerated(pod, taints) for taints in nodes.taints.values]
        for taint in dict.fromkeys(taint for taints in refusing for taint in taints):
            yield taint_name(taint), np.array([taint in taints for taints in refusing]).take(ids)

    def _all_untolerated(self, pod: PodInfo, taints: Iterable[Taint]) -> list[Taint]:
        held = pod.spec.tolerations
        return [one for one in taints if find_untolerated((one,), held, DO_NOT_SCHEDULE, self._numeric) is not None]

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> tuple[Toleration, ...]:
        return tuple(held for held in pod.spec.tolerations if held.effect in {"", SOFT})

    def pre_score_disabled(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> NoReturn:
        raise NoPreScoreError(self.name)

    def score(self, tolerations: tuple[Toleration, ...], nodes: NodeView) -> IntArray:
        return count_untolerated(tolerations, nodes, SOFT, self._numeric)

    def normalize(self, tolerations: tuple[Toleration, ...], scores: IntArray) -> IntArray:
        return default_normalize(scores, reverse=True)

    def remedies(self, state: object, pod: PodInfo, node: NodeView) -> Iterator[Change]:
        found = node.first.node
        return remedies_of_taints(found, pod.key, self._all_untolerated(pod, found.spec.taints))

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(NODE_ADDED_OR_CHANGED, when=self._became_tolerable, by_shape=True)
        # Tolerations can only be added to a pod, so any change may be the one it lacked.
        yield Wake(TOLERATIONS_CHANGED, when=lambda pod, old, new: pod.uid == new.uid, by_shape=True)

    def _became_tolerable(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        return self._untolerated(pod, new) is None and (old is None or self._untolerated(pod, old) is not None)

    def _untolerated(self, pod: PodInfo, node: Node) -> Taint | None:
        return find_untolerated(node.spec.taints, pod.spec.tolerations, DO_NOT_SCHEDULE, self._numeric)


def _shown(taint: Taint) -> str:
    """Return a taint; one that the node lifecycle controller sets names the condition of the node that causes it."""
    condition = CONDITIONS.get(taint.key)
    if condition is None:
        return taint_text(taint)
    return f"{condition} since {taint.time_added}" if taint.time_added else condition
