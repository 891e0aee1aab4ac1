"""The pods of each pod group, and how many of them have a node.

Pods name their group; the PodGroup object need not exist. All pods that the scheduler knows count: pending ones, assumed ones,
and those on a node, whichever client bound them. A pod leaves its group when it is deleted.

Source  kube-scheduler, backend/cache/podgroupstate.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moorage.state.pod_info import PodInfo


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
