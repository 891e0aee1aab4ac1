"""The pods of each pod group, and how many of them have a node.

Pods name their group; the PodGroup object need not exist. All pods that the scheduler knows count: pending ones, assumed ones,
and those on a node, whichever client bound them. A pod leaves its group when it is deleted.

Source  kube-scheduler, backend/cache/podgroupstate.go
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from moorage.state.labels import IdCounts
from moorage.state.pod_info import PodInfo

if TYPE_CHECKING:
    from moorage.state.affinity_terms import AffinityTerm


def group_key(pod: PodInfo) -> str | None:
    """Return ``namespace/name`` of the pod's group; None if it names none."""
    return None if pod.spec.scheduling_group is None else pod.group_key


def same_group(pod: PodInfo, other: PodInfo) -> bool:
    """Return True if both pods name the same group."""
    key = group_key(pod)
    return key is not None and key == group_key(other)


class GroupPods:
    """The pods of one group, by UID, in the order they were added."""

    def __init__(self) -> None:
        self._all: dict[str, PodInfo] = {}
        self._nodes: dict[str, str] = {}
        self._unscheduled: dict[str, PodInfo] = {}
        #: UID → a number that orders the unscheduled pods.
        self._rank: dict[str, int] = {}
        self._ranked = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def scheduled_count(self) -> int:
        """The number of pods that are on a node or assumed there."""
        return len(self._nodes)

    @property
    def unscheduled(self) -> Iterable[PodInfo]:
        return self._unscheduled.values()

    def unscheduled_among(self, uids: Iterable[str]) -> list[PodInfo]:
        """Return the unscheduled pods with these UIDs, in the order of ``unscheduled``."""
        found = [uid for uid in uids if uid in self._unscheduled]
        return [self._unscheduled[uid] for uid in sorted(found, key=self._rank.__getitem__)]

    @property
    def nodes(self) -> Mapping[str, str]:
        """UID → node of each pod that is on a node or assumed there."""
        return self._nodes

    def pod(self, uid: str) -> PodInfo | None:
        return self._all.get(uid)

    def note(self, pod: PodInfo) -> None:
        """Add or update a pod; its node does not change."""
        self._all[pod.uid] = pod
        if pod.uid not in self._nodes:
            self._wait(pod)

    def put(self, pod: PodInfo, node: str) -> None:
        """Record that a pod is on a node, or assumed there."""
        uid = pod.uid
        self._all[uid] = pod
        self._nodes[uid] = node
        if self._unscheduled.pop(uid, None) is not None:
            del self._rank[uid]

    def take(self, uid: str) -> None:
        """Record that a pod is on no node any more."""
        if self._nodes.pop(uid, None) is not None:
            self._wait(self._all[uid])

    def drop(self, uid: str) -> None:
        self._all.pop(uid, None)
        self._nodes.pop(uid, None)
        self._unscheduled.pop(uid, None)
        self._rank.pop(uid, None)

    def save(self) -> Callable[[], None]:
        """Return a function that restores the pods as they are now."""
        books: tuple[dict[str, Any], ...] = (self._all, self._nodes, self._unscheduled, self._rank)
        copies, ranked = [book.copy() for book in books], self._ranked

        def restore() -> None:
            for book, held in zip(books, copies, strict=True):
                book.clear()
                book.update(held)
            self._ranked = ranked

        return restore

    def _wait(self, pod: PodInfo) -> None:
        if pod.uid not in self._unscheduled:
            self._ranked += 1
            self._rank[pod.uid] = self._ranked
        self._unscheduled[pod.uid] = pod


class PodGroups:
    """All groups that have a pod, by ``namespace/name``. Pods that name no group are ignored."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupPods] = {}

    def get(self, key: str) -> GroupPods | None:
        return self._groups.get(key)

    def of(self, pod: PodInfo) -> GroupPods | None:
        """Return the group that the pod names, if any pod of it is known."""
        key = group_key(pod)
        return None if key is None else self._groups.get(key)

    def note(self, pod: PodInfo) -> None:
        key = group_key(pod)
        if key is not None:
            self._made(key).note(pod)

    def put(self, pod: PodInfo, node: str) -> None:
        key = group_key(pod)
        if key is not None:
            self._made(key).put(pod, node)

    def _made(self, key: str) -> GroupPods:
        """Return the pods of a group, which becomes known if it is new."""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = GroupPods()
        return group

    def take(self, pod: PodInfo) -> None:
        group = self.of(pod)
        if group is not None:
            group.take(pod.uid)

    def drop(self, pod: PodInfo) -> None:
        """Remove a deleted pod."""
        key = group_key(pod)
        group = None if key is None else self._groups.get(key)
        if key is not None and group is not None:
            group.drop(pod.uid)
            if not len(group):
                del self._groups[key]


# -- group visibility --------------------------------------------------------------------------------------------------
# Pods that are assumed while their group is tried, and whose affinity terms and claims its other pods ignore.
#
# kube-scheduler keeps lists of the nodes that hold pods with affinity, and with required anti-affinity, and looks for the
# terms of placed pods on these nodes alone. It does not update the lists while a group is tried. So the terms of an assumed
# pod do not apply to the next pod of its group, unless the assumed pod's node was in the list already because of another pod.
# The same holds for claims: all pods of a group may use a claim that only one pod may use.
#
# Source  kube-scheduler, backend/cache/snapshot.go, AssumePod; plugins/interpodaffinity/{filtering,scoring}.go

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
