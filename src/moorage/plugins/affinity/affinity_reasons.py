"""Why affinity between pods refuses nodes, and what would let a pod in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from moorage.framework.changes import Detail
from moorage.plugins.affinity.affinity_counts import AffinityCounts, ResolvedTerm
from moorage.plugins.shared.term_names import affinity_name, others_name, selector_text, topology_name
from moorage.state.affinity_terms import AffinityTerm
from moorage.state.counts import PodMatcher
from moorage.state.view import BoolArray, NodeView, PodInfo, domain_ids

#: How many pods are named.
_MOST: Final = 3


def refusing_terms(state: AffinityCounts, nodes: NodeView) -> Iterator[tuple[str, BoolArray]]:
    """Yield each term with the rows that it rejects: the pod's own terms, then the anti-affinity of placed pods.

    A pod must match all affinity terms to count for any of them, so each term rejects the domains of its key without such pods.
    """
    first = state.is_first
    for term in state.affinity:
        wanted = state.wanted[term.topology_key]
        closed = np.zeros(len(wanted), dtype=bool) if first else wanted == 0
        closed[0] = True
        yield _name(term), closed.take(domain_ids(nodes, term.topology_key))
    for term in state.anti_affinity:
        counts = nodes.table.pod_counts.by_domain(PodMatcher((term.match,)), term.topology_key)
        yield _name(term, anti=True), (counts > 0).take(domain_ids(nodes, term.topology_key))
    for key, counts in state.refusing.items():
        yield others_name(key), (counts > 0).take(domain_ids(nodes, key))


def explained(state: AffinityCounts, pod: PodInfo, node: NodeView) -> Detail | None:
    """Return why a node is rejected: no pod that matches an affinity term, pods that match an anti-affinity term of the pod,
    or pods with an anti-affinity term that matches the pod.

    Pods of one workload are often rejected by the same term both ways. Then the text is about the pod's own term, and
    ``terms`` names both.
    """
    own = [*_missing(state, node), *_own(state, pod, node)]
    others = list(_others(state, pod, node))
    named = {name for one in own for name in one.objects}
    said = [*own, *(one for one in others if not named.issuperset(one.objects))]
    if len(said) == 1:
        return replace(said[0], terms=tuple(term for one in (*own, *others) for term in one.terms))
    texts = [f"{', '.join(one.objects)} {one.text}".strip() for one in said]
    return Detail("; ".join(texts), tuple(term for one in (*own, *others) for term in one.terms)) if said else None


def _missing(state: AffinityCounts, node: NodeView) -> Iterator[Detail]:
    for term in state.affinity:
        key = term.topology_key
        domain = int(domain_ids(node, key)[0])
        if not domain:
            yield Detail(f"no {key} label", (_name(term),))
        elif not state.is_first and not state.wanted[key][domain]:
            where = f"{topology_name(key)} {node.label(key).values[domain]}"
            all_of = " and ".join(dict.fromkeys(selector_text(one.match.selector) for one in state.affinity))
            yield Detail(f"no pod with {all_of} in {where}", (_name(term),))


def _own(state: AffinityCounts, pod: PodInfo, node: NodeView) -> Iterator[Detail]:
    """Yield the pods that the pod's own anti-affinity terms keep away."""
    for term in state.anti_affinity:
        matcher = PodMatcher((term.match,))
        rows = _rows_near(node, term.topology_key)
        held = rows[node.table.pod_counts.of(matcher)[rows] > 0] if len(rows) else rows
        found = (other for row in held for other in node.table.pods[row].values() if matcher.matches(other))
        names, more = _named(found, pod)
        if names:
            yield Detail(f"has {selector_text(term.match.selector)}{more}", (_name(term, anti=True),), objects=names)


def _others(state: AffinityCounts, pod: PodInfo, node: NodeView) -> Iterator[Detail]:
    """Yield the placed pods whose anti-affinity terms keep the pod away."""
    labels = state.snapshot.namespace_labels(pod.namespace)
    for key, counts in state.refusing.items():
        domain = int(domain_ids(node, key)[0])
        if not domain or not counts[domain]:
            continue
        terms: dict[str, AffinityTerm] = {}
        found = _holding(node, key, pod, labels, terms)
        names, more = _named(found, pod)
        against = " and ".join(dict.fromkeys(selector_text(term.selector) for term in terms.values())) or "this pod"
        text = f"has anti-affinity against {against} per {topology_name(key)}{more}"
        yield Detail(text, (others_name(key),), objects=names or ("a pod",))


def _holding(
    node: NodeView, key: str, pod: PodInfo, labels: Mapping[str, str], terms: dict[str, AffinityTerm]
) -> Iterator[PodInfo]:
    for row in _rows_near(node, key):
        for other in node.table.pods[row].values():
            for term in other.required_anti_affinity:
                if term.topology_key == key and term.matches(pod, labels):
                    terms[other.uid] = term
                    yield other
                    break


def _rows_near(node: NodeView, key: str) -> npt.NDArray[np.intp]:
    """Return the rows in the same domain as the node; none if it has no such label."""
    domain = int(domain_ids(node, key)[0])
    return np.flatnonzero(domain_ids(node.snapshot.nodes, key) == domain) if domain else np.zeros(0, dtype=np.intp)


def _named(found: Iterable[PodInfo], pod: PodInfo) -> tuple[tuple[str, ...], str]:
    """Return the names of the first few pods, with their namespace if it is another one; and whether there are more."""
    pods = list(islice(found, _MOST + 1))
    names = tuple(other.name if other.namespace == pod.namespace else other.key for other in pods[:_MOST])
    return names, " (and more)" if len(pods) > _MOST else ""


def _name(term: ResolvedTerm, *, anti: bool = False) -> str:
    return affinity_name(term.match.selector, term.topology_key, anti=anti)
