"""Pods that are assumed while their group is tried, and whose affinity terms and claims its other pods ignore.

kube-scheduler keeps lists of the nodes that hold pods with affinity, and with required anti-affinity, and looks for the terms
of placed pods on these nodes alone. It does not update the lists while a group is tried. So the terms of an assumed pod do not
apply to the next pod of its group, unless the assumed pod's node was in the list already because of another pod. The same holds
for claims: all pods of a group may use a claim that only one pod may use.

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
    """The assumed pods by UID, each with its node, and whether scoring and Filter ignore its affinity terms."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[PodInfo, str, bool, bool]] = {}
        self._users: dict[str, PodInfo] = {}

    def add(self, pod: PodInfo, node: str, *, scoring: bool, filtering: bool) -> None:
        self._pods[pod.uid] = (pod, node, scoring, filtering)

    def add_user(self, pod: PodInfo) -> None:
        """Add a pod whose use of claims does not count yet."""
        if pod.volumes is not None and pod.volumes.claims:
            self._users[pod.uid] = pod

    def discard(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._users.pop(uid, None)

    def claim_uses(self, key: str) -> int:
        """Return how often the volumes of these pods name the claim ``namespace/name``."""
        claims = (use for pod in self._users.values() if pod.volumes is not None for use in pod.volumes.claims)
        return sum(use.key == key and not use.ephemeral for use in claims)

    def anti_affinity(self) -> Iterator[tuple[AffinityTerm, str]]:
        """Yield the required anti-affinity terms that Filter ignores, each with its holder's node."""
        for pod, node, _, filtering in self._pods.values():
            if filtering:
                yield from ((term, node) for term in pod.required_anti_affinity)

    def pulls(self, hard_weight: int) -> Iterator[_Demand]:
        """Yield the terms that scoring ignores: weight, term and its holder's node. Required affinity has ``hard_weight``."""
        for pod, node, scoring, _ in self._pods.values():
            if scoring:
                yield from ((weight, term, node) for weight, term in _weighted(pod, hard_weight))


def _weighted(pod: PodInfo, hard_weight: int) -> Iterable[tuple[int, AffinityTerm]]:
    if hard_weight > 0:
        yield from ((hard_weight, term) for term in pod.required_affinity)
    yield from pod.preferred_affinity
    yield from ((-weight, term) for weight, term in pod.preferred_anti_affinity)
