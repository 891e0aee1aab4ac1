"""Scores of InterPodAffinity: each term that matches adds its weight to the topology domain of the pod that it matches.

Preferred affinity adds weight, preferred anti-affinity subtracts it, for terms of the incoming pod and of placed pods. A node's
raw score is the sum over its domains and may be negative. Normalizing maps the lowest raw score to 0 and the highest to 100.

Source  kube-scheduler 1.36, plugins/interpodaffinity/scoring.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from moorage.plugins.affinity_counts import resolved
from moorage.state.cluster import Snapshot
from moorage.state.columns import IntArray
from moorage.state.counts import PodMatcher
from moorage.state.domains import domain_ids
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["AffinityWeights", "normalize_weights", "sum_weights", "weigh_affinity"]

_MAX_SCORE = 100
#: Up to this many different sums are normalized once each, and looked up.
_FEW_SUMS = 1024

#: Topology key → summed weight of each domain, shape (values,).
AffinityWeights = Mapping[str, IntArray]


class _WeightedTerm(NamedTuple):
    """The pods that a term matches in each domain, in a fresh array, and the weight of each; a negative weight repels."""

    topology_key: str
    weight: int
    pods: IntArray


def weigh_affinity(pod: PodInfo, snapshot: Snapshot, hard_weight: int) -> AffinityWeights | None:
    """Sum the weights of each domain; None if no term matches a pod. Sums may be zero where weights cancel out.

    ``hard_weight`` is the weight of a placed pod's required affinity term that matches the incoming pod.
    """
    table = snapshot.table
    held = (table.required_affinity, table.preferred_affinity, table.preferred_anti_affinity)
    if not any(map(len, held)) and not (pod.preferred_affinity or pod.preferred_anti_affinity):
        return None
    weights: dict[str, IntArray] = {}
    for key, weight, pods in (*_own_terms(pod, snapshot), *_terms_of_placed_pods(pod, snapshot, hard_weight)):
        if pods.item(pods.argmax()) > 0:  # several times faster than any()
            weighted = pods if weight == 1 else np.multiply(pods, weight, out=pods)
            weights[key] = np.add(weighted, weights[key], out=weighted) if key in weights else weighted
    return weights or None


def _own_terms(pod: PodInfo, snapshot: Snapshot) -> Iterator[_WeightedTerm]:
    counts = snapshot.table.pod_counts
    for sign, terms in ((1, pod.preferred_affinity), (-1, pod.preferred_anti_affinity)):
        for weight, term in terms:
            match, key = resolved(term, snapshot)
            yield _WeightedTerm(key, sign * weight, counts.by_domain(PodMatcher((match,)), key))


def _terms_of_placed_pods(pod: PodInfo, snapshot: Snapshot, hard_weight: int) -> Iterator[_WeightedTerm]:
    labels = snapshot.namespace_labels(pod.namespace)
    table = snapshot.table
    if hard_weight > 0 and len(table.required_affinity):
        for held, holders in table.required_affinity.selecting(pod, labels):
            yield _WeightedTerm(held.term.topology_key, hard_weight, holders)
    if len(table.preferred_affinity):
        for held, holders in table.preferred_affinity.selecting(pod, labels):
            yield _WeightedTerm(held.term.topology_key, held.weight, holders)
    if len(table.preferred_anti_affinity):
        for held, holders in table.preferred_anti_affinity.selecting(pod, labels):
            yield _WeightedTerm(held.term.topology_key, -held.weight, holders)
    if not pod.preferred_affinity and not pod.preferred_anti_affinity:  # otherwise kube-scheduler counts every placed pod
        yield from _unlisted_terms(pod, snapshot, hard_weight)


def _unlisted_terms(pod: PodInfo, snapshot: Snapshot, hard_weight: int) -> Iterator[_WeightedTerm]:
    """Subtract the weights of placed pods that kube-scheduler's snapshot does not yet list among pods with affinity."""
    labels = snapshot.namespace_labels(pod.namespace)
    for weight, term, holders in snapshot.unheard.pulls(hard_weight):
        if term.matches(pod, labels):
            values = snapshot.table.labels.column(term.topology_key).values
            yield _WeightedTerm(term.topology_key, -weight, holders.copy(len(values)))


def sum_weights(weights: AffinityWeights, nodes: NodeView) -> IntArray:
    """Return the raw score of each row, shape (rows,)."""
    scores = nodes.zeros()
    for key, weight_by_domain in weights.items():
        scores += weight_by_domain.take(domain_ids(nodes, key))
    return scores


def normalize_weights(scores: IntArray) -> IntArray:
    """Map raw scores to 0-100, rounding down; if all are equal, they become 0."""
    if not len(scores):
        return np.zeros_like(scores)
    least = scores.item(scores.argmin())  # several times faster than min()
    span = scores.item(scores.argmax()) - least
    if span <= 0:
        return np.zeros_like(scores)
    above = scores - least if least else scores
    if span > min(_FEW_SUMS, len(scores) // 4):
        return _shares(above, span)
    found: IntArray = _shares(np.arange(span + 1), span).take(above)
    return found


def _shares(above: IntArray, span: int) -> IntArray:
    """Return percentages of the span, in the order of operations of kube-scheduler, for the same floating-point rounding."""
    shares: IntArray = (float(_MAX_SCORE) * (above.astype(np.float64) / float(span))).astype(np.int64)
    return shares
