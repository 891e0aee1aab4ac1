"""Changes that lift a rejection by InterPodAffinity: make a required term a preferred one, or evict pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final

from moorage.api.core import Affinity, PodAffinityTerm
from moorage.framework.changes import Change, Remedies, term_text
from moorage.plugins.affinity.affinity_counts import AffinityCounts, ResolvedTerm, matches_all
from moorage.plugins.shared.evictions import evict_all, pods_near
from moorage.plugins.shared.term_names import affinity_name, others_name
from moorage.state.affinity_terms import AffinityTerm
from moorage.state.counts import PodMatcher
from moorage.state.view import NodeView, PodInfo

#: The term of all required affinity terms together: the same pods must meet all of them.
NEAR: Final = "podAffinity"
#: With more required terms than this, only all of them together are offered.
FEW: Final = 5


def remedies_of_neighbours(state: AffinityCounts, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
    """Offer changes for each term, the pod's own or other pods', that rejects the node."""
    if not state.near_wanted(node)[0]:
        yield from _nearer(state, pod, node)
    yield from _apart(state, pod, node)
    yield from _apart_for_others(state, pod, node)


def _prefer(pod: PodInfo, rules: str, term: PodAffinityTerm, name: str) -> Change:
    return Change("pod", "prefer", f"pod/{pod.key}", f"affinity.{rules}", term_text(term), None, term=name)


def _required(pod: PodInfo, *, anti: bool = False) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity or Affinity()
    rules = affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return () if rules is None else rules.required_during_scheduling_ignored_during_execution


def _nearer(state: AffinityCounts, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
    """Offer to make required affinity terms preferred ones: each smallest set of terms without which the node fits."""
    terms = _required(pod)
    if len(terms) != len(state.affinity):
        return
    found: list[tuple[int, ...]] = []
    for size in range(1, len(terms) + 1) if len(terms) <= FEW else (len(terms),):
        for some in combinations(range(len(terms)), size):
            left = [one for i, one in enumerate(state.affinity) if i not in some]
            if not any(set(one) <= set(some) for one in found) and _is_near(left, pod, node):
                found.append(some)
    for some in found:
        yield tuple(_prefer(pod, "podAffinity", terms[i], NEAR) for i in some)
    yield from _first_again(state, node)


def _first_again(state: AffinityCounts, node: NodeView) -> Iterator[Remedies]:
    """Offer to evict all pods that match the affinity terms, if they are few and the pod matches its own terms.

    Without them the pod is the first of its kind and fits any node with the labels.
    """
    labelled = all(node.first.domain(term.topology_key) for term in state.affinity)
    if not (
        state.matches_itself and labelled and sum(int(held.sum()) for held in state.wanted.values()) <= FEW * len(state.wanted)
    ):
        return
    matcher, table = PodMatcher(tuple(term.match for term in state.affinity)), node.table
    rows = node.snapshot.nodes.pods_matching(matcher).nonzero()[0].tolist()
    wanted = [(pod, table.nodes[row].name) for row in rows for pod in table.pods[row].values() if matcher.matches(pod)]
    yield from evict_all(wanted, NEAR)


def _is_near(terms: Sequence[ResolvedTerm], pod: PodInfo, node: NodeView) -> bool:
    """Return whether the node meets these affinity terms: each of its domains has a pod that matches all of them.

    The node also meets them if no placed pod matches and the pod itself does.
    """
    counts = node.table.pod_counts
    matcher = PodMatcher(tuple(term.match for term in terms))
    by_key = {term.topology_key: counts.by_domain(matcher, term.topology_key) for term in terms}
    domains = {key: node.first.domain(key) for key in by_key}
    if not all(domains.values()):
        return False
    if matches_all(terms, pod) and not any(held.any() for held in by_key.values()):
        return True
    return all(by_key[key][domain] > 0 for key, domain in domains.items())


def _apart(state: AffinityCounts, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
    """Offer changes for each anti-affinity term of the pod that matches a pod in the node's domain."""
    terms = _required(pod, anti=True)
    for at, (match, key) in enumerate(state.anti_affinity):
        near = [(other, name) for other, name in pods_near(node, key) if match.matches(other.namespace, other.labels)]
        if near:
            name = affinity_name(match.selector, key, anti=True)
            if at < len(terms):
                yield _prefer(pod, "podAntiAffinity", terms[at], name)
            yield from evict_all(near, name)


def _apart_for_others(state: AffinityCounts, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
    """Offer changes where the anti-affinity of placed pods keeps the pod out of the node's domain.

    Pods of the same workload have the same terms, so making such a term a preferred one in the workload changes them all.
    """
    labels = state.snapshot.namespace_labels(pod.namespace)
    for key, counts in state.refusing.items():
        if not counts[node.first.domain(key)]:
            continue
        held = [
            (other, name, term)
            for other, name in pods_near(node, key)
            for term in other.required_anti_affinity
            if term.topology_key == key and term.matches(pod, labels)
        ]
        holders = {other.uid: (other, name) for other, name, _ in held}
        yield from evict_all(holders.values(), others_name(key))
        shared = [(other, term) for other, _, term in held if same_workload(other, pod) and term in pod.required_anti_affinity]
        if shared:
            strangers = [one for uid, one in holders.items() if uid not in {other.uid for other, _ in shared}]
            yield from _softened(pod, [term for _, term in shared], strangers, others_name(key))


def _softened(
    pod: PodInfo, terms: Iterable[AffinityTerm], strangers: Sequence[tuple[PodInfo, str]], name: str
) -> Iterator[Remedies]:
    raw = _required(pod, anti=True)
    places = {pod.required_anti_affinity.index(term) for term in terms}
    softened = tuple(_prefer(pod, "podAntiAffinity", raw[i], name) for i in sorted(places) if i < len(raw))
    if not strangers:
        yield softened
    for leaving in evict_all(strangers, name):
        yield (*softened, *(leaving if isinstance(leaving, tuple) else (leaving,)))


def same_workload(one: PodInfo, other: PodInfo) -> bool:
    """Return True for two pods of one namespace that have the same controller."""
    owners = [
        next(((owner.kind, owner.name) for owner in pod.metadata.owner_references if owner.controller), None)
        for pod in (one, other)
    ]
    return owners[0] is not None and owners[0] == owners[1] and one.namespace == other.namespace
