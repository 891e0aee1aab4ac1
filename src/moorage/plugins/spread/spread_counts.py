"""Counts of PodTopologySpread by domain, and its scores: nodes whose domains hold fewer matching pods are better.

A domain's count is multiplied by the logarithm of the number of domains, so that a topology with many small domains weighs
enough beside one with few large domains. ``maxSkew - 1`` is added, so that differences matter less where more skew is allowed.
Host names are counted node by node. Nodes that lack a label of the pod's own constraints are ignored and end with 0.

Source  kube-scheduler 1.36, plugins/podtopologyspread/scoring.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from math import floor, log
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from moorage.api.core import LabelSelector, OwnerReference, ReplicationController, Service
from moorage.api.selectors import Requirement, Selector, SelectorError, compile_label_selector, selector_from_map
from moorage.api.workloads import ReplicaSet, StatefulSet
from moorage.framework.points import ScoresByCount
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray, both
from moorage.state.counts import Counts, MatchTerm, PodMatcher
from moorage.state.node_matching import required_node_affinity
from moorage.state.pod_info import PodInfo
from moorage.state.spread_constraints import SpreadConstraint
from moorage.state.taint_matching import DO_NOT_SCHEDULE, rows_tolerated
from moorage.state.view import NodeView, domain_ids, domain_sums, domains_with, rows_with_labels

# Pod counts per topology domain: which nodes count for a spread constraint, and how many matching pods each domain holds.
#
# Filter needs one small array of counts for each constraint, with one entry per domain. The array is a copy, so a what-if can
# change it without changing the cache; a what-if is another copy that differs in one entry.
#
# Source  kube-scheduler 1.36, plugins/podtopologyspread/filtering.go and common.go

#: The value from which upstream starts its search for the lowest count.
_NO_LEAST = 2**31 - 1
#: Up to this many domains are compared in plain Python: each NumPy call has a fixed cost.
_FEW: Final = 32


class Spread(Struct, frozen=True):
    """One constraint and the pods it counts.

    ``rows`` (rows,) marks the nodes that count, None if all do; ``domains`` (values,) the domains that have such a node;
    ``counts`` (values,) the matching pods in each. ``own`` is 1 if the constraint matches the incoming pod.
    """

    constraint: SpreadConstraint
    rows: BoolArray | None
    domains: BoolArray
    counts: IntArray
    own: int

    def crowded(self) -> BoolArray:
        """Return for each domain whether one more pod would exceed ``maxSkew``; shape (values,), False for id 0."""
        crowded: BoolArray = self.counts > self.constraint.max_skew + self.least - self.own
        crowded[0] = False
        return crowded

    @property
    def least(self) -> int:
        """The least count of a domain; 0 if there are fewer domains than ``minDomains``."""
        if len(self.counts) <= _FEW:
            few = list(compress(self.counts.tolist(), self.domains.tolist()))
            return 0 if len(few) < self.constraint.min_domains else min(few, default=_NO_LEAST)
        held = self.counts[self.domains]
        if len(held) < self.constraint.min_domains:
            return 0
        return int(held.item(held.argmin())) if len(held) else _NO_LEAST  # several times faster than min()

    def shifted(self, other: PodInfo, row: int, domain: int, by: int) -> Spread:
        """Return the counts after ``other`` is added to (``by`` = 1) or removed from (``by`` = -1) a row.

        Like upstream, this consults only the selector: removing a pod that was not counted, because it is terminating or
        because the selector is empty, still lowers the count.
        """
        if (self.rows is not None and not self.rows[row]) or not self.constraint.selector.matches(other.labels):
            return self
        counts = self.counts.copy()
        counts[domain] += by
        return replace(self, counts=counts)


class CountedConstraint(NamedTuple):
    """The nodes and pods that one constraint counts for a pod's shape; ``rows``, ``domains`` and ``own`` as in ``Spread``.

    ``matcher`` matches the pods that count: those of the pod's namespace that are not terminating; None if no pod counts.
    """

    constraint: SpreadConstraint
    rows: BoolArray | None
    domains: BoolArray
    own: int
    matcher: PodMatcher | None


def counted_constraints(
    pod: PodInfo, nodes: NodeView, constraints: Sequence[SpreadConstraint], numeric: bool, *, all_labels: bool = True
) -> tuple[CountedConstraint, ...]:
    """Return a ``CountedConstraint`` for each constraint, over a view of all nodes.

    ``all_labels``: only nodes that have the labels of all constraints count.
    """
    keys = [constraint.topology_key for constraint in constraints]
    labelled = rows_with_labels(nodes, keys) if all_labels else None
    counted: list[CountedConstraint] = []
    last: tuple[Selector | None, int, PodMatcher | None] = None, 0, None
    for constraint, rows in _counted_rows(pod, nodes, constraints, labelled, numeric):
        selector = constraint.selector
        if selector is not last[0]:  # default constraints share one
            last = selector, int(selector.matches(pod.labels)), _matcher_of(pod, selector)
        domains = domains_with(nodes, constraint.topology_key, rows)
        counted.append(CountedConstraint(constraint, rows, domains, last[1], last[2]))
    return tuple(counted)


def count_spreads(nodes: NodeView, counted: Iterable[CountedConstraint]) -> tuple[Spread, ...]:
    """Count the pods that match each constraint, over a view of all nodes."""
    return tuple([Spread(one.constraint, one.rows, one.domains, pods_by_domain(nodes, one), one.own) for one in counted])


def _counted_rows(
    pod: PodInfo, nodes: NodeView, constraints: Sequence[SpreadConstraint], among: BoolArray | None, numeric: bool
) -> list[tuple[SpreadConstraint, BoolArray | None]]:
    """Return each constraint and the rows of ``among`` that its inclusion policies admit; None means all rows."""
    taken = bearable = None
    affinity = required_node_affinity(pod)
    if (affinity.labels or affinity.matcher) and any(constraint.honors_affinity for constraint in constraints):
        taken = affinity.rows(nodes)
    if any(constraint.honors_taints for constraint in constraints):
        bearable = rows_tolerated(pod, nodes, DO_NOT_SCHEDULE, numeric)
    if among is None and taken is None and bearable is None:
        return [(constraint, None) for constraint in constraints]
    found: list[tuple[SpreadConstraint, BoolArray | None]] = []
    by_policy: dict[tuple[bool, bool], BoolArray | None] = {}
    for constraint in constraints:
        policy = constraint.honors_affinity, constraint.honors_taints
        if policy not in by_policy:
            rows = both(among, taken) if constraint.honors_affinity else among
            by_policy[policy] = both(rows, bearable) if constraint.honors_taints else rows
        found.append((constraint, by_policy[policy]))
    return found


def pods_by_domain(nodes: NodeView, counted: CountedConstraint) -> IntArray:
    """Count the pods that match a constraint in each domain, on the rows that count; shape (values,)."""
    key = counted.constraint.topology_key
    if counted.matcher is None or not nodes.table.labels.is_anywhere(key):
        return np.zeros(len(nodes.label(key).values), dtype=np.int64)
    if counted.rows is None:
        return nodes.table.pod_counts.by_domain(counted.matcher, key)
    return domain_sums(nodes, key, nodes.pods_matching(counted.matcher), counted.rows)


def _matcher_of(pod: PodInfo, selector: Selector) -> PodMatcher | None:
    if selector.is_empty:
        return None
    return PodMatcher((MatchTerm(frozenset([pod.namespace]), selector),), live_only=True)


# -- default selector --------------------------------------------------------------------------------------------------
# The default selector of a pod: the selectors of its services and of its controller, combined.
#
# Default topology spread constraints use it, because they have no selector of their own.
#
# Source  kube-scheduler 1.36, plugins/helper/spread.go

_EMPTY: Final = Selector()
#: The kinds of objects that contribute to a pod's default selector.
OWNING_KINDS: Final = (Service, ReplicationController, ReplicaSet, StatefulSet)
_CONTROLLERS: Final[Mapping[tuple[str, str], type[ReplicationController | ReplicaSet | StatefulSet]]] = {
    ("v1", "ReplicationController"): ReplicationController,
    ("apps/v1", "ReplicaSet"): ReplicaSet,
    ("apps/v1", "StatefulSet"): StatefulSet,
}


def has_default_selector(pod: PodInfo, snapshot: Snapshot) -> bool:
    """Return False if there are no services and the pod's controller is unknown: its default selector is empty."""
    return bool(snapshot.objects(Service)) or _controlling(pod, snapshot) is not None


def default_selector(pod: PodInfo, snapshot: Snapshot) -> Selector:
    """Return the combined selectors of the pod's services and its controller; empty if there are none."""
    labels: dict[str, str] = {}
    for service in snapshot.services_selecting(pod) if snapshot.objects(Service) else ():
        labels |= service.spec.selector
    controller = _controlling(pod, snapshot)
    if controller is None:
        return selector_from_map(labels) if labels else _EMPTY
    if isinstance(controller, ReplicationController):
        return selector_from_map(labels | controller.spec.selector)
    return Selector((*selector_from_map(labels).requirements, *_requirements(controller.spec.selector)))


def _controlling(pod: PodInfo, snapshot: Snapshot) -> ReplicationController | ReplicaSet | StatefulSet | None:
    """Return the pod's controller, if the snapshot has it and its selector counts."""
    owner = controller_of(pod)
    kind = None if owner is None else _CONTROLLERS.get((owner.api_version, owner.kind))
    objects = None if kind is None else snapshot.objects(kind)
    return None if not objects or owner is None else objects.get(f"{pod.namespace}/{owner.name}")


def controller_of(pod: PodInfo) -> OwnerReference | None:
    """Return the owner reference of the pod's controller, if any."""
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return owner
    return None


def _requirements(selector: LabelSelector | None) -> tuple[Requirement, ...]:
    """Return the requirements of a selector; none if it is absent or malformed."""
    try:
        return compile_label_selector(selector).requirements
    except SelectorError:
        return ()


HOSTNAME = "kubernetes.io/hostname"
#: The raw score of an ignored node; all others are 0 or more.
SET_ASIDE = -1
_MAX_SCORE = 100
#: Up to this many domains are rounded in a Python loop: a NumPy call has a fixed cost, whatever the size.
_SPREAD_SCORES_FEW = 32


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
    few = len(counts) <= _SPREAD_SCORES_FEW
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
    scores = _few_rounded(costs.tolist()) if len(costs) <= _SPREAD_SCORES_FEW else _rounded(costs)
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
        if (most + 1) * len(costs) > _SPREAD_SCORES_FEW:
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
    if least >= 0 and most > 0 and len(scores) <= _SPREAD_SCORES_FEW:
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
