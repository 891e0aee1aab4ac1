"""Pods that are assumed while their group is tried, and whose affinity terms and claims its other pods ignore.

kube-scheduler keeps lists of the nodes that hold pods with affinity, and with required anti-affinity, and looks for the
terms of placed pods on these nodes alone. It does not update the lists while a group is tried. So the terms of an assumed
pod do not apply to the next pod of its group, unless the assumed pod's node was in the list already because of another pod.
The same holds for claims: all pods of a group may use a claim that only one pod may use.

Source  kube-scheduler, backend/cache/snapshot.go, AssumePod; plugins/interpodaffinity/{filtering,scoring}.go
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from moorage.state.labels import IdCounts
from moorage.state.pod_info import PodInfo

if TYPE_CHECKING:
    from moorage.state.affinity_terms import AffinityTerm


H = TypeVar("H", bound=Hashable)


class Unheard:
    """The assumed pods whose affinity terms scoring or Filter ignores, counted by term and domain; and uses of claims."""

    def __init__(self) -> None:
        #: UID → the counts that include the pod, each with the domain of its node.
        self._pods: dict[str, list[tuple[IdCounts, int]]] = {}
        self._anti_affinity: dict[AffinityTerm, IdCounts] = {}
        #: Weight and term → how many pods have it in each domain. The weight of required affinity is None.
        self._pulls: dict[tuple[int | None, AffinityTerm], IdCounts] = {}
        #: UID → the claims that the pod uses; and the number of uses of each claim.
        self._users: dict[str, list[str]] = {}
        self._claims: dict[str, int] = {}

    def add(self, pod: PodInfo, domain_of: Callable[[str], int], *, scoring: bool, filtering: bool) -> None:
        """Make scoring or Filter ignore the terms of a pod. ``domain_of(key)`` is its node's domain, 0 without the label."""
        terms: list[tuple[IdCounts, int]] = []
        if filtering:
            refusing = pod.required_anti_affinity
            terms += [(_counts_of(self._anti_affinity, term), domain_of(term.topology_key)) for term in refusing]
        if scoring:
            pulls = _weighted(pod)
            terms += [(_counts_of(self._pulls, (weight, term)), domain_of(term.topology_key)) for weight, term in pulls]
        held = self._pods[pod.uid] = [(counts, domain) for counts, domain in terms if domain]
        for counts, domain in held:
            counts.add(domain, 1)

    def add_user(self, pod: PodInfo) -> None:
        """Add a pod whose use of claims does not count yet."""
        if pod.volumes is not None and pod.volumes.claims:
            uses = self._users[pod.uid] = [use.key for use in pod.volumes.claims if not use.ephemeral]
            for key in uses:
                self._claims[key] = self._claims.get(key, 0) + 1

    def discard(self, uid: str) -> None:
        for counts, domain in self._pods.pop(uid, ()):
            counts.add(domain, -1)
        for key in self._users.pop(uid, ()):
            self._claims[key] -= 1
        if not self._pods and (self._anti_affinity or self._pulls):
            self._anti_affinity, self._pulls = {}, {}
        if not self._users and self._claims:
            self._claims = {}

    def claim_uses(self, key: str) -> int:
        """Return how often the volumes of these pods name the claim ``namespace/name``."""
        return self._claims.get(key, 0)

    def anti_affinity(self) -> Iterable[tuple[AffinityTerm, IdCounts]]:
        """Return the required anti-affinity terms that Filter ignores, each with its number of holders in each domain."""
        return self._anti_affinity.items()

    def pulls(self, hard_weight: int) -> Iterator[tuple[int, AffinityTerm, IdCounts]]:
        """Yield the terms that scoring ignores: weight, term and its number of holders in each domain.

        Required affinity has ``hard_weight``.
        """
        for (weight, term), counts in self._pulls.items():
            if weight is not None:
                yield weight, term, counts
            elif hard_weight > 0:
                yield hard_weight, term, counts


def _counts_of(counts: dict[H, IdCounts], what: H) -> IdCounts:
    found = counts.get(what)
    if found is None:
        found = counts[what] = IdCounts()
    return found


def _weighted(pod: PodInfo) -> Iterable[tuple[int | None, AffinityTerm]]:
    yield from ((None, term) for term in pod.required_affinity)
    yield from pod.preferred_affinity
    yield from ((-weight, term) for weight, term in pod.preferred_anti_affinity)
