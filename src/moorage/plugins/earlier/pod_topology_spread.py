"""PodTopologySpread up to 1.35: pods that are only nominated wake no pod.

Up to 1.27 every pod is scored; without constraints all nodes get 100. Up to 1.26 a constraint with an empty selector counts
all pods of the namespace. Up to 1.23 the pods on all nodes of a domain count, if one of its nodes does, and scores are rounded
down; without the gate DefaultPodTopologySpread no constraints are the default. In 1.21 taints, inclusion policies and
``minDomains`` never matter; default constraints count the pods that share any service or controller with the pod, and, as its
own ones, score 0 on a node without all their labels; any event wakes the pods.

Source    kube-scheduler 1.35, plugins/podtopologyspread/plugin.go; 1.27.16, scoring.go; 1.26.15, common.go; 1.23.5,
          filtering.go and scoring.go; 1.21.2, the same (later patches spread by default over nodes without a zone, too)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final, Self

import numpy as np
from msgspec import structs

from moorage.api.feature_gates import FeatureGates
from moorage.api.requirements import Requirement
from moorage.api.selectors import Selector
from moorage.framework.events import ANY_EVENT, Wake
from moorage.framework.points import Reuse
from moorage.framework.verdicts import SKIP, Skip
from moorage.plugins.earlier.shared.placed_pods import WokenByPlacedPods
from moorage.plugins.pod_topology_spread import PodTopologySpread, PodTopologySpreadArgs
from moorage.plugins.spread import spread_counts
from moorage.plugins.v1_21.shared.sibling_selector import sibling_selector
from moorage.state.spread_constraints import SpreadConstraint
from moorage.state.view import BoolArray, IntArray, NodeView, PodInfo, Snapshot, domain_ids, rows_with_labels


class PodTopologySpreadV135(WokenByPlacedPods, PodTopologySpread):
    reuse = PodTopologySpread.reuse


class PodTopologySpreadV127(PodTopologySpreadV135):
    @property
    def reuse(self) -> Reuse:
        return Reuse(signature=self._signature, signature_reads=(), signature_reads_metadata=True)

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> spread_counts.SpreadPreference:
        found = super().pre_score(pod, snapshot, feasible)
        return spread_counts.SpreadPreference((), all_labels=False) if isinstance(found, Skip) else found


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

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> tuple[spread_counts.Spread, ...] | Skip:
        counted = self._counted(pod, snapshot, required=True)
        nodes = snapshot.nodes
        labelled = rows_with_labels(nodes, [one.constraint.topology_key for one in counted])
        return tuple(_with_whole_domains(one, nodes, labelled) for one in counted) or SKIP

    def score(self, preference: spread_counts.SpreadPreference, nodes: NodeView) -> IntArray:
        return spread_counts.score_spread(preference, nodes, down=True)


def _with_whole_domains(
    counted: spread_counts.CountedConstraint, nodes: NodeView, labelled: BoolArray | None
) -> spread_counts.Spread:
    """Count the pods on all nodes of the domains that count. A missing label and an empty value are one domain."""
    key, matcher, domains = counted.constraint.topology_key, counted.matcher, counted.domains
    pods = spread_counts.pods_by_domain(nodes, counted._replace(rows=None))
    if matcher is not None and not nodes.label(key).is_everywhere:
        spread_counts.add_unlabelled(pods, nodes, key, nodes.pods_matching(matcher), None)
    in_domains = domains.take(domain_ids(nodes, key))
    rows = in_domains if labelled is None else labelled & in_domains
    return spread_counts.Spread(counted.constraint, rows, domains, np.where(domains, pods, 0), counted.own)


class PodTopologySpreadArgsV121(PodTopologySpreadArgsV123, frozen=True):
    """The default of ``defaultingType`` depends on the constraints, too."""

    def completed(self, gates: FeatureGates) -> Self:
        is_list = not self.defaulting_type and self.default_constraints
        return structs.replace(self, defaulting_type="List") if is_list else super().completed(gates)


class PodTopologySpreadV121(PodTopologySpreadV123):
    Args = PodTopologySpreadArgsV121

    def __init__(self, args: PodTopologySpreadArgsV121 | None = None) -> None:
        super().__init__(args or PodTopologySpreadArgsV121(defaulting_type="System"))

    def _own(self, pod: PodInfo) -> tuple[SpreadConstraint, ...]:
        own = super()._own(pod)
        return tuple(one._replace(min_domains=1, honors_affinity=True, honors_taints=False) for one in own)

    def _selector(self, pod: PodInfo, snapshot: Snapshot, owners: Hashable) -> Selector:
        return pod.keep("selector of siblings", owners, lambda: sibling_selector(pod, snapshot))

    def _needs_all_labels(self, pod: PodInfo) -> bool:
        return True

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ANY_EVENT)
