"""Pod counts per topology domain: which nodes count for a spread constraint, and how many matching pods each domain holds.

Filter needs one small array of counts for each constraint, with one entry per domain. The array is a copy, so a what-if can
change it without changing the cache; a what-if is another copy that differs in one entry.

Source  kube-scheduler 1.36, plugins/podtopologyspread/filtering.go and common.go
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from moorage.api.core import ReplicationController, Service
from moorage.api.meta import LabelSelector, OwnerReference
from moorage.api.selectors import Requirement, Selector, SelectorError, compile_label_selector, selector_from_map
from moorage.api.workloads import ReplicaSet, StatefulSet
from moorage.state.affinity_terms import SpreadConstraint
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.counts import MatchTerm, PodMatcher
from moorage.state.node_matching import DO_NOT_SCHEDULE, required_node_affinity, rows_tolerated
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView, domain_sums, domains_with, rows_with_labels

__all__ = [
    "OWNING_KINDS", "CountedConstraint", "Spread", "controller_of", "count_spreads", "counted_constraints",
    "default_selector", "pods_by_domain",
]  # fmt: skip


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
            rows = _both(among, taken) if constraint.honors_affinity else among
            by_policy[policy] = _both(rows, bearable) if constraint.honors_taints else rows
        found.append((constraint, by_policy[policy]))
    return found


def _both(one: BoolArray | None, other: BoolArray | None) -> BoolArray | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


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


def default_selector(pod: PodInfo, snapshot: Snapshot) -> Selector:
    """Return the combined selectors of the pod's services and its controller; empty if there are none."""
    if not pod.metadata.owner_references and not snapshot.objects(Service):
        return _EMPTY
    labels: dict[str, str] = {}
    for service in snapshot.services_selecting(pod):
        labels |= service.spec.selector
    owner = controller_of(pod)
    if owner is None:
        return selector_from_map(labels) if labels else _EMPTY
    key = f"{pod.namespace}/{owner.name}"
    match owner.api_version, owner.kind:
        case "v1", "ReplicationController":
            controller = snapshot.objects(ReplicationController).get(key)
            return selector_from_map(labels | controller.spec.selector if controller else labels)
        case "apps/v1", "ReplicaSet":
            replica_set = snapshot.objects(ReplicaSet).get(key)
            more = _requirements(replica_set.spec.selector) if replica_set else ()
        case "apps/v1", "StatefulSet":
            stateful_set = snapshot.objects(StatefulSet).get(key)
            more = _requirements(stateful_set.spec.selector) if stateful_set else ()
        case _:
            more = ()
    return Selector((*selector_from_map(labels).requirements, *more))


def controller_of(pod: PodInfo) -> OwnerReference | None:
    """Return the owner reference of the pod's controller, if any."""
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def _requirements(selector: LabelSelector | None) -> tuple[Requirement, ...]:
    """Return the requirements of a selector; none if it is absent or malformed."""
    try:
        return compile_label_selector(selector).requirements
    except SelectorError:
        return ()
