"""The namespaces that terms of an incoming pod select, up to 1.33: those that the terms' namespace selectors match.

From 1.34 on, kube-scheduler matches the selector against an empty set of labels as well (``affinity_counts.resolved``).

Source    kube-scheduler 1.33.3, plugins/interpodaffinity/plugin.go, mergeAffinityTermNamespacesIfNotEmpty
"""

from __future__ import annotations

from moorage.api.selectors import EVERYTHING
from moorage.state.affinity_terms import AffinityTerms
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import AffinityTerm, PodInfo, WeightedTerm

__all__ = ["with_namespaces", "with_namespaces_found"]


def with_namespaces_found(pod: PodInfo, snapshot: Snapshot) -> PodInfo:
    """Return the pod with the namespace selectors of its own terms resolved to namespaces."""
    terms = (pod.required_affinity, pod.required_anti_affinity, pod.preferred_affinity, pod.preferred_anti_affinity)
    if all(_plain(term).namespace_selector is None for kind in terms for term in kind):
        return pod
    required, required_anti, preferred, preferred_anti = terms
    return pod.with_affinity_terms(
        AffinityTerms(
            tuple(with_namespaces(term, snapshot) for term in required),
            tuple(with_namespaces(term, snapshot) for term in required_anti),
            tuple(WeightedTerm(weight, with_namespaces(term, snapshot)) for weight, term in preferred),
            tuple(WeightedTerm(weight, with_namespaces(term, snapshot)) for weight, term in preferred_anti),
        )
    )


def _plain(term: AffinityTerm | WeightedTerm) -> AffinityTerm:
    return term.term if isinstance(term, WeightedTerm) else term


def with_namespaces(term: AffinityTerm, snapshot: Snapshot) -> AffinityTerm:
    """Return the term with its namespace selector resolved to namespaces."""
    over = term.namespace_selector
    if over is None or over == EVERYTHING:
        return term
    return term._replace(namespaces=term.namespaces | snapshot.namespaces_selected(over), namespace_selector=None)
