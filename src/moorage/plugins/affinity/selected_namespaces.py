"""InterPodAffinity of releases in which the terms of an incoming pod select the namespaces that their selectors match.

These are the releases up to 1.33, and 1.37. From 1.34 to 1.36 kube-scheduler matches the selector against an empty set of
labels as well (``affinity_counts.resolved``), and all releases do when a change may wake a pod.

Source    kube-scheduler 1.33.3 and 1.37.2, plugins/interpodaffinity/plugin.go, mergeAffinityTermNamespacesIfNotEmpty
"""

from __future__ import annotations

from moorage.api.selectors import EVERYTHING
from moorage.framework.verdicts import Hold, Skip
from moorage.plugins.affinity.affinity_counts import AffinityCounts, AffinityWeights
from moorage.plugins.inter_pod_affinity import InterPodAffinity
from moorage.state.affinity_terms import AffinityTerm, AffinityTerms
from moorage.state.pod_info import PodInfo, WeightedTerm
from moorage.state.view import NodeView, Snapshot


class SelectingNamespaces(InterPodAffinity):
    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> AffinityCounts | Skip | Hold:
        return super().pre_filter(with_namespaces_found(pod, snapshot), snapshot)

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> AffinityWeights | Skip:
        return super().pre_score(with_namespaces_found(pod, snapshot), snapshot, feasible)


def with_namespaces_found(pod: PodInfo, snapshot: Snapshot) -> PodInfo:
    """Return the pod with the namespace selectors of its own terms resolved to namespaces."""
    required, required_anti = pod.required_affinity, pod.required_anti_affinity
    preferred, preferred_anti = pod.preferred_affinity, pod.preferred_anti_affinity
    terms = (*required, *required_anti, *(one.term for one in (*preferred, *preferred_anti)))
    if all(term.namespace_selector is None for term in terms):
        return pod
    return pod.with_affinity_terms(
        AffinityTerms(
            tuple(_with_namespaces(term, snapshot) for term in required),
            tuple(_with_namespaces(term, snapshot) for term in required_anti),
            tuple(WeightedTerm(weight, _with_namespaces(term, snapshot)) for weight, term in preferred),
            tuple(WeightedTerm(weight, _with_namespaces(term, snapshot)) for weight, term in preferred_anti),
        )
    )


def _with_namespaces(term: AffinityTerm, snapshot: Snapshot) -> AffinityTerm:
    over = term.namespace_selector
    if over is None or over == EVERYTHING:
        return term
    return term._replace(namespaces=term.namespaces | snapshot.namespaces_selected(over), namespace_selector=None)
