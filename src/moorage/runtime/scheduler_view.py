"""The part of the scheduler that the runtime reads: its copies of objects, its assumed pods, and the work it still wants."""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.meta import Object
from moorage.engine.scheduler import Scheduler
from moorage.state.pod_info import PodInfo

__all__ = ["SchedulerView"]


class SchedulerView:
    """A view of the scheduler for the executor and the confirmer. ``wake`` makes the loop take its next turn."""

    def __init__(self, scheduler: Scheduler, wake: Callable[[], None]) -> None:
        self._scheduler, self._wake = scheduler, wake

    def known(self, obj: Object) -> Object | None:
        """Return the scheduler's copy of an object, by its key; None if it has none."""
        return self._scheduler.cluster.objects(type(obj)).get(obj.key)

    def is_wanted(self, ticket: int) -> bool:
        """Return whether the scheduler still wants the work of a ticket."""
        return self._scheduler.is_wanted(ticket)

    def is_assumed(self, uid: str) -> bool:
        """Return whether a pod is assumed on a node."""
        return self._scheduler.cluster.is_assumed(uid)

    def is_bound_unconfirmed(self, uid: str) -> bool:
        """Return whether a pod is bound, and still only assumed because no watch has delivered the bind."""
        return self.is_assumed(uid) and self._scheduler.binding_of(uid) is None

    def node_of(self, uid: str) -> str | None:
        """Return the node on which a pod is placed or assumed."""
        return self._scheduler.cluster.node_of(uid)

    def stays(self, uid: str) -> bool:
        """Return whether the scheduler knows the pod and it is not terminating."""
        pod = self._scheduler.cluster.pod(uid)
        return pod is not None and not pod.terminating

    def is_unconfirmed(self, obj: Object) -> bool:
        """Return whether no watch has delivered an object at this version or a later one."""
        return self._scheduler.is_unconfirmed(obj)

    def retry(self, pod: PodInfo) -> None:
        """Let the scheduler try a pod again at once."""
        self._scheduler.activate([pod])
        self._wake()
