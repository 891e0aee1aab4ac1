"""Pods that are assumed while their group is tried, and whose demands on others nobody hears of yet.

kube-scheduler keeps lists of the nodes that hold pods with affinity, and with required anti-affinity, and looks for what placed
pods demand of others on these alone. It does not bring them up to date while a group is tried. So a pod that is tried after
its fellow is not bound by what that one demands, unless the fellow's node was listed already, for another pod. So it is with
the claims that pods use: one that is for one pod alone is taken by all of a group.

Source  kube-scheduler, backend/cache/snapshot.go, AssumePod; plugins/interpodaffinity/{filtering,scoring}.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage.state.affinity_terms import AffinityTerm
    from moorage.state.pod_info import PodInfo

__all__ = ["Unheard"]

_Demand = tuple[int, "AffinityTerm", str]


class Unheard:
    """Of each pod by UID: itself, its node, and whether scoring and Filter pass over its demands."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[PodInfo, str, bool, bool]] = {}
        self._users: dict[str, PodInfo] = {}

    def add(self, pod: PodInfo, node: str, *, scoring: bool, filtering: bool) -> None:
        self._pods[pod.uid] = (pod, node, scoring, filtering)

    def add_user(self, pod: PodInfo) -> None:
        """Nobody hears either which claims the pod has taken."""
        if pod.volumes is not None and pod.volumes.claims:
            self._users[pod.uid] = pod

    def discard(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._users.pop(uid, None)

    def claim_uses(self, key: str) -> int:
        """Count how often these pods use the claim ``namespace/name`` by its name."""
        claims = (use for pod in self._users.values() if pod.volumes is not None for use in pod.volumes.claims)
        return sum(use.key == key and not use.ephemeral for use in claims)

    def anti_affinity(self) -> Iterator[tuple[AffinityTerm, str]]:
        """Yield required anti-affinity terms that Filter passes over, each with its holder's node."""
        for pod, node, _, filtering in self._pods.values():
            if filtering:
                yield from ((term, node) for term in pod.required_anti_affinity)

    def pulls(self, hard_weight: int) -> Iterator[_Demand]:
        """Yield what scoring passes over: weight, term and its holder's node. ``hard_weight`` is that of required affinity."""
        for pod, node, scoring, _ in self._pods.values():
            if scoring:
                yield from ((weight, term, node) for weight, term in _weighted(pod, hard_weight))


def _weighted(pod: PodInfo, hard_weight: int) -> Iterable[tuple[int, AffinityTerm]]:
    if hard_weight > 0:
        yield from ((hard_weight, term) for term in pod.required_affinity)
    yield from pod.preferred_affinity
    yield from ((-weight, term) for weight, term in pod.preferred_anti_affinity)
