"""Scores of InterPodAffinity: each term that matches adds its weight to the topology domain of the pod that it matches.

Preferred affinity adds weight, preferred anti-affinity subtracts it, for terms of the incoming pod and of placed pods. A node's
raw score is the sum over its domains and may be negative. Normalizing maps the lowest raw score to 0 and the highest to 100.

Source  kube-scheduler 1.36, plugins/interpodaffinity/scoring.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from moorage.api.core import Namespace
from moorage.framework.answer_forms import FollowedScores
from moorage.plugins.affinity.affinity_counts import resolved
from moorage.state.cluster import Snapshot
from moorage.state.columns import IntArray
from moorage.state.counts import PodMatcher
from moorage.state.labels import IdCounts
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView, domain_ids
from moorage.state.weight_sums import WeightSum, WeightSums

__all__ = ["AffinityWeights", "FollowedWeights", "normalize_weights", "sum_weights", "weigh_affinity"]

_MAX_SCORE = 100
#: Up to this many different sums are normalized once each, and looked up.
_FEW_SUMS = 1024

#: Sums over fewer domains than this are added up for each pod.
_FEW_DOMAINS = 64

#: Topology key → summed weight of each domain, shape (values,).
AffinityWeights = Mapping[str, IntArray]


class FollowedWeights(dict[str, IntArray]):
    """Weights of one topology key, in an array that follows changes."""

    def __init__(self, weights: WeightSum) -> None:
        super().__init__({weights.key: weights.values})
        self.answer = FollowedScores(weights.key, weights.values, weights.changes, weights.step)


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
    followed = _followed(pod, snapshot, hard_weight) if pod.preferred_affinity or pod.preferred_anti_affinity else None
    if followed is not None:
        return followed
    weights: dict[str, IntArray] = {}
    for key, weight, pods in (*_own_terms(pod, snapshot), *_terms_of_placed_pods(pod, snapshot, hard_weight)):
        if pods.item(pods.argmax()) > 0:  # several times faster than any()
            weighted = pods if weight == 1 else np.multiply(pods, weight, out=pods)
            weights[key] = np.add(weighted, weights[key], out=weighted) if key in weights else weighted
    return weights or None


class _Followed:
    """The sum of weights for pods of one shape; None if terms have several keys or few domains."""

    def __init__(self, weights: WeightSum | None) -> None:
        self._sum = weights
        self._state: FollowedWeights | None = None

    def state(self) -> FollowedWeights | None:
        """Return the weights as they are now; None if there is no sum, or all weights are zero."""
        weights = self._sum
        if weights is None:
            return None
        weights.follow()
        if not weights.nonzero:
            return None
        if self._state is None or self._state.answer.changes is not weights.changes:
            self._state = FollowedWeights(weights)
        return self._state


def _followed(pod: PodInfo, snapshot: Snapshot, hard_weight: int) -> FollowedWeights | None:
    """Return the weights from a sum that is kept; None if there is none."""
    table = snapshot.table
    if table.rows_in_what_ifs:
        return None
    sums = snapshot.index(_sums)
    version = (
        sums, hard_weight, table.pod_counts.dropped, snapshot.changes_of(Namespace).position, table.changes.nodes,
        table.required_affinity.position, table.preferred_affinity.position, table.preferred_anti_affinity.position,
    )  # fmt: skip
    return pod.keep(_Followed, version, lambda: _Followed(_sum_of(pod, snapshot, hard_weight, sums))).state()


def _sum_of(pod: PodInfo, snapshot: Snapshot, hard_weight: int, sums: WeightSums) -> WeightSum | None:
    table, labels = snapshot.table, snapshot.namespace_labels(pod.namespace)
    keys: set[str] = set()
    summands: list[tuple[IdCounts, int]] = []
    for sign, terms in ((1, pod.preferred_affinity), (-1, pod.preferred_anti_affinity)):
        for weight, term in terms:
            match, key = resolved(term, snapshot)
            tally = table.pod_counts.tally(PodMatcher((match,)), key)
            keys.add(key)
            if tally is None:
                return None
            summands.append((tally, sign * weight))
    held_terms = ((table.preferred_affinity, 1), (table.preferred_anti_affinity, -1), (table.required_affinity, 0))
    for terms_held, sign in held_terms if hard_weight > 0 else held_terms[:2]:
        for held, tally in terms_held.tallies(pod, labels):
            keys.add(held.term.topology_key)
            summands.append((tally, sign * held.weight if sign else hard_weight))
    (key, *others) = keys
    if others or len(table.labels.column(key).values) <= _FEW_DOMAINS:
        return None
    return sums.of(key, tuple(summands))


def _sums(snapshot: Snapshot) -> WeightSums:
    return WeightSums(snapshot.table)


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
