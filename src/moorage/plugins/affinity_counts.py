"""Which domains a pod must be in, and which it must not: pods near those it wants, far from those it or they cannot bear.

What Filter needs is one small array of counts for each topology key and each of three questions: how many pods that the pod
wants to be near, how many that it must be apart from, how many that must be apart from it. The arrays are copies, so that
what-ifs can move pods without touching them.

A term of the incoming pod that names namespaces by their labels is resolved once, against the namespaces there are; a term
of a placed pod is held against the labels of the incoming pod's namespace.

Source  kube-scheduler 1.36, plugins/interpodaffinity/filtering.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.counts import MatchTerm, PodMatcher
from moorage.state.domains import domain_ids, rows_with_labels
from moorage.state.pod_info import AffinityTerm, PodInfo
from moorage.state.view import NodeInfo, NodeView

__all__ = ["Neighbours", "ResolvedTerm", "count_neighbours", "matches_all", "resolved"]

#: Topology key → pods in each domain, shape (values,); keys whose domains are all empty may be absent.
DomainCounts = Mapping[str, IntArray]


class ResolvedTerm(NamedTuple):
    """A term of the incoming pod, its namespaces found."""

    match: MatchTerm
    topology_key: str


def resolved(term: AffinityTerm, snapshot: Snapshot) -> ResolvedTerm:
    """Find the namespaces that a term of the incoming pod means.

    kube-scheduler 1.36 goes on to hold the namespace selector against no labels at all, so a selector that an unlabelled
    namespace would satisfy takes in every namespace, labelled or not, known or not.
    """
    over = term.namespace_selector
    if over is None:
        return ResolvedTerm(MatchTerm(term.namespaces, term.selector), term.topology_key)
    namespaces = None if over.matches({}) else term.namespaces | snapshot.namespaces_selected(over)
    return ResolvedTerm(MatchTerm(namespaces, term.selector), term.topology_key)


def matches_all(terms: Iterable[ResolvedTerm], pod: PodInfo) -> bool:
    """Say whether every term takes the pod; False if there are no terms."""
    held = tuple(terms)
    return bool(held) and all(term.match.matches(pod.namespace, pod.labels) for term in held)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Filter's state: the pod's own required terms, and pods by domain.

    ``wanted`` counts pods that all affinity terms take; ``refused`` those that an anti-affinity term of the pod takes;
    ``refusing`` terms of placed pods that take the pod. ``first_of_its_kind``: the pod matches its own affinity terms, so it
    may go anywhere while no other pod does.
    """

    snapshot: Snapshot
    affinity: tuple[ResolvedTerm, ...]
    anti_affinity: tuple[ResolvedTerm, ...]
    first_of_its_kind: bool
    wanted: DomainCounts
    refused: DomainCounts
    refusing: DomainCounts

    def near_wanted(self, nodes: NodeView) -> BoolArray:
        """Say for each row whether its domains hold the pods that the pod wants to be near."""
        near = np.ones(len(nodes), dtype=bool)
        if self.first_of_its_kind and not any(counts.any() for counts in self.wanted.values()):
            labelled = rows_with_labels(nodes, self.wanted)
            return near if labelled is None else labelled
        for key, counts in self.wanted.items():
            near &= (counts > 0).take(domain_ids(nodes, key))
        return near

    def closed(self) -> Iterator[tuple[str, BoolArray]]:
        """Yield topology keys with which of their domains are closed, shape (values,); id 0 stands for nodes without."""
        none_yet = self.first_of_its_kind and not any(counts.any() for counts in self.wanted.values())
        for key, counts in self.wanted.items():
            closed = np.zeros(len(counts), dtype=bool) if none_yet else counts == 0
            closed[0] = True
            yield key, closed
        for counts_by_key in (self.refused, self.refusing):
            for key, counts in counts_by_key.items():
                yield key, counts > 0

    def shifted(self, other: PodInfo, pod: PodInfo, node: NodeInfo, by: int) -> Neighbours:
        """Return the state with ``other`` come to (+1) or gone from (-1) a node."""
        namespace_labels = self.snapshot.namespace_labels(pod.namespace)
        wanted = [term.topology_key for term in self.affinity] if matches_all(self.affinity, other) else []
        refused = [t.topology_key for t in self.anti_affinity if t.match.matches(other.namespace, other.labels)]
        refusing = [t.topology_key for t in other.required_anti_affinity if t.matches(pod, namespace_labels)]
        if not wanted and not refused and not refusing:
            return self
        nodes = self.snapshot.nodes
        return replace(
            self,
            wanted=_moved(self.wanted, dict.fromkeys(wanted), node, nodes, by),
            refused=_moved(self.refused, refused, node, nodes, by),
            refusing=_moved(self.refusing, refusing, node, nodes, by),
        )


def _moved(counts: DomainCounts, keys: Iterable[str], node: NodeInfo, nodes: NodeView, by: int) -> DomainCounts:
    changed = dict(counts)
    for key in keys:
        domain = node.domain(key)
        if domain:
            held = changed.get(key)
            changed[key] = np.zeros(len(nodes.label(key).values), dtype=np.int64) if held is None else held.copy()
            changed[key][domain] += by
    return changed


def count_neighbours(pod: PodInfo, snapshot: Snapshot) -> Neighbours | None:
    """Count over all nodes; None if no term, of the pod or of others, has anything to say."""
    if not pod.has_affinity and not len(snapshot.table.required_anti_affinity):
        return None
    nodes = snapshot.nodes
    refusing = _refusing(pod, snapshot)
    if not pod.required_affinity and not pod.required_anti_affinity and not refusing:
        return None
    affinity = tuple(resolved(term, snapshot) for term in pod.required_affinity)
    anti_affinity = tuple(resolved(term, snapshot) for term in pod.required_anti_affinity)
    wanted: DomainCounts = {}
    if affinity:
        matcher = PodMatcher(tuple(term.match for term in affinity))
        keys = dict.fromkeys(term.topology_key for term in affinity)
        wanted = {key: nodes.table.pod_counts.by_domain(matcher, key) for key in keys}
    return Neighbours(
        snapshot, affinity, anti_affinity, matches_all(affinity, pod), wanted, _refused(anti_affinity, nodes), refusing
    )


def _refused(terms: Iterable[ResolvedTerm], nodes: NodeView) -> DomainCounts:
    found: dict[str, IntArray] = {}
    for match, key in terms:
        counts = nodes.table.pod_counts.by_domain(PodMatcher((match,)), key)
        found[key] = found[key] + counts if key in found else counts
    return found


def _refusing(pod: PodInfo, snapshot: Snapshot) -> DomainCounts:
    """Count the anti-affinity terms of placed pods that take the pod; keys only where some domain has any."""
    found: dict[str, IntArray] = {}
    labels = snapshot.namespace_labels(pod.namespace)
    for held, holders in snapshot.table.required_anti_affinity.selecting(pod, labels):
        key = held.term.topology_key
        if holders.any():
            found[key] = found[key] + holders if key in found else holders
    for term, name in snapshot.unheard.anti_affinity():
        node = snapshot.node(name)
        domain = node.domain(term.topology_key) if node is not None else 0
        if domain and term.topology_key in found and term.matches(pod, labels):
            found[term.topology_key][domain] -= 1
    return {key: holders for key, holders in found.items() if holders.any()}
