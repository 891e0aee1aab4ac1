"""GroupPermit: let the pods of a group wait on their nodes until enough of them have one, then admit all at once.

A Permit plugin that waits. Two labels of a pod name its group and the required number of pods.
"""

from __future__ import annotations

from moorage.framework.registry import Handle
from moorage.framework.verdicts import Wait
from moorage.state.pod_info import PodInfo

__all__ = ["GroupPermit"]

GROUP, SIZE = "example.com/group", "example.com/group-size"
PATIENCE_S = 60.0


class GroupPermit:
    """Waits for the group. When one pod of it fails, the others release their nodes too, so that no group blocks another."""

    name = "GroupPermit"

    def __init__(self) -> None:
        self.handle: Handle | None = None

    def attach(self, handle: Handle) -> None:
        self.handle = handle

    def permit(self, state: object, pod: PodInfo, node: str) -> Wait | None:
        group = pod.labels.get(GROUP)
        if group is None or self.handle is None:
            return None
        waiting = [held for held in self.handle.waiting() if held.pod.labels.get(GROUP) == group]
        if len(waiting) + 1 < int(pod.labels[SIZE]):
            return Wait(PATIENCE_S)
        for held in waiting:
            held.allow(self.name)
        return None

    def reserve(self, state: object, pod: PodInfo, node: str) -> None:
        """Reserve nothing: the plugin only needs Unreserve."""

    def unreserve(self, state: object, pod: PodInfo, node: str) -> None:
        if self.handle is None or pod.labels.get(GROUP) is None:
            return
        for held in self.handle.waiting():
            if held.pod.labels.get(GROUP) == pod.labels[GROUP] and held.pod.uid != pod.uid:
                held.reject(self.name, f"group {pod.labels[GROUP]} cannot be placed completely")
