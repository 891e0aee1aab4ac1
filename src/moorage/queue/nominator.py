"""Nominations: pods that preemption made room for, and the node each of them waits for.

The scheduler's own word counts before the API's: a nomination is written down here when it is made, and an update of the pod
that does not mention it yet does not take it away. It ends when the pod is assumed, bound, deleted or nominated elsewhere.

Of pods in flight, and of deleted ones that are not gone yet, nothing is left but their names: while one of a group is tried,
its fellows take up no more of the nodes they are nominated to than a place for a pod, and count as of priority 0.

Source  kube-scheduler, backend/queue/nominator.go; scheduling_queue.go, nominatedPodToInfo
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from moorage.api.core import Pod
from moorage.api.meta import ObjectMeta
from moorage.queue.queued import Place, QueuedPod
from moorage.state.pod_info import PodInfo

__all__ = ["Nominator"]


class Nominator:
    """UID to node, and back. ``pods`` are those of the queue, by UID, as they are at any time."""

    def __init__(self, pods: Mapping[str, QueuedPod]) -> None:
        self._pods = pods
        self._node_of: dict[str, str] = {}
        self._on: dict[str, dict[str, None]] = {}
        #: Names of pods that are not in the queue any more, but nominated until they are gone.
        self._leaving: dict[str, PodInfo] = {}
        self._lists: Mapping[str, tuple[PodInfo, ...]] | None = None

    def __len__(self) -> int:
        return len(self._node_of)

    def nominate(self, pod: PodInfo, node: str | None) -> None:
        """Nominate a pod. "" clears its nomination; None goes by what the API says of the pod."""
        self.forget(pod.uid)
        name = pod.status.nominated_node_name if node is None else node
        if name:
            self._node_of[pod.uid] = name
            self._on.setdefault(name, {})[pod.uid] = None
            self._lists = None

    def update(self, old: PodInfo, new: PodInfo) -> None:
        """Follow a change of the pod. If neither version names a node, what was nominated here holds."""
        unsaid = not old.status.nominated_node_name and not new.status.nominated_node_name
        self.nominate(new, self._node_of.get(old.uid) if unsaid else None)

    def touch(self, uid: str) -> None:
        """The pod is another, or in flight, or no longer so: it takes up another room from now on."""
        if uid in self._node_of:
            self._lists = None

    def leave(self, pod: PodInfo, node: str) -> None:
        """Keep the nomination of a pod that leaves the queue, by name, until it is forgotten."""
        self.nominate(pod, node)
        self._leaving[pod.uid] = _name_of(pod)

    def forget(self, uid: str) -> bool:
        """End a nomination. Returns whether there was one."""
        node = self._node_of.pop(uid, None)
        if node is None:
            return False
        waiting = self._on[node]
        del waiting[uid]
        if not waiting:
            del self._on[node]
        self._leaving.pop(uid, None)
        self._lists = None
        return True

    def node_of(self, uid: str) -> str | None:
        return self._node_of.get(uid)

    def on(self, node: str) -> tuple[str, ...]:
        """UIDs of the pods nominated to a node, in the order they were."""
        return tuple(self._on.get(node, ()))

    def nodes(self) -> tuple[str, ...]:
        """Nodes that pods are nominated to."""
        return tuple(self._on)

    @property
    def lists(self) -> Mapping[str, tuple[PodInfo, ...]]:
        """Node name → pods nominated to it, the most important first, the first nominated before others of its priority.

        The mapping never changes: when a nomination does, there is another.
        """
        if self._lists is None:
            self._lists = MappingProxyType(
                {node: tuple(sorted(map(self._shown, uids), key=lambda pod: -pod.priority)) for node, uids in self._on.items()}
            )
        return self._lists

    def _shown(self, uid: str) -> PodInfo:
        queued = self._pods.get(uid)
        if queued is None:
            return self._leaving[uid]
        return queued.pod if queued.place is not Place.IN_FLIGHT else _name_of(queued.pod)


def _name_of(pod: PodInfo) -> PodInfo:
    """Return a pod that has a name and nothing else."""
    return PodInfo(Pod(metadata=ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid)))
