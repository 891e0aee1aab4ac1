"""SelectorSpread: prefer nodes and zones with fewer pods of the same service or controller.

A pod's siblings are the pods of its namespace, not terminating, that match the selectors of everything that selects the pod:
services, replication controllers, replica sets, stateful sets. The plugin ignores pods with topology spread constraints.

Reads     labels and namespace of the pod; services, replication controllers, replica sets, stateful sets; counts of placed pods
Scores    siblings on the node, normalized: a third of the score is the share by which the node has fewer than the fullest
          node, two thirds the same share of its zone; for a node without a zone only the node's share counts
Source    kube-scheduler 1.21, plugins/selectorspread/selector_spread.go
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from moorage.api.selectors import Selector
from moorage.framework.points import NodeScoreExtensions, PreScorePlugin, ScorePlugin
from moorage.plugins.v1_21.shared.node_zones import zone_numbers
from moorage.plugins.v1_21.shared.sibling_selector import live_pods, sibling_selector
from moorage.state.view import IntArray, NodeView, PodInfo, Snapshot

_MAX_SCORE = 100.0
#: The weight of the zone in the score, where there are zones.
_ZONE_WEIGHT = 2.0 / 3.0


class Siblings(NamedTuple):
    """The pods to count. ``selector`` is None for a pod with its own spread constraints."""

    namespace: str
    selector: Selector | None


class SelectorSpread(PreScorePlugin[Siblings], ScorePlugin[Siblings], NodeScoreExtensions[Siblings]):
    name = "SelectorSpread"

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> Siblings:
        own = bool(pod.spec.topology_spread_constraints)
        return Siblings(pod.namespace, None if own else sibling_selector(pod, snapshot))

    def score(self, siblings: Siblings, nodes: NodeView) -> IntArray:
        if siblings.selector is None or siblings.selector.is_empty:
            return nodes.zeros()
        return live_pods(siblings.namespace, siblings.selector, nodes).astype(np.int64)

    def normalize_over(self, siblings: Siblings, scores: IntArray, nodes: NodeView) -> IntArray:
        return scores if siblings.selector is None else spread_scores(scores, nodes.snapshot.index(zone_numbers).of(nodes))


def spread_scores(counts: IntArray, zones: IntArray) -> IntArray:
    """Map the number of siblings on each node to scores: the fewer on the node and in its zone, the higher.

    Shapes  counts (n,) int64, zones (n,) with 0 for none; returns (n,) int64, 0-100
    Rounds  towards zero, after float64 arithmetic in kube-scheduler's order of operations
    Source  selectorspread/selector_spread.go, NormalizeScore
    """
    scores = _share_below_most(counts, counts)
    in_zone = np.bincount(zones, weights=counts * (zones != 0)).astype(np.int64)
    mixed = scores * (1.0 - _ZONE_WEIGHT) + _ZONE_WEIGHT * _share_below_most(in_zone[zones], in_zone)
    return np.where(zones != 0, mixed, scores).astype(np.int64)


def _share_below_most(counts: IntArray, among: IntArray) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    most = int(among.max(initial=0))
    if most == 0:
        return np.full(len(counts), _MAX_SCORE)
    return _MAX_SCORE * ((most - counts).astype(np.float64) / float(most))
