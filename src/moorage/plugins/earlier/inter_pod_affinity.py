"""InterPodAffinity up to 1.35: pods that are only nominated wake no pod, and a deleted pod's anti-affinity does not count.

Up to 1.33 the namespace selector of an incoming pod's term selects the namespaces that it matches, and no others. Up to 1.27
every pod is scored; one that no term concerns scores 0. Up to 1.26 Filter always runs, so the anti-affinity of a nominated pod
counts even if no placed pod has any, and ``hardPodAffinityWeight`` is the only argument.

Source    kube-scheduler 1.35, 1.33.3, 1.27.16 and 1.26.15, plugins/interpodaffinity/plugin.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from moorage.errors import Fault
from moorage.framework import points
from moorage.framework.args import Int32, PluginArgs
from moorage.framework.changes import Detail, ExplainingPlugin, Remedies, RemedyingPlugin, TermsPlugin
from moorage.framework.feature_gates import FeatureGates
from moorage.framework.points import Reuse
from moorage.framework.verdicts import Hold, Reject, Skip
from moorage.plugins import inter_pod_affinity as today
from moorage.plugins.affinity.affinity_reasons import explained, refusing_terms, remedies_of_neighbours
from moorage.plugins.affinity.affinity_scores import (
    AffinityCounts,
    AffinityWeights,
    ResolvedTerm,
    count_affinity,
    normalize_weights,
    sum_weights,
    weigh_affinity,
)
from moorage.plugins.earlier.shared.placed_pods import WokenByPlacedPods, with_namespaces, with_namespaces_found
from moorage.plugins.inter_pod_affinity import InterPodAffinity, InterPodAffinityArgs, signature_of
from moorage.state.affinity_terms import AffinityTerm
from moorage.state.view import BoolArray, IntArray, NodeInfo, NodeView, PodInfo, Snapshot

# -- 1.21 --------------------------------------------------------------------------------------------------------------
# InterPodAffinity of 1.21: a rejection has two reasons, and every pod is filtered and scored.
#
# A pod that no term concerns scores 0 everywhere. Preferred terms of placed pods always count. A namespace selector of the
# pod's own terms selects the matching namespaces only (in the current plugin, a selector that matches no labels selects every
# namespace); it requires the gate PodAffinityNamespaceSelector.
#
# Reads     podAffinity, podAntiAffinity, labels, namespace; labels of namespaces; counts of placed pods and of their terms
# Rejects   nodes whose domains lack the pods that the affinity terms match: preemption does not help; nodes whose domains hold
#           pods that violate anti-affinity, either way: preemption may help
# Scores    as the current plugin
# Source    kube-scheduler 1.21, plugins/interpodaffinity/*.go

# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) didn't match pod affinity/anti-affinity rules"


class InterPodAffinityArgsV121(PluginArgs, frozen=True):
    """``hardPodAffinityWeight`` is the weight of a placed pod's required affinity to the incoming pod."""

    hard_pod_affinity_weight: Int32 = 1

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        return today.InterPodAffinityArgs(hard_pod_affinity_weight=self.hard_pod_affinity_weight).faults(path, gates)


class InterPodAffinityV121(
    points.PreFilterPlugin[AffinityCounts],
    points.PreFilterExtensions[AffinityCounts],
    points.FilterPlugin[AffinityCounts],
    points.PreScorePlugin[AffinityWeights],
    points.ScorePlugin[AffinityWeights],
    points.ScoreExtensions[AffinityWeights],
    ExplainingPlugin[AffinityCounts],
    TermsPlugin[AffinityCounts],
    RemedyingPlugin[AffinityCounts],
    points.Reusable,
):
    name = "InterPodAffinity"
    Args = InterPodAffinityArgsV121
    reuse = points.Reuse(signature=today.signature_of, signature_reads=())

    def __init__(self, args: InterPodAffinityArgsV121 | None = None) -> None:
        self._hard_weight = (args or InterPodAffinityArgsV121()).hard_pod_affinity_weight

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> AffinityCounts | Hold:
        if pod.affinity_fault:
            return Hold.because(f"parsing pod: {pod.affinity_fault}", unresolvable=True)
        found = count_affinity(with_namespaces_found(pod, snapshot), snapshot)
        return AffinityCounts(snapshot, (), (), False, {}, {}, {}) if found is None else found

    def add_pod(self, state: AffinityCounts, pod: PodInfo, other: PodInfo, node: NodeInfo) -> AffinityCounts:
        return state.shifted(other, pod, node, 1)

    def remove_pod(self, state: AffinityCounts, pod: PodInfo, other: PodInfo, node: NodeInfo) -> AffinityCounts:
        return state.shifted(other, pod, node, -1)

    def filter(self, state: AffinityCounts, nodes: NodeView) -> Iterator[Reject]:
        for reject in today.refusals(state, nodes):
            yield replace(reject, reason=REASON)
            yield reject

    def why(self, state: AffinityCounts, pod: PodInfo, node: NodeView) -> Detail | None:
        return explained(state, pod, node)

    def terms(self, state: AffinityCounts, pod: PodInfo, nodes: NodeView) -> Iterator[tuple[str, BoolArray]]:
        return refusing_terms(state, nodes)

    def remedies(self, state: AffinityCounts, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        return remedies_of_neighbours(state, pod, node)

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> AffinityWeights:
        return weigh_affinity(with_namespaces_found(pod, snapshot), snapshot, self._hard_weight) or {}

    def score(self, weights: AffinityWeights, nodes: NodeView) -> IntArray:
        return sum_weights(weights, nodes)

    def normalize(self, weights: AffinityWeights, scores: IntArray) -> IntArray:
        return normalize_weights(scores)


# -- 1.22 and later ----------------------------------------------------------------------------------------------------


class InterPodAffinityV135(WokenByPlacedPods, InterPodAffinity):
    def _is_matched_by(self, terms: Iterable[AffinityTerm], pod: PodInfo) -> bool:
        return False


class InterPodAffinityV133(InterPodAffinityV135):
    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> AffinityCounts | Skip | Hold:
        return super().pre_filter(with_namespaces_found(pod, snapshot), snapshot)

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> AffinityWeights | Skip:
        return super().pre_score(with_namespaces_found(pod, snapshot), snapshot, feasible)

    def _resolved(self, terms: Iterable[AffinityTerm]) -> tuple[ResolvedTerm, ...]:
        if self._handle is None:
            return super()._resolved(terms)
        snapshot = self._handle.snapshot
        return super()._resolved(with_namespaces(term, snapshot) for term in terms)


class InterPodAffinityV127(InterPodAffinityV133):
    reuse = Reuse(signature=signature_of, signature_reads=())

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> AffinityWeights:
        found = super().pre_score(pod, snapshot, feasible)
        return {} if isinstance(found, Skip) else found


class InterPodAffinityV126(InterPodAffinityV127):
    Args = InterPodAffinityArgsV121  # type: ignore[assignment]  # without an argument that came later

    def __init__(self, args: InterPodAffinityArgsV121 | None = None) -> None:
        given = args or InterPodAffinityArgsV121()
        super().__init__(InterPodAffinityArgs(hard_pod_affinity_weight=given.hard_pod_affinity_weight))

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> AffinityCounts | Hold:
        found = super().pre_filter(pod, snapshot)
        return AffinityCounts(snapshot, (), (), False, {}, {}, {}) if isinstance(found, Skip) else found
