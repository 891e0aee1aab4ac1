"""Evictions as remedies: which pods to evict so that a term no longer rejects a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice
from math import comb
from operator import itemgetter
from typing import Final

from moorage.framework.changes import Change, Remedies
from moorage.state.view import NodeView, PodInfo

_MIRROR: Final = "kubernetes.io/config.mirror"
#: The most sets of pods that are offered for one term.
MOST: Final = 24
#: The most single pods that are offered, if there are more than ``FEW`` pods and one of them is enough.
MOST_ALONE: Final = 3
#: For up to this many pods, every minimal set is found.
FEW: Final = 8
_amount = itemgetter(1)


def can_be_evicted(pod: PodInfo) -> bool:
    """Return False for mirror pods and DaemonSet pods, which return to their node at once."""
    meta = pod.pod.metadata
    if _MIRROR in meta.annotations:
        return False
    owners = meta.owner_references
    return not owners or not any(owner.controller and owner.kind == "DaemonSet" for owner in owners)


def evict(pod: PodInfo, node: str, term: str = "") -> Change:
    """Return the change that evicts a pod from its node; for a terminating pod, the wait until it is gone."""
    if pod.pod.metadata.deletion_timestamp is not None:
        held = ", ".join(pod.pod.metadata.finalizers)
        return Change("cluster", "wait", f"pod/{pod.key}", "terminating", node, held or None, term=term)
    return Change("cluster", "evict", f"pod/{pod.key}", "", node, None, term=term)


def evict_all(held: Iterable[tuple[PodInfo, str]], term: str = "") -> Iterator[Remedies]:
    """Offer to evict all of some pods, each given with its node; nothing if there are none, or one cannot be evicted."""
    pods = list(held)
    if pods and len(pods) <= FEW and all(can_be_evicted(pod) for pod, _ in pods):
        yield tuple(evict(pod, node, term) for pod, node in pods)


def evict_any(held: Sequence[tuple[PodInfo, str]], count: int, term: str = "") -> Iterator[Remedies]:
    """Offer to evict any ``count`` of some pods."""
    pods = [(pod, node) for pod, node in held if can_be_evicted(pod)]
    if not 0 < count <= len(pods):
        return
    if comb(len(pods), count) > MOST:
        pods = pods[: max(count, FEW)] if comb(min(len(pods), FEW), count) <= 10 * MOST else pods[:count]
    for some in islice(combinations(pods, count), MOST):
        yield tuple(evict(pod, node, term) for pod, node in some)


def evict_enough(held: Iterable[tuple[PodInfo, int]], need: int, node: str, term: str = "") -> Iterator[Remedies]:
    """Offer sets of pods that free ``need`` together; no smaller part of a set would. ``held``: pods with what each frees."""
    freeing = sorted(((pod, amount) for pod, amount in held if amount > 0 and can_be_evicted(pod)), key=lambda one: -one[1])
    if sum(map(_amount, freeing)) < need:
        return
    for some in islice(_enough(freeing, need), MOST):
        yield tuple(evict(pod, node, term) for pod in some)


def _enough(freeing: Sequence[tuple[PodInfo, int]], need: int) -> Iterator[list[PodInfo]]:
    """Yield sets of pods, given with the largest amount first."""
    if len(freeing) > FEW:
        alone = [[pod] for pod, amount in reversed(freeing) if amount >= need]
        yield from alone[:MOST_ALONE] or [_greedy(freeing, need)]
        return
    for size in range(1, len(freeing) + 1):
        for some in combinations(freeing, size):
            total = sum(map(_amount, some))
            if total >= need > total - some[-1][1]:
                yield [pod for pod, _ in some]


def _greedy(freeing: Sequence[tuple[PodInfo, int]], need: int) -> list[PodInfo]:
    """Take the largest until there is enough, then put back what is not needed."""
    chosen: list[tuple[PodInfo, int]] = []
    total = 0
    for one in freeing:
        if total >= need:
            break
        chosen.append(one)
        total += one[1]
    for one in list(chosen):
        if total - one[1] >= need:
            chosen.remove(one)
            total -= one[1]
    return [pod for pod, _ in chosen]


def pods_near(node: NodeView, key: str) -> Iterator[tuple[PodInfo, str]]:
    """Yield the pods in the node's domain of a topology key, each with the name of its node."""
    domain = node.first.domain(key)
    if domain:
        ids = node.snapshot.nodes.ids(node.snapshot.nodes.label(key))
        for row in (ids == domain).nonzero()[0].tolist():
            name = node.table.nodes[row].name
            yield from ((pod, name) for pod in node.table.pods[row].values())
