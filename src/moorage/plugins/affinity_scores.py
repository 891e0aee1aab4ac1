"""Scoring by neighbours: every preference that a pod has for others, or others have for it, pulls or pushes by its weight.

Weights are added up per topology domain; a node's raw score is the sum over its domains and may be negative. The nodes are then
stretched between the worst, 0, and the best, 100.

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

__all__ = ["Pulls", "normalize_pulls", "score_pulls", "weigh_neighbours"]

_MAX_SCORE = 100

#: Topology key → what being in each domain is worth, shape (values,).
Pulls = Mapping[str, IntArray]


class _Pull(NamedTuple):
    """So many pods in each domain of a topology pull, each by ``weight``, towards it."""

    topology_key: str
    weight: int
    pods: IntArray


def weigh_neighbours(pod: PodInfo, snapshot: Snapshot, hard_weight: int) -> Pulls | None:
    """Add up what draws the pod to each domain; None if nothing does, though opposites may cancel out.

    ``hard_weight`` is what a placed pod's required affinity to the incoming one counts for.
    """
    table = snapshot.table
    held = (table.required_affinity, table.preferred_affinity, table.preferred_anti_affinity)
    if not pod.has_affinity and not any(map(len, held)):
        return None
    pulls: dict[str, IntArray] = {}
    for key, weight, pods in (*_own_pulls(pod, snapshot), *_pulls_of_others(pod, snapshot, hard_weight)):
        if pods.any():
            pulls[key] = weight * pods + pulls.get(key, 0)
    return pulls or None


def _own_pulls(pod: PodInfo, snapshot: Snapshot) -> Iterator[_Pull]:
    counts = snapshot.table.pod_counts
    for sign, terms in ((1, pod.preferred_affinity), (-1, pod.preferred_anti_affinity)):
        for weight, term in terms:
            match, key = resolved(term, snapshot)
            yield _Pull(key, sign * weight, counts.by_domain(PodMatcher((match,)), key))


def _pulls_of_others(pod: PodInfo, snapshot: Snapshot, hard_weight: int) -> Iterator[_Pull]:
    labels = snapshot.namespace_labels(pod.namespace)
    table = snapshot.table
    if hard_weight > 0:
        for held, holders in table.required_affinity.selecting(pod, labels):
            yield _Pull(held.term.topology_key, hard_weight, holders)
    for held, holders in table.preferred_affinity.selecting(pod, labels):
        yield _Pull(held.term.topology_key, held.weight, holders)
    for held, holders in table.preferred_anti_affinity.selecting(pod, labels):
        yield _Pull(held.term.topology_key, -held.weight, holders)
    if not pod.preferred_affinity and not pod.preferred_anti_affinity:  # who prefers anything itself hears of everybody
        yield from _unheard_pulls(pod, snapshot, hard_weight)


def _unheard_pulls(pod: PodInfo, snapshot: Snapshot, hard_weight: int) -> Iterator[_Pull]:
    """Take back what pods pull by whose demands do not count yet."""
    labels = snapshot.namespace_labels(pod.namespace)
    for weight, term, name in snapshot.unheard.pulls(hard_weight):
        node = snapshot.node(name)
        domain = node.domain(term.topology_key) if node is not None else 0
        if domain and term.matches(pod, labels):
            pods = np.zeros(len(snapshot.table.labels.column(term.topology_key).values), dtype=np.int64)
            pods[domain] = 1
            yield _Pull(term.topology_key, -weight, pods)


def score_pulls(pulls: Pulls, nodes: NodeView) -> IntArray:
    """Return the raw score of each row, shape (rows,)."""
    scores = nodes.zeros()
    for key, worth in pulls.items():
        scores += worth.take(domain_ids(nodes, key))
    return scores


def normalize_pulls(scores: IntArray) -> IntArray:
    """Stretch raw scores to 0-100, rounding down; all alike become 0."""
    least = scores.min(initial=np.iinfo(np.int64).max)
    span = int(scores.max(initial=least)) - int(least)
    if span <= 0:
        return np.zeros_like(scores)
    # In this order of operations, so that rounding errors are upstream's.
    shares: IntArray = (float(_MAX_SCORE) * ((scores - least).astype(np.float64) / float(span))).astype(np.int64)
    return shares
