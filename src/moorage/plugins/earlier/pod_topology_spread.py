"""PodTopologySpread up to 1.35: pods that are only nominated wake no pod.

Up to 1.27 every pod is scored; without constraints all nodes get 100. Up to 1.26 a constraint with an empty selector counts
all pods of the namespace. Up to 1.23 the pods on all nodes of a domain count, if one of its nodes does, and scores are rounded
down; without the gate DefaultPodTopologySpread no constraints are the default.

Source    kube-scheduler 1.35, plugins/podtopologyspread/plugin.go; 1.27.16, scoring.go; 1.26.15, common.go; 1.23.5,
          filtering.go and scoring.go
"""

from __future__ import annotations

from typing import Final, Self

import numpy as np
from msgspec import structs

from moorage.api.requirements import Requirement
from moorage.api.selectors import Selector
from moorage.framework.feature_gates import FeatureGates
from moorage.framework.points import Reuse
from moorage.framework.verdicts import SKIP, Skip
from moorage.plugins.earlier.shared.placed_pods import WokenByPlacedPods
from moorage.plugins.pod_topology_spread import PodTopologySpread, PodTopologySpreadArgs
from moorage.plugins.spread.spread_scores import (
    CountedConstraint,
    Spread,
    SpreadPreference,
    add_unlabelled,
    pods_by_domain,
    score_spread,
)
from moorage.state.affinity_terms import SpreadConstraint
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView, rows_with_labels


class PodTopologySpreadV135(WokenByPlacedPods, PodTopologySpread):
    reuse = PodTopologySpread.reuse


class PodTopologySpreadV127(PodTopologySpreadV135):
    @property
    def reuse(self) -> Reuse:
        return Reuse(signature=self._signature, signature_reads=())

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> SpreadPreference:
        found = super().pre_score(pod, snapshot, feasible)
        return SpreadPreference((), all_labels=False) if isinstance(found, Skip) else found


#: Matches every pod, as an empty selector does, and is not empty: no pod has a label with this key.
_EVERY_POD: Final = Selector((Requirement("", "DoesNotExist"),))


class PodTopologySpreadV126(PodTopologySpreadV127):
    def _own(self, pod: PodInfo) -> tuple[SpreadConstraint, ...]:
        own = super()._own(pod)
        if not any(one.selector.is_empty for one in own):
            return own
        return tuple(one._replace(selector=_EVERY_POD) if one.selector.is_empty else one for one in own)


class PodTopologySpreadArgsV123(PodTopologySpreadArgs, frozen=True):
    """A gate decides about the default of ``defaultingType``."""

    defaulting_type: str = ""

    def completed(self, gates: FeatureGates) -> Self:
        default = "System" if gates["DefaultPodTopologySpread"] else "List"
        return self if self.defaulting_type else structs.replace(self, defaulting_type=default)


class PodTopologySpreadV123(PodTopologySpreadV126):
    Args = PodTopologySpreadArgsV123

    def __init__(self, args: PodTopologySpreadArgs | None = None) -> None:
        super().__init__(args or PodTopologySpreadArgs())

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> tuple[Spread, ...] | Skip:
        counted = self._counted(pod, snapshot, required=True)
        nodes = snapshot.nodes
        labelled = rows_with_labels(nodes, [one.constraint.topology_key for one in counted])
        return tuple(_with_whole_domains(one, nodes, labelled) for one in counted) or SKIP

    def score(self, preference: SpreadPreference, nodes: NodeView) -> IntArray:
        return score_spread(preference, nodes, down=True)


def _with_whole_domains(counted: CountedConstraint, nodes: NodeView, labelled: BoolArray | None) -> Spread:
    """Count the pods on all nodes of the domains that count. A missing label and an empty value are one domain."""
    key, matcher = counted.constraint.topology_key, counted.matcher
    pods = pods_by_domain(nodes, counted._replace(rows=None))
    if matcher is not None and not nodes.label(key).is_everywhere:
        add_unlabelled(pods, nodes, key, nodes.pods_matching(matcher), None)
    return Spread(counted.constraint, labelled, counted.domains, np.where(counted.domains, pods, 0), counted.own)
