"""PodTopologySpread up to 1.35: pods that are only nominated wake no pod.

Up to 1.27 every pod is scored; without constraints all nodes get 100. Up to 1.26 a constraint with an empty selector counts
all pods of the namespace. Up to 1.23 the pods on all nodes of a domain count, if one of its nodes does, and scores are rounded
down; without the gate DefaultPodTopologySpread no constraints are the default.

Source    kube-scheduler 1.35, plugins/podtopologyspread/plugin.go; 1.27.16, scoring.go; 1.26.15, common.go; 1.23.5,
          filtering.go and scoring.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import log
from typing import Final, Self

import numpy as np
from msgspec import structs

from moorage.api.requirements import Requirement
from moorage.api.selectors import Selector, SelectorError
from moorage.errors import PluginError
from moorage.framework import points
from moorage.framework.changes import Detail, ExplainingPlugin, Remedies, RemedyingPlugin, TermsPlugin
from moorage.framework.feature_gates import FeatureGates
from moorage.framework.points import Reuse
from moorage.framework.verdicts import SKIP, Reject, Skip
from moorage.plugins import pod_topology_spread as today
from moorage.plugins.earlier.shared.placed_pods import WokenByPlacedPods
from moorage.plugins.pod_topology_spread import REASON, REASON_LABEL, SYSTEM_DEFAULTS, PodTopologySpread, PodTopologySpreadArgs
from moorage.plugins.spread import spread_scores
from moorage.plugins.spread.spread_reasons import explained, refusing_terms, remedies_of_spreads
from moorage.plugins.v1_21.shared.sibling_selector import live_pods, sibling_selector
from moorage.state.affinity_terms import SpreadConstraint, compile_spread_constraint
from moorage.state.labels import Ids
from moorage.state.node_matching import required_node_affinity_rows
from moorage.state.view import BoolArray, IntArray, NodeInfo, NodeView, PodInfo, Snapshot, domain_ids, rows_with_labels

# -- 1.21 --------------------------------------------------------------------------------------------------------------
# PodTopologySpread of 1.21: spread a pod's replicas evenly over zones, hosts or any other topology.
#
# What counts differs from the current plugin: a domain counts if the pod's node selector and affinity match one of its nodes,
# and then the pods on all its nodes count; a constraint with an empty selector counts every pod of the namespace. Taints never
# matter, and there is no ``minDomains``. Every pod is scored: one without constraints gives all nodes 100.
#
# Reads     topologySpreadConstraints, labels and namespace of the pod; node selector and node affinity; services, replication
#           controllers, replica sets and stateful sets, for default constraints; counts of placed pods
# Rejects   nodes where the pod would exceed maxSkew: preemption may help; nodes without a topology label: it does not
# Scores    nodes whose domains hold fewer matching pods higher, counts rounded down; nodes without the labels of all
#           constraints, including the default ones, get 0
# Source    kube-scheduler 1.21.2, plugins/podtopologyspread/*.go (later patches spread by default over nodes without a zone,
#           too)

#: The value from which upstream starts its search for the lowest count; it remains where no domain counts.
_NO_LEAST = 2**31 - 1


class PodTopologySpreadArgsV121(today.PodTopologySpreadArgs, frozen=True):
    """As in the current plugin, but the default of ``defaultingType`` depends on the constraints and on a gate."""

    defaulting_type: str = ""

    def completed(self, gates: FeatureGates) -> Self:
        if self.defaulting_type:
            return self
        system = gates["DefaultPodTopologySpread"] and not self.default_constraints
        return structs.replace(self, defaulting_type="System" if system else "List")


@dataclass(frozen=True, slots=True)
class _Spread:
    """One DoNotSchedule constraint. ``domains`` (values,) marks those that count, ``counts`` (values,) their pods.

    ``labelled`` (rows,) marks the nodes with the labels of all constraints; a what-if on any other node leaves the counts as
    they are.
    """

    constraint: SpreadConstraint
    labelled: BoolArray
    domains: BoolArray
    counts: IntArray
    own: int

    def crowded(self) -> BoolArray:
        """Return for each domain whether one more pod would exceed ``maxSkew``; shape (values,)."""
        least = int(self.counts[self.domains].min(initial=_NO_LEAST))
        return self.counts + self.own - least > self.constraint.max_skew

    def as_today(self) -> spread_scores.Spread:
        """Return the same counts as the current plugin's ``Spread``."""
        return spread_scores.Spread(self.constraint, None, self.domains, self.counts, self.own)

    def shifted(self, other: PodInfo, node: NodeInfo, by: int) -> _Spread:
        """Return the counts after ``other`` is added to (``by`` = 1) or removed from (``by`` = -1) a node."""
        domain = node.domain(self.constraint.topology_key)
        counted = self.labelled[node.row] and self.domains[domain] and self.constraint.selector.matches(other.labels)
        if not counted:
            return self
        counts = self.counts.copy()
        counts[domain] += by
        return replace(self, counts=counts)


@dataclass(frozen=True, slots=True)
class _Weighed:
    """One ScheduleAnyway constraint: the weight of a pod, and pods by domain, shape (values,), None for host names."""

    constraint: SpreadConstraint
    weight: float
    counts: IntArray | None


@dataclass(frozen=True, slots=True)
class _Preference:
    """The PreScore state. Nodes without the labels of all constraints are ignored."""

    namespace: str
    weighed: tuple[_Weighed, ...]


class PodTopologySpreadV121(
    points.PreFilterPlugin[tuple[_Spread, ...]],
    points.PreFilterExtensions[tuple[_Spread, ...]],
    points.FilterPlugin[tuple[_Spread, ...]],
    points.PreScorePlugin[_Preference],
    points.ScorePlugin[_Preference],
    points.ScoreExtensions[_Preference],
    ExplainingPlugin[tuple[_Spread, ...]],
    TermsPlugin[tuple[_Spread, ...]],
    RemedyingPlugin[tuple[_Spread, ...]],
    points.Reusable,
):
    name = "PodTopologySpread"
    Args = PodTopologySpreadArgsV121

    def __init__(self, args: PodTopologySpreadArgsV121 | None = None) -> None:
        args = args or PodTopologySpreadArgsV121(defaulting_type="System")
        defaults = SYSTEM_DEFAULTS if args.defaulting_type == "System" else args.default_constraints
        self._defaults = tuple(compile_spread_constraint(constraint, {}) for constraint in defaults)

    def _own(self, pod: PodInfo) -> tuple[SpreadConstraint, ...]:
        try:
            return tuple(compile_spread_constraint(constraint, {}) for constraint in pod.spec.topology_spread_constraints)
        except SelectorError as error:
            raise PluginError(self.name, f"cannot read the topology spread constraints of {pod.key}: {error}") from error

    def _constraints(self, pod: PodInfo, snapshot: Snapshot, required: bool) -> list[SpreadConstraint]:
        """Return the pod's own constraints of one kind; the default ones if the pod has no constraints of any kind."""
        if pod.spec.topology_spread_constraints:
            return [constraint for constraint in self._own(pod) if constraint.required is required]
        wanted = [constraint for constraint in self._defaults if constraint.required is required]
        selector = sibling_selector(pod, snapshot) if wanted else None
        if selector is None or selector.is_empty:
            return []
        return [constraint._replace(selector=selector) for constraint in wanted]

    # -- filter -------------------------------------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> tuple[_Spread, ...] | Skip:
        constraints = self._constraints(pod, snapshot, required=True)
        if not constraints:
            return SKIP
        nodes = snapshot.nodes
        labelled = _rows_with(nodes, [constraint.topology_key for constraint in constraints])
        counting = labelled & required_node_affinity_rows(pod, nodes)
        return tuple(_counted(constraint, pod, nodes, labelled, counting) for constraint in constraints)

    def add_pod(self, spreads: tuple[_Spread, ...], pod: PodInfo, other: PodInfo, node: NodeInfo) -> tuple[_Spread, ...]:
        return _shifted(spreads, pod, other, node, 1)

    def remove_pod(self, spreads: tuple[_Spread, ...], pod: PodInfo, other: PodInfo, node: NodeInfo) -> tuple[_Spread, ...]:
        return _shifted(spreads, pod, other, node, -1)

    def filter(self, spreads: tuple[_Spread, ...], nodes: NodeView) -> Iterator[Reject]:
        """Check constraint by constraint; the first that a node fails is its reason."""
        unlabelled, skewed = nodes.false(), nodes.false()
        for spread in spreads:
            ids = domain_ids(nodes, spread.constraint.topology_key)
            unlabelled |= (ids == 0) & ~skewed
            skewed |= spread.crowded()[ids] & ~unlabelled
        if unlabelled.any():
            yield Reject(unlabelled, REASON_LABEL, unresolvable=True)
        if skewed.any():
            yield Reject(skewed, REASON)

    def why(self, spreads: tuple[_Spread, ...], pod: PodInfo, node: NodeView) -> Detail | None:
        return explained([spread.as_today() for spread in spreads], node)

    def terms(self, spreads: tuple[_Spread, ...], pod: PodInfo, nodes: NodeView) -> Iterator[tuple[str, BoolArray]]:
        return refusing_terms([spread.as_today() for spread in spreads], nodes)

    def remedies(self, spreads: tuple[_Spread, ...], pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        return remedies_of_spreads([spread.as_today() for spread in spreads], pod, node)

    # -- score --------------------------------------------------------------------------------------------------------

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> _Preference:
        constraints = self._constraints(pod, snapshot, required=False)
        keys = [constraint.topology_key for constraint in constraints]
        nodes = snapshot.nodes
        counting = _rows_with(nodes, keys) & required_node_affinity_rows(pod, nodes)
        scored = _rows_with(feasible, keys)
        weighed = tuple(_weighed(constraint, pod, nodes, counting, feasible, scored) for constraint in constraints)
        return _Preference(pod.namespace, weighed)

    def score(self, preference: _Preference, nodes: NodeView) -> IntArray:
        total = np.zeros(len(nodes), dtype=np.float64)
        labelled = np.ones(len(nodes), dtype=bool)
        for constraint, weight, by_domain in ((one.constraint, one.weight, one.counts) for one in preference.weighed):
            ids = domain_ids(nodes, constraint.topology_key)
            there = np.not_equal(ids, 0)
            counts = live_pods(preference.namespace, constraint.selector, nodes) if by_domain is None else by_domain[ids]
            total += np.where(there, counts * weight + float(constraint.max_skew - 1), 0.0)
            labelled &= there
        return np.where(labelled, total.astype(np.int64), spread_scores.SET_ASIDE)

    def normalize(self, preference: _Preference, scores: IntArray) -> IntArray:
        return spread_scores.normalize_spread(scores)

    @property
    def reuse(self) -> points.Reuse:
        return points.Reuse(signature=self._signature, signature_reads=())

    def _signature(self, pod: PodInfo) -> points.Signature:
        return today.signature(pod, self._own(pod))


def _rows_with(nodes: NodeView, keys: Iterable[str]) -> BoolArray:
    """Return for each row whether its node has all of these labels."""
    mask = np.ones(len(nodes), dtype=bool)
    for key in keys:
        mask &= domain_ids(nodes, key) != 0
    return mask


def _folded(nodes: NodeView, key: str) -> Ids:
    """Return the domain of each row; a missing label and an empty value are one domain."""
    ids = domain_ids(nodes, key)
    empty = nodes.label(key).find("")
    return ids if empty < 0 else np.where(ids == 0, np.int32(empty), ids)


def _counted(constraint: SpreadConstraint, pod: PodInfo, nodes: NodeView, labelled: BoolArray, counting: BoolArray) -> _Spread:
    ids = _folded(nodes, constraint.topology_key)
    values = len(nodes.label(constraint.topology_key).values)
    domains = np.bincount(ids[counting], minlength=values) > 0
    pods = np.bincount(ids, weights=live_pods(pod.namespace, constraint.selector, nodes), minlength=values)
    counts = np.where(domains, pods, 0).astype(np.int64)
    return _Spread(constraint, labelled, domains, counts, int(constraint.selector.matches(pod.labels)))


def _shifted(spreads: tuple[_Spread, ...], pod: PodInfo, other: PodInfo, node: NodeInfo, by: int) -> tuple[_Spread, ...]:
    if other.namespace != pod.namespace:
        return spreads
    return tuple(spread.shifted(other, node, by) for spread in spreads)


def _weighed(
    constraint: SpreadConstraint, pod: PodInfo, nodes: NodeView, counting: BoolArray, feasible: NodeView, scored: BoolArray
) -> _Weighed:
    key = constraint.topology_key
    if key == spread_scores.HOSTNAME:
        return _Weighed(constraint, log(int(np.count_nonzero(scored)) + 2), None)
    values = len(nodes.label(key).values)
    domains = np.bincount(_folded(feasible, key)[scored], minlength=values) > 0
    pods = live_pods(pod.namespace, constraint.selector, nodes) * counting
    counts = np.bincount(_folded(nodes, key), weights=pods, minlength=values).astype(np.int64)
    return _Weighed(constraint, log(int(np.count_nonzero(domains)) + 2), counts)


# -- 1.22 and later ----------------------------------------------------------------------------------------------------


class PodTopologySpreadV135(WokenByPlacedPods, PodTopologySpread):
    reuse = PodTopologySpread.reuse


class PodTopologySpreadV127(PodTopologySpreadV135):
    @property
    def reuse(self) -> Reuse:
        return Reuse(signature=self._signature, signature_reads=())

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> spread_scores.SpreadPreference:
        found = super().pre_score(pod, snapshot, feasible)
        return spread_scores.SpreadPreference((), all_labels=False) if isinstance(found, Skip) else found


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

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> tuple[spread_scores.Spread, ...] | Skip:
        counted = self._counted(pod, snapshot, required=True)
        nodes = snapshot.nodes
        labelled = rows_with_labels(nodes, [one.constraint.topology_key for one in counted])
        return tuple(_with_whole_domains(one, nodes, labelled) for one in counted) or SKIP

    def score(self, preference: spread_scores.SpreadPreference, nodes: NodeView) -> IntArray:
        return spread_scores.score_spread(preference, nodes, down=True)


def _with_whole_domains(
    counted: spread_scores.CountedConstraint, nodes: NodeView, labelled: BoolArray | None
) -> spread_scores.Spread:
    """Count the pods on all nodes of the domains that count. A missing label and an empty value are one domain."""
    key, matcher = counted.constraint.topology_key, counted.matcher
    pods = spread_scores.pods_by_domain(nodes, counted._replace(rows=None))
    if matcher is not None and not nodes.label(key).is_everywhere:
        spread_scores.add_unlabelled(pods, nodes, key, nodes.pods_matching(matcher), None)
    return spread_scores.Spread(counted.constraint, labelled, counted.domains, np.where(counted.domains, pods, 0), counted.own)
