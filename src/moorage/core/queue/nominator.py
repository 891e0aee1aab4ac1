"""Nominations: pods for which preemption made room, and the node nominated for each.

The scheduler's record takes precedence over the API's: it holds a nomination from the moment it is made, and an update of the
pod that does not carry the nomination yet does not clear it. A nomination ends when the pod is assumed, bound, deleted or
nominated to another node.

Pods in flight, and pods that are being deleted, are listed by name only, without requests: while one pod of a group is tried,
the other pods of its group take up one pod slot each on the nodes they are nominated to, and have priority 0.

Source  kube-scheduler, backend/queue/nominator.go; scheduling_queue.go, nominatedPodToInfo
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from moorage.api.core import ObjectMeta, Pod
from moorage.core.queue.queued_pod import QueuedPod, QueuePlace
from moorage.state.pod_info import PodInfo


class Nominator:
    """UID to node, and back. ``pods`` is the queue's live mapping of pods by UID."""

    def __init__(self, pods: Mapping[str, QueuedPod]) -> None:
        self._pods = pods
        #: UID → the name of the node. Read it only.
        self.node_by_uid: dict[str, str] = {}
        self._on: dict[str, dict[str, None]] = {}
        #: Pods (by name only) that have left the queue but stay nominated until they are deleted.
        self._leaving: dict[str, PodInfo] = {}
        self._lists: Mapping[str, tuple[PodInfo, ...]] = MappingProxyType({})
        #: The nodes whose lists are out of date.
        self._stale: set[str] = set()

    def __len__(self) -> int:
        return len(self.node_by_uid)

    def nominate(self, pod: PodInfo, node: str | None) -> None:
        """Nominate a pod. "" clears its nomination; None takes the node from the pod's status."""
        self.forget(pod.uid)
        name = pod.status.nominated_node_name if node is None else node
        if name:
            self.node_by_uid[pod.uid] = name
            self._on.setdefault(name, {})[pod.uid] = None
            self._stale.add(name)

    def update(self, old: PodInfo, new: PodInfo) -> None:
        """Apply an update of the pod. If neither version names a node, keep the nomination recorded here."""
        unsaid = not old.status.nominated_node_name and not new.status.nominated_node_name
        self.nominate(new, self.node_by_uid.get(old.uid) if unsaid else None)

    def touch(self, uid: str) -> None:
        """Recompute the pod's list after it changed, went in flight or was requeued: its listed requests differ."""
        if uid in self.node_by_uid:
            self._stale.add(self.node_by_uid[uid])

    def leave(self, pod: PodInfo, node: str) -> None:
        """Keep the nomination of a pod that leaves the queue, by name only, until ``forget``."""
        self.nominate(pod, node)
        self._leaving[pod.uid] = _name_of(pod)

    def forget(self, uid: str) -> bool:
        """End a nomination. Return whether there was one."""
        node = self.node_by_uid.pop(uid, None)
        if node is None:
            return False
        waiting = self._on[node]
        del waiting[uid]
        if not waiting:
            del self._on[node]
        self._leaving.pop(uid, None)
        self._stale.add(node)
        return True

    def save(self) -> Callable[[], None]:
        """Return a function that restores the nominations and their order."""
        node_of, leaving = self.node_by_uid.copy(), self._leaving.copy()
        on = {node: uids.copy() for node, uids in self._on.items()}

        def restore() -> None:
            self.node_by_uid, self._leaving, self._on = node_of, leaving, on
            self._lists, self._stale = MappingProxyType({}), set(on)

        return restore

    def node_of(self, uid: str) -> str | None:
        return self.node_by_uid.get(uid)

    def on(self, node: str) -> tuple[str, ...]:
        """Return the UIDs of the pods nominated to a node, in the order of their nomination."""
        return tuple(self._on.get(node, ()))

    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that pods are nominated to."""
        return tuple(self._on)

    @property
    def lists(self) -> Mapping[str, tuple[PodInfo, ...]]:
        """Node name → pods nominated to it, by descending priority, then in the order of their nomination.

        The mapping never changes: after a nomination changes, this property returns a new mapping.
        """
        if self._stale:
            lists = dict(self._lists)
            for node in self._stale:
                if node in self._on:
                    lists[node] = tuple(sorted(map(self._shown, self._on[node]), key=lambda pod: -pod.priority))
                else:
                    lists.pop(node, None)
            self._lists = MappingProxyType(lists)
            self._stale.clear()
        return self._lists

    def _shown(self, uid: str) -> PodInfo:
        queued = self._pods.get(uid)
        if queued is None:
            return self._leaving[uid]
        return queued.pod if queued.place is not QueuePlace.IN_FLIGHT else _name_of(queued.pod)


def _name_of(pod: PodInfo) -> PodInfo:
    """Return a pod that has this pod's name, namespace and UID, and nothing else."""
    return PodInfo(Pod(metadata=ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid)))
