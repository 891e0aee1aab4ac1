"""ServiceAffinity: keep the pods of a service on nodes that share the values of some labels; spread them over other labels.

The pod's nodeSelector decides the affinity labels that it names. For the others, a pod that a service selects follows the first
placed pod with all of its labels: nodes must have the values of that pod's node. If several services select a pod, the first by
name decides the score (kube-scheduler takes any).

Reads     labels, namespace and nodeSelector of the pod; services; counts of placed pods; labels of nodes
Rejects   nodes with other values of the affinity labels; preemption may help
Scores    the service's pods on the node that are not terminating, normalized: for each label of
          ``antiAffinityLabelsPreference``, the share of them outside the node's domain, averaged over the labels
Source    kube-scheduler 1.21, plugins/serviceaffinity/service_affinity.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from moorage.api.selectors import selector_from_map
from moorage.framework.args import PluginArgs
from moorage.framework.changes import Detail, ExplainingPlugin, Remedies, RemedyingPlugin, TermsPlugin
from moorage.framework.points import FilterPlugin, NodeScoreExtensions, PreFilterExtensions, PreFilterPlugin, ScorePlugin
from moorage.framework.verdicts import Reject
from moorage.plugins.affinity.node_affinity_remedies import labels_to_set
from moorage.plugins.v1_21.shared.sibling_selector import live_pods
from moorage.state.counts import Counts, MatchTerm, PodMatcher
from moorage.state.node_matching import rows_labelled
from moorage.state.view import BoolArray, IntArray, NodeInfo, NodeView, PodInfo, Snapshot, domain_ids, domain_sums

# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) didn't match service affinity"


class ServiceAffinityArgs(PluginArgs, frozen=True):
    """Node label keys: those to share, and those to spread over."""

    affinity_labels: tuple[str, ...] = ()
    anti_affinity_labels_preference: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SameLabelPods:
    """Placed pods of the namespace that have all the pod's labels; the pod follows the first of them.

    ``counts`` (rows,) is their number on each row at first; ``added_rows`` are the rows where a what-if has added such pods.
    """

    pod: PodInfo
    snapshot: Snapshot
    matcher: PodMatcher
    counts: Counts
    added_rows: tuple[int, ...] = ()

    def first_row(self) -> int | None:
        """Return the row of the first such pod, nodes in kube-scheduler's order; None if there is none."""
        if self.counts.any():
            order = self.snapshot.table.rows_in_turn()
            return int(order[(self.counts[order] > 0).argmax()])
        return self.added_rows[0] if self.added_rows else None


class ServiceAffinity(
    PreFilterPlugin[SameLabelPods],
    PreFilterExtensions[SameLabelPods],
    FilterPlugin[SameLabelPods],
    ScorePlugin[SameLabelPods | PodInfo],
    NodeScoreExtensions[SameLabelPods | PodInfo],
    ExplainingPlugin[SameLabelPods],
    TermsPlugin[SameLabelPods],
    RemedyingPlugin[SameLabelPods],
):
    name = "ServiceAffinity"
    Args = ServiceAffinityArgs

    def __init__(self, args: ServiceAffinityArgs | None = None) -> None:
        args = args or ServiceAffinityArgs()
        self._shared = args.affinity_labels
        self._spread = args.anti_affinity_labels_preference

    # -- filter -------------------------------------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> SameLabelPods:
        matcher = PodMatcher((MatchTerm(frozenset([pod.namespace]), selector_from_map(pod.labels)),))
        return SameLabelPods(pod, snapshot, matcher, snapshot.nodes.pods_matching(matcher).copy())

    def add_pod(self, state: SameLabelPods, pod: PodInfo, other: PodInfo, node: NodeInfo) -> SameLabelPods:
        return replace(state, added_rows=(*state.added_rows, node.row)) if state.matcher.matches(other) else state

    def remove_pod(self, state: SameLabelPods, pod: PodInfo, other: PodInfo, node: NodeInfo) -> SameLabelPods:
        if not state.matcher.matches(other):
            return state
        if state.counts[node.row]:
            counts = state.counts.copy()
            counts[node.row] -= 1
            return replace(state, counts=counts)
        left = list(state.added_rows)
        if node.row in left:
            left.remove(node.row)
        return replace(state, added_rows=tuple(left))

    def filter(self, state: SameLabelPods, nodes: NodeView) -> Iterator[Reject]:
        if self._shared:
            refused = ~rows_labelled(self._wanted(state), nodes)
            if refused.any():
                yield Reject(refused, REASON)

    def why(self, state: SameLabelPods, pod: PodInfo, node: NodeView) -> Detail | None:
        labels = node.first.labels
        lacking = [(key, value) for key, value in self._wanted(state).items() if labels.get(key) != value]
        return Detail("; ".join(f"{key}={value} required" for key, value in lacking), tuple(key for key, _ in lacking))

    def terms(self, state: SameLabelPods, pod: PodInfo, nodes: NodeView) -> Iterator[tuple[str, BoolArray]]:
        for key, value in self._wanted(state).items():
            yield key, ~rows_labelled({key: value}, nodes)

    def remedies(self, state: SameLabelPods, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        one = node.first.node
        for key, value in self._wanted(state).items():
            if one.labels.get(key) != value:
                yield from labels_to_set(one, key, value, key)

    def _wanted(self, state: SameLabelPods) -> Mapping[str, str]:
        """Return the labels that a node must have."""
        asked = state.pod.spec.node_selector
        wanted = {key: asked[key] for key in self._shared if key in asked}
        if len(wanted) < len(self._shared) and state.snapshot.services_selecting(state.pod):
            row = state.first_row()
            there = {} if row is None else state.snapshot.table.nodes[row].labels
            wanted = {key: there[key] for key in self._shared if key in there} | wanted
        return wanted

    # -- score --------------------------------------------------------------------------------------------------------

    def score(self, state: SameLabelPods | PodInfo, nodes: NodeView) -> IntArray:
        pod = state.pod if isinstance(state, SameLabelPods) else state
        services = nodes.snapshot.services_selecting(pod)
        if not services:
            return nodes.zeros()
        service = min(services, key=lambda one: one.metadata.name)
        return live_pods(pod.namespace, selector_from_map(service.spec.selector), nodes).astype(np.int64)

    def normalize_over(self, state: SameLabelPods | PodInfo, scores: IntArray, nodes: NodeView) -> IntArray:
        """Score each node by how many of the service's pods are outside its domain of each label.

        Rounds  towards zero at the end, after float64 arithmetic in kube-scheduler's order of operations
        Source  serviceaffinity/service_affinity.go, updateNodeScoresForLabel
        """
        total = np.zeros(len(scores), dtype=np.float64)
        pods = int(scores.sum())
        for key in self._spread:
            ids = domain_ids(nodes, key)
            here = domain_sums(nodes, key, scores)[ids]
            elsewhere = 100.0 * ((pods - here).astype(np.float64) / float(pods)) if pods else np.full(len(scores), 100.0)
            total += np.where(ids != 0, elsewhere / float(len(self._spread)), 0.0)
        return total.astype(np.int64)
