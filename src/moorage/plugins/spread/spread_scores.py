"""Scores of PodTopologySpread: nodes whose domains hold fewer matching pods are better.

A domain's count is multiplied by the logarithm of the number of domains, so that a topology with many small domains weighs
enough beside one with few large domains. ``maxSkew - 1`` is added, so that differences matter less where more skew is allowed.
Host names are counted node by node. Nodes that lack a label of the pod's own constraints are ignored and end with 0.

Source  kube-scheduler 1.36, plugins/podtopologyspread/scoring.go
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor, log
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.framework.points import ScoresByCount
from moorage.plugins.spread.spread_counts import CountedConstraint, pods_by_domain
from moorage.state.columns import BoolArray, IntArray
from moorage.state.counts import Counts, PodMatcher
from moorage.state.view import NodeView, domain_ids, domains_with, rows_with_labels

__all__ = [
    "HOSTNAME",
    "SET_ASIDE",
    "SpreadPreference",
    "WeightedConstraint",
    "add_unlabelled",
    "normalize_spread",
    "score_by_count",
    "score_domains",
    "score_spread",
    "weigh_spread",
]

HOSTNAME = "kubernetes.io/hostname"
#: The raw score of an ignored node; all others are 0 or more.
SET_ASIDE = -1
_MAX_SCORE = 100
#: Up to this many domains are rounded in a Python loop: a NumPy call has a fixed cost, whatever the size.
_FEW = 32


_Floats = npt.NDArray[np.floating[Any]]


class WeightedConstraint(NamedTuple):
    """One constraint and the cost of each domain, shape (values,), 0 for id 0.

    For host names ``costs`` is None: a node costs ``weight`` for each pod on it that ``matcher`` matches, plus ``more``.
    """

    topology_key: str
    costs: _Floats | None
    weight: float
    more: float
    matcher: PodMatcher | None


class SpreadPreference(NamedTuple):
    """The PreScore state. ``all_labels``: nodes that lack one of the labels are ignored."""

    weighed: tuple[WeightedConstraint, ...]
    all_labels: bool


def weigh_spread(feasible: NodeView, counted: Sequence[CountedConstraint], all_labels: bool) -> SpreadPreference:
    """Count the pods that match the constraints, over all nodes, and weigh the counts by the domains of the feasible nodes.

    Without ``all_labels``, a node that lacks a label counts as having an empty value.
    """
    nodes = feasible.snapshot.nodes
    keys = [one.constraint.topology_key for one in counted]
    scored = rows_with_labels(feasible, keys) if all_labels else None
    weighed: list[WeightedConstraint] = []
    for one in counted:
        key, more, matcher = one.constraint.topology_key, float(one.constraint.max_skew - 1), one.matcher
        if key == HOSTNAME:
            size = len(feasible) if scored is None else int(np.count_nonzero(scored))
            weighed.append(WeightedConstraint(key, None, _weight(size), more, matcher))
            continue
        counts = pods_by_domain(nodes, one)
        if not all_labels and matcher is not None and not nodes.label(key).is_everywhere:
            add_unlabelled(counts, nodes, key, nodes.pods_matching(matcher), one.rows)
        weight = _weight(_domains(feasible, key, scored))
        weighed.append(WeightedConstraint(key, _costs_of(counts, weight, more), weight, more, matcher))
    return SpreadPreference(tuple(weighed), all_labels)


def _costs_of(counts: IntArray, weight: float, more: float) -> _Floats:
    """Return the cost of each domain, 0 for id 0; shape of ``counts``."""
    few = len(counts) <= _FEW
    costs = np.array([count * weight + more for count in counts.tolist()]) if few else counts * weight + more
    costs[0] = 0.0
    return costs


def _weight(domains: int) -> float:
    return log(domains + 2)


def _domains(feasible: NodeView, key: str, scored: BoolArray | None) -> int:
    """Return the number of domains of the scored nodes; a missing label and an empty value are one domain."""
    column = feasible.label(key)
    if scored is None and column.is_everywhere and feasible.is_whole:
        return column.domain_count
    held = domains_with(feasible, key, scored)
    if scored is not None or column.is_everywhere or domain_ids(feasible, key).all():
        return int(np.count_nonzero(held))
    empty = column.find("")
    return int(np.count_nonzero(held)) + (empty < 0 or not held[empty])


def add_unlabelled(counts: IntArray, nodes: NodeView, key: str, pods: Counts, rows: BoolArray | None) -> None:
    """Add pods on nodes without the label to the domain of the empty value, if any node has that value."""
    column = nodes.label(key)
    empty = column.find("")
    if empty >= 0:
        lacking = domain_ids(nodes, key) == 0
        counts[empty] += int(pods[lacking if rows is None else lacking & rows].sum())


def score_spread(preference: SpreadPreference, nodes: NodeView, *, down: bool = False) -> IntArray:
    """Return the raw score of each row, lower is better; ``SET_ASIDE`` for ignored nodes. ``down``: round down."""
    costs = (_costs(one, nodes) for one in preference.weighed)
    total = next(costs) if len(preference.weighed) == 1 else sum(costs, start=np.zeros(len(nodes)))
    scores = np.floor(total).astype(np.int64) if down else _rounded(total)
    labelled = rows_with_labels(nodes, [one.topology_key for one in preference.weighed]) if preference.all_labels else None
    return scores if labelled is None else np.where(labelled, scores, SET_ASIDE)


def score_domains(preference: SpreadPreference) -> tuple[str, IntArray] | None:
    """Return the topology key and the raw score of each domain; None if rows of one domain may differ."""
    if len(preference.weighed) != 1 or preference.weighed[0].costs is None:
        return None
    costs = preference.weighed[0].costs
    scores = _few_rounded(costs.tolist()) if len(costs) <= _FEW else _rounded(costs)
    if preference.all_labels:
        scores[0] = SET_ASIDE
    return preference.weighed[0].topology_key, scores


def score_by_count(preference: SpreadPreference, nodes: NodeView) -> ScoresByCount | None:
    """Return the raw scores by domain and by the number of matching pods on the node; None if they depend on more."""
    on_hosts = [one for one in preference.weighed if one.costs is None]
    others = [one for one in preference.weighed if one.costs is not None]
    if len(on_hosts) != 1 or len(others) != 1 or not nodes.label(HOSTNAME).is_everywhere:
        return None
    host, costs, matcher = on_hosts[0], others[0].costs, on_hosts[0].matcher
    if matcher is None or costs is None:
        return None
    if preference.all_labels and not nodes.label(others[0].topology_key).is_everywhere:
        return None

    def raw(most: int) -> IntArray:
        if (most + 1) * len(costs) > _FEW:
            return _rounded(np.add.outer(np.arange(most + 1) * host.weight + host.more, costs))
        at_hosts = [count * host.weight + host.more for count in range(most + 1)]
        sums = [at_host + cost for at_host in at_hosts for cost in costs.tolist()]
        return _few_rounded(sums).reshape(most + 1, len(costs))

    return ScoresByCount(others[0].topology_key, matcher, raw)


def _costs(one: WeightedConstraint, nodes: NodeView) -> _Floats:
    column = nodes.label(one.topology_key)
    if one.costs is not None:
        return one.costs.take(nodes.ids(column))
    found = nodes.zeros() if one.matcher is None else nodes.pods_matching(one.matcher)
    costs: _Floats = found * one.weight + one.more
    return costs if column.is_everywhere else np.where(nodes.ids(column) == 0, 0.0, costs)


def _rounded(scores: _Floats) -> IntArray:
    """Round non-negative scores to the nearest integer, halves up."""
    down = np.floor(scores)
    down += scores - down >= 0.5
    return down.astype(np.int64)


def _few_rounded(scores: Iterable[float]) -> IntArray:
    """Round like ``_rounded``, one by one, which is faster for few scores."""
    return np.array([(down := floor(score)) + (score - down >= 0.5) for score in scores], dtype=np.int64)


def normalize_spread(scores: IntArray) -> IntArray:
    """Map raw scores, where lower is better, to 0-100: the worst node gets ``100 * least / most``, the best gets 100."""
    if not len(scores):
        return np.zeros_like(scores)
    most, least = scores.item(scores.argmax()), scores.item(scores.argmin())  # several times faster than max and min
    if least >= 0 and most > 0 and len(scores) <= _FEW:
        both = most + least
        return np.array([(both - score) * _MAX_SCORE // most for score in scores.tolist()], dtype=scores.dtype)
    if most == SET_ASIDE:
        return np.zeros_like(scores)
    kept: BoolArray | None = None
    if least == SET_ASIDE:
        kept = scores != SET_ASIDE
        least = int(scores[kept].min())
    shares = np.full_like(scores, _MAX_SCORE) if most == 0 else (most + least - scores) * _MAX_SCORE // most
    return shares if kept is None else np.where(kept, shares, 0)
