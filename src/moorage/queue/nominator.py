"""Nominations: pods that preemption made room for, and the node each of them waits for.

The scheduler's own word counts before the API's: a nomination is written down here when it is made, and an update of the pod
that does not mention it yet does not take it away. It ends when the pod is assumed, bound, deleted or nominated elsewhere.

Source  kube-scheduler, backend/queue/nominator.go
"""

from __future__ import annotations

from moorage.state.pod_info import PodInfo

__all__ = ["Nominator"]


class Nominator:
    """UID to node, and back."""

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}
        self._on: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._node_of)

    def nominate(self, pod: PodInfo, node: str | None) -> None:
        """Nominate a pod. "" clears its nomination; None goes by what the API says of the pod."""
        self.forget(pod.uid)
        name = pod.status.nominated_node_name if node is None else node
        if name:
            self._node_of[pod.uid] = name
            self._on.setdefault(name, {})[pod.uid] = None

    def update(self, old: PodInfo, new: PodInfo) -> None:
        """Follow a change of the pod. If neither version names a node, what was nominated here holds."""
        unsaid = not old.status.nominated_node_name and not new.status.nominated_node_name
        self.nominate(new, self._node_of.get(old.uid) if unsaid else None)

    def forget(self, uid: str) -> None:
        node = self._node_of.pop(uid, None)
        if node is None:
            return
        waiting = self._on[node]
        del waiting[uid]
        if not waiting:
            del self._on[node]

    def node_of(self, uid: str) -> str | None:
        return self._node_of.get(uid)

    def on(self, node: str) -> tuple[str, ...]:
        """UIDs of the pods nominated to a node, in the order they were."""
        return tuple(self._on.get(node, ()))

    def nodes(self) -> tuple[str, ...]:
        """Nodes that pods are nominated to."""
        return tuple(self._on)
