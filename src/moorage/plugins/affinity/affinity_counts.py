"""Counts of InterPodAffinity by domain, and its scores: a term that matches adds its weight to the domain of its pod.

Preferred affinity adds weight, preferred anti-affinity subtracts it, for terms of the incoming pod and of placed pods. A node's
raw score is the sum over its domains and may be negative. Normalizing maps the lowest raw score to 0 and the highest to 100.

Source  kube-scheduler 1.36, plugins/interpodaffinity/scoring.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from moorage.api.core import Namespace
from moorage.framework.answer_forms import FollowedScores
from moorage.state.columns import BoolArray, IntArray, has_any
from moorage.state.counts import MatchTerm, PodMatcher
from moorage.state.labels import IdCounts
from moorage.state.pod_info import AffinityTerm, PodInfo
from moorage.state.view import NodeInfo, NodeView, Snapshot, domain_ids, rows_with_labels
from moorage.state.weight_sums import WeightSum, WeightSums

# Counts of pods per topology domain for the Filter of InterPodAffinity.
#
# ``AffinityCounts`` holds three arrays of counts for each topology key: pods that match the incoming pod's affinity terms,
# pods that match its anti-affinity terms, and placed pods whose anti-affinity terms match the incoming pod. The arrays are
# copies, so a what-if can add and remove pods without changing the cache.
#
# The namespace selector of an incoming pod's term is resolved once, against the namespaces of the snapshot. The namespace
# selector of a placed pod's term is matched against the labels of the incoming pod's namespace.
#
# Source  kube-scheduler 1.36, plugins/interpodaffinity/filtering.go

#: Topology key → number of pods in each domain, shape (values,). A key whose domains are all empty may be absent.
DomainCounts = Mapping[str, IntArray]


class ResolvedTerm(NamedTuple):
    """A term of the incoming pod with its namespace selector resolved to namespaces."""

    match: MatchTerm
    topology_key: str


def resolved(term: AffinityTerm, snapshot: Snapshot) -> ResolvedTerm:
    """Resolve the namespace selector of an incoming pod's term.

    kube-scheduler 1.34 to 1.36 also match the namespace selector against an empty set of labels. A selector that matches no
    labels therefore selects every namespace there, with or without labels, and even a namespace that does not exist.
    """
    over = term.namespace_selector
    if over is None:
        return ResolvedTerm(MatchTerm(term.namespaces, term.selector), term.topology_key)
    namespaces = None if over.matches({}) else term.namespaces | snapshot.namespaces_selected(over)
    return ResolvedTerm(MatchTerm(namespaces, term.selector), term.topology_key)


def matches_all(terms: Iterable[ResolvedTerm], pod: PodInfo) -> bool:
    """Return True if every term matches the pod; False if there are no terms."""
    held = tuple(terms)
    return bool(held) and all(term.match.matches(pod.namespace, pod.labels) for term in held)


class AffinityCounts(Struct, frozen=True, eq=False):
    """The PreFilter state of InterPodAffinity: the pod's required terms, and counts of pods by domain.

    ``wanted`` counts pods that match all affinity terms of the pod; ``refused`` counts pods that match an anti-affinity term
    of the pod; ``refusing`` counts anti-affinity terms of placed pods that match the pod. ``matches_itself`` says that the pod
    matches its own affinity terms: while no other pod matches them, every node with the topology labels is feasible.
    """

    snapshot: Snapshot
    affinity: tuple[ResolvedTerm, ...]
    anti_affinity: tuple[ResolvedTerm, ...]
    matches_itself: bool
    wanted: DomainCounts
    refused: DomainCounts
    refusing: DomainCounts
    #: Topology key → the domains that ``refused`` or ``refusing`` counts a pod in; None: look into the counts.
    held: Mapping[str, BoolArray] | None = None

    @property
    def is_first(self) -> bool:
        """True if no placed pod matches the pod's affinity terms, but the pod itself does: it may be the first of its kind."""
        return self.matches_itself and not any(map(has_any, self.wanted.values()))

    def near_wanted(self, nodes: NodeView) -> BoolArray:
        """Return, for each row, whether each of its domains holds a pod that matches the affinity terms."""
        near = np.ones(len(nodes), dtype=bool)
        if self.is_first:
            labelled = rows_with_labels(nodes, self.wanted)
            return near if labelled is None else labelled
        for key, counts in self.wanted.items():
            near &= (counts > 0).take(domain_ids(nodes, key))
        return near

    def closed(self) -> Iterator[tuple[str, BoolArray]]:
        """Yield each topology key and which of its domains Filter rejects, shape (values,); id 0: nodes without the label."""
        none_yet = self.is_first
        for key, counts in self.wanted.items():
            closed = np.zeros(len(counts), dtype=bool) if none_yet else counts == 0
            closed[0] = True
            yield key, closed
        if self.held is not None:
            yield from self.held.items()
            return
        for counts_by_key in (self.refused, self.refusing):
            for key, counts in counts_by_key.items():
                yield key, counts > 0

    def _keys_of(self, other: PodInfo, pod: PodInfo) -> tuple[list[str], list[str], list[str]]:
        """Return the topology keys under which ``other`` counts in ``wanted``, ``refused`` and ``refusing``."""
        labels = self.snapshot.namespace_labels(pod.namespace)
        return (
            [term.topology_key for term in self.affinity] if matches_all(self.affinity, other) else [],
            [term.topology_key for term in self.anti_affinity if term.match.matches(other.namespace, other.labels)],
            [term.topology_key for term in other.required_anti_affinity if term.matches(pod, labels)],
        )

    def ignores(self, pod: PodInfo, other: PodInfo) -> bool:
        """Return True if ``shifted`` returns the same state, whatever the node."""
        if other.required_anti_affinity and any(self._keys_of(other, pod)):
            return False
        if any(term.match.matches(other.namespace, other.labels) for term in self.anti_affinity):
            return False
        return not matches_all(self.affinity, other)

    def ignores_all(self, pod: PodInfo, nodes: NodeView) -> BoolArray:
        """Return the rows without a pod that counts that are in no domain of an anti-affinity term that matches ``pod``."""
        table = self.snapshot.table
        counted = [PodMatcher((term.match,)) for term in self.anti_affinity]
        counted += [PodMatcher(tuple([term.match for term in self.affinity]))] if self.affinity else []
        found = np.zeros(len(table), dtype=bool)
        for matcher in counted:
            found |= table.pod_counts.rows_with(matcher)
        terms = table.required_anti_affinity
        for held, _ in terms.tallies(pod, self.snapshot.namespace_labels(pod.namespace)):
            found |= terms.domains_with(held).take(domain_ids(self.snapshot.nodes, held.term.topology_key))
        return ~found[nodes.row_numbers]

    def shifted(self, other: PodInfo, pod: PodInfo, node: NodeInfo, by: int) -> AffinityCounts:
        """Return the state after ``other`` is added to (``by`` = 1) or removed from (``by`` = -1) a node."""
        wanted, refused, refusing = self._keys_of(other, pod)
        if not wanted and not refused and not refusing:
            return self
        nodes = self.snapshot.nodes
        return replace(
            self,
            wanted=_moved(self.wanted, dict.fromkeys(wanted), node, nodes, by),
            refused=_moved(self.refused, refused, node, nodes, by),
            refusing=_moved(self.refusing, refusing, node, nodes, by),
            held=None,
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


def count_affinity(pod: PodInfo, snapshot: Snapshot) -> AffinityCounts | None:
    """Count pods over all nodes; return None if neither the pod nor a placed pod has a term that matters."""
    if not pod.has_affinity and not len(snapshot.table.required_anti_affinity):
        return None
    nodes = snapshot.nodes
    refusing, held = _refusing(pod, snapshot)
    if not pod.required_affinity and not pod.required_anti_affinity and not refusing:
        return None
    own = _own_terms(pod, snapshot)
    counts = nodes.table.pod_counts
    refused: dict[str, IntArray] = {}
    for matcher, key in own.refused:
        found = counts.by_domain(matcher, key)
        refused[key] = refused[key] + found if key in refused else found
        if held is not None:
            _add_domains(held, key, counts.domains_with(matcher, key))
    return AffinityCounts(
        snapshot, own.affinity, own.anti_affinity, own.matches_itself,
        {key: counts.by_domain(matcher, key) for matcher, key in own.wanted}, refused, refusing, held,
    )  # fmt: skip


def _add_domains(held: dict[str, BoolArray], key: str, domains: BoolArray) -> None:
    held[key] = np.logical_or(held[key], domains, out=domains) if key in held else domains


class _OwnTerms(NamedTuple):
    """The required terms of a pod, resolved, and the matchers that count pods for them, each with its topology key."""

    affinity: tuple[ResolvedTerm, ...]
    anti_affinity: tuple[ResolvedTerm, ...]
    matches_itself: bool
    wanted: tuple[tuple[PodMatcher, str], ...]
    refused: tuple[tuple[PodMatcher, str], ...]


def _own_terms(pod: PodInfo, snapshot: Snapshot) -> _OwnTerms:
    """Return the pod's terms; cached for equal pods until a namespace changes."""

    def compute() -> _OwnTerms:
        affinity = tuple([resolved(term, snapshot) for term in pod.required_affinity])
        anti_affinity = tuple([resolved(term, snapshot) for term in pod.required_anti_affinity])
        all_of_them = PodMatcher(tuple([term.match for term in affinity]))
        wanted = tuple([(all_of_them, key) for key in dict.fromkeys([term.topology_key for term in affinity])])
        refused = tuple([(PodMatcher((match,)), key) for match, key in anti_affinity])
        return _OwnTerms(affinity, anti_affinity, matches_all(affinity, pod), wanted, refused)

    namespaces = snapshot.changes_of(Namespace)
    return pod.keep(_OwnTerms, (namespaces, namespaces.position), compute)


def _refusing(pod: PodInfo, snapshot: Snapshot) -> tuple[DomainCounts, dict[str, BoolArray] | None]:
    """Count the anti-affinity terms of placed pods that match the pod; only keys with a count above zero.

    Also return the domains that have a count; None if they have to be looked up in the counts.
    """
    found: dict[str, IntArray] = {}
    there: dict[str, BoolArray] = {}
    labels, terms = snapshot.namespace_labels(pod.namespace), snapshot.table.required_anti_affinity
    for held, holders in terms.selecting(pod, labels):
        key, domains = held.term.topology_key, terms.domains_with(held)
        if has_any(domains):
            found[key] = found[key] + holders if key in found else holders
            _add_domains(there, key, domains)
    if not found:
        return found, there
    lowered = False
    for term, unheard in snapshot.unheard.anti_affinity():
        key = term.topology_key
        if key in found and term.matches(pod, labels):
            found[key] = found[key] - unheard.copy(len(found[key]))
            lowered = True
    return ({key: holders for key, holders in found.items() if holders.any()}, None) if lowered else (found, there)


_MAX_SCORE = 100
#: Up to this many different sums are normalized once each, and looked up.
_FEW_SUMS = 1024

#: Sums over fewer domains than this are added up for each pod.
_FEW_DOMAINS = 64

#: Topology key → summed weight of each domain, shape (values,).
AffinityWeights = Mapping[str, IntArray]


class FollowedWeights(dict[str, IntArray]):
    """Weights of one topology key, in an array that follows changes."""

    def __init__(self, weights: WeightSum) -> None:
        super().__init__({weights.key: weights.values})
        self.answer = FollowedScores(weights.key, weights.values, weights.changes, weights.step)


class _WeightedTerm(NamedTuple):
    """The pods that a term matches in each domain, in a fresh array, and the weight of each; a negative weight repels."""

    topology_key: str
    weight: int
    pods: IntArray


def weigh_affinity(pod: PodInfo, snapshot: Snapshot, hard_weight: int) -> AffinityWeights | None:
    """Sum the weights of each domain; None if no term matches a pod. Sums may be zero where weights cancel out.

    ``hard_weight`` is the weight of a placed pod's required affinity term that matches the incoming pod.
    """
    table = snapshot.table
    held = (table.required_affinity, table.preferred_affinity, table.preferred_anti_affinity)
    if not any(map(len, held)) and not (pod.preferred_affinity or pod.preferred_anti_affinity):
        return None
    followed = _followed(pod, snapshot, hard_weight) if pod.preferred_affinity or pod.preferred_anti_affinity else None
    if followed is not None:
        return followed
    weights: dict[str, IntArray] = {}
    for key, weight, pods in (*_own_weights(pod, snapshot), *_terms_of_placed_pods(pod, snapshot, hard_weight)):
        if pods.item(pods.argmax()) > 0:  # several times faster than any()
            weighted = pods if weight == 1 else np.multiply(pods, weight, out=pods)
            weights[key] = np.add(weighted, weights[key], out=weighted) if key in weights else weighted
    return weights or None


class _Followed:
    """The sum of weights for pods of one shape; None if terms have several keys or few domains."""

    def __init__(self, weights: WeightSum | None) -> None:
        self._sum = weights
        self._state: FollowedWeights | None = None

    def state(self) -> FollowedWeights | None:
        """Return the weights as they are now; None if there is no sum, or all weights are zero."""
        weights = self._sum
        if weights is None:
            return None
        weights.follow()
        if not weights.nonzero:
            return None
        if self._state is None or self._state.answer.changes is not weights.changes:
            self._state = FollowedWeights(weights)
        return self._state


def _followed(pod: PodInfo, snapshot: Snapshot, hard_weight: int) -> FollowedWeights | None:
    """Return the weights from a sum that is kept; None if there is none."""
    table = snapshot.table
    if table.rows_in_what_ifs:
        return None
    sums = snapshot.index(_sums)
    version = (
        sums, hard_weight, table.pod_counts.dropped, snapshot.changes_of(Namespace).position, table.changes.nodes,
        table.required_affinity.position, table.preferred_affinity.position, table.preferred_anti_affinity.position,
    )  # fmt: skip
    return pod.keep(_Followed, version, lambda: _Followed(_sum_of(pod, snapshot, hard_weight, sums))).state()


def _sum_of(pod: PodInfo, snapshot: Snapshot, hard_weight: int, sums: WeightSums) -> WeightSum | None:
    table, labels = snapshot.table, snapshot.namespace_labels(pod.namespace)
    keys: set[str] = set()
    summands: list[tuple[IdCounts, int]] = []
    for sign, terms in ((1, pod.preferred_affinity), (-1, pod.preferred_anti_affinity)):
        for weight, term in terms:
            match, key = resolved(term, snapshot)
            tally = table.pod_counts.tally(PodMatcher((match,)), key)
            keys.add(key)
            if tally is None:
                return None
            summands.append((tally, sign * weight))
    held_terms = ((table.preferred_affinity, 1), (table.preferred_anti_affinity, -1), (table.required_affinity, 0))
    for terms_held, sign in held_terms if hard_weight > 0 else held_terms[:2]:
        for held, tally in terms_held.tallies(pod, labels):
            keys.add(held.term.topology_key)
            summands.append((tally, sign * held.weight if sign else hard_weight))
    (key, *others) = keys
    if others or len(table.labels.column(key).values) <= _FEW_DOMAINS:
        return None
    return sums.of(key, tuple(summands))


def _sums(snapshot: Snapshot) -> WeightSums:
    return WeightSums(snapshot.table)


def _own_weights(pod: PodInfo, snapshot: Snapshot) -> Iterator[_WeightedTerm]:
    counts = snapshot.table.pod_counts
    for sign, terms in ((1, pod.preferred_affinity), (-1, pod.preferred_anti_affinity)):
        for weight, term in terms:
            match, key = resolved(term, snapshot)
            yield _WeightedTerm(key, sign * weight, counts.by_domain(PodMatcher((match,)), key))


def _terms_of_placed_pods(pod: PodInfo, snapshot: Snapshot, hard_weight: int) -> Iterator[_WeightedTerm]:
    labels = snapshot.namespace_labels(pod.namespace)
    table = snapshot.table
    if hard_weight > 0 and len(table.required_affinity):
        for held, holders in table.required_affinity.selecting(pod, labels):
            yield _WeightedTerm(held.term.topology_key, hard_weight, holders)
    if len(table.preferred_affinity):
        for held, holders in table.preferred_affinity.selecting(pod, labels):
            yield _WeightedTerm(held.term.topology_key, held.weight, holders)
    if len(table.preferred_anti_affinity):
        for held, holders in table.preferred_anti_affinity.selecting(pod, labels):
            yield _WeightedTerm(held.term.topology_key, -held.weight, holders)
    if not pod.preferred_affinity and not pod.preferred_anti_affinity:  # otherwise kube-scheduler counts every placed pod
        yield from _unlisted_terms(pod, snapshot, hard_weight)


def _unlisted_terms(pod: PodInfo, snapshot: Snapshot, hard_weight: int) -> Iterator[_WeightedTerm]:
    """Subtract the weights of placed pods that kube-scheduler's snapshot does not yet list among pods with affinity."""
    labels = snapshot.namespace_labels(pod.namespace)
    for weight, term, holders in snapshot.unheard.pulls(hard_weight):
        if term.matches(pod, labels):
            values = snapshot.table.labels.column(term.topology_key).values
            yield _WeightedTerm(term.topology_key, -weight, holders.copy(len(values)))


def sum_weights(weights: AffinityWeights, nodes: NodeView) -> IntArray:
    """Return the raw score of each row, shape (rows,)."""
    scores = nodes.zeros()
    for key, weight_by_domain in weights.items():
        scores += weight_by_domain.take(domain_ids(nodes, key))
    return scores


def normalize_weights(scores: IntArray) -> IntArray:
    """Map raw scores to 0-100, rounding down; if all are equal, they become 0."""
    if not len(scores):
        return np.zeros_like(scores)
    least = scores.item(scores.argmin())  # several times faster than min()
    span = scores.item(scores.argmax()) - least
    if span <= 0:
        return np.zeros_like(scores)
    above = scores - least if least else scores
    if span > min(_FEW_SUMS, len(scores) // 4):
        return _shares(above, span)
    found: IntArray = _shares(np.arange(span + 1), span).take(above)
    return found


def _shares(above: IntArray, span: int) -> IntArray:
    """Return percentages of the span, in the order of operations of kube-scheduler, for the same floating-point rounding."""
    shares: IntArray = (float(_MAX_SCORE) * (above.astype(np.float64) / float(span))).astype(np.int64)
    return shares
