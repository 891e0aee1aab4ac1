"""Scoring by spread: nodes whose domains hold fewer matching pods are better.

A domain's count is weighed by the logarithm of how many domains there are, so that many small domains are not drowned out by
few large ones, and ``maxSkew - 1`` is added, so that a difference matters less where more skew is tolerated. Host names are
counted node by node. Nodes that lack a label of the pod's own constraints are set aside and end with 0.

Source  kube-scheduler 1.36, plugins/podtopologyspread/scoring.go
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

from moorage.plugins.spread_counting import counted_rows, matching_pods
from moorage.state.columns import BoolArray, IntArray
from moorage.state.domains import domain_ids, rows_with_labels
from moorage.state.labels import Ids
from moorage.state.pod_info import PodInfo
from moorage.state.spread_constraint import SpreadConstraint
from moorage.state.view import NodeView

__all__ = ["HOSTNAME", "SpreadPreference", "Weighed", "normalize_spread", "prefer_spread", "score_spread"]

HOSTNAME = "kubernetes.io/hostname"
#: The raw score of a node that is set aside; all others are 0 or more.
_SET_ASIDE = -1
_MAX_SCORE = 100


@dataclass(frozen=True, slots=True)
class Weighed:
    """One constraint: the weight of a pod, and the pods in each domain, shape (values,). Host names have no ``counts``."""

    constraint: SpreadConstraint
    weight: float
    counts: IntArray | None


@dataclass(frozen=True, slots=True)
class SpreadPreference:
    """What Score needs. ``all_labels``: nodes without all the labels are set aside."""

    pod: PodInfo
    weighed: tuple[Weighed, ...]
    all_labels: bool


def prefer_spread(
    pod: PodInfo, feasible: NodeView, constraints: Sequence[SpreadConstraint], all_labels: bool, numeric: bool
) -> SpreadPreference:
    """Count what the constraints match, over all nodes, and weigh it by the domains among the feasible ones.

    Without ``all_labels`` nodes that lack a label are taken to have an empty one, as far as counting goes.
    """
    nodes = feasible.snapshot.nodes
    keys = [constraint.topology_key for constraint in constraints]
    among = rows_with_labels(nodes, keys) if all_labels else np.ones(len(nodes), dtype=bool)
    scored = rows_with_labels(feasible, keys) if all_labels else np.ones(len(feasible), dtype=bool)
    weighed: list[Weighed] = []
    for constraint, rows in counted_rows(pod, nodes, constraints, among, numeric):
        key = constraint.topology_key
        if key == HOSTNAME:
            weighed.append(Weighed(constraint, _weight(int(np.count_nonzero(scored))), None))
            continue
        values = len(nodes.label(key).values)
        found = np.bincount(_folded(feasible, key)[scored], minlength=values)
        per_row = matching_pods(pod, nodes, constraint) * rows
        counts = np.bincount(_folded(nodes, key), weights=per_row, minlength=values).astype(np.int64)
        weighed.append(Weighed(constraint, _weight(int(np.count_nonzero(found))), counts))
    return SpreadPreference(pod, tuple(weighed), all_labels)


def _weight(domains: int) -> float:
    return log(domains + 2)


def _folded(nodes: NodeView, key: str) -> Ids:
    """Return the domain of each row, where having no label and having it with an empty value are one domain."""
    ids = domain_ids(nodes, key)
    empty = nodes.label(key).find("")
    return ids if empty < 0 else np.where(ids == 0, np.int32(empty), ids)


def score_spread(preference: SpreadPreference, nodes: NodeView) -> IntArray:
    """Return the raw score of each row: the less, the better; ``_SET_ASIDE`` for nodes that are not to be scored."""
    total = np.zeros(len(nodes), dtype=np.float64)
    labelled = np.ones(len(nodes), dtype=bool)
    for one in preference.weighed:
        ids = domain_ids(nodes, one.constraint.topology_key)
        there = np.not_equal(ids, 0)
        counts = matching_pods(preference.pod, nodes, one.constraint) if one.counts is None else one.counts[ids]
        total += np.where(there, counts * one.weight + float(one.constraint.max_skew - 1), 0.0)
        labelled &= there
    scores = _rounded(total)
    return np.where(labelled, scores, _SET_ASIDE) if preference.all_labels else scores


def _rounded(scores: npt.NDArray[np.float64]) -> IntArray:
    """Round to the nearest integer, halves up; scores are not negative."""
    down = np.floor(scores)
    return (down + (scores - down >= 0.5)).astype(np.int64)


def normalize_spread(scores: IntArray) -> IntArray:
    """Turn raw scores, where less is better, into 0-100: the worst node keeps ``100 * least / most``, the best gets 100."""
    kept: BoolArray = scores != _SET_ASIDE
    if not kept.any():
        return np.zeros_like(scores)
    least, most = int(scores[kept].min()), int(scores[kept].max())
    if most == 0:
        return np.where(kept, _MAX_SCORE, 0)
    return np.where(kept, _MAX_SCORE * (most + least - scores) // most, 0)
