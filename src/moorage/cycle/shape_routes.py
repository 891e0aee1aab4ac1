"""Shape routes: from a pod's shape straight to its class, without signing the pod again.

A route holds while no object that signatures may read changes, no log of an idle plugin moves on, and the class stays cached.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from moorage.api.core import Pod
from moorage.cycle.pod_signatures import KnownShape
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["ShapeRoute"]

C = TypeVar("C")


class ShapeRoute(Generic[C]):
    """The route from one shape to its class, as found for the first pod of the shape."""

    __slots__ = (
        "_logs", "_objects_changed", "_snapshot", "first", "has_terms", "key", "pod_class",
    )  # fmt: skip

    def __init__(self, known: KnownShape, key: Hashable, pod_class: C, snapshot: Snapshot) -> None:
        self.key = key
        self.pod_class = pod_class
        #: The logs of idle plugins with their positions, except those whose changes ``objects_changed`` counts.
        self._logs = known.stands_while.of_pods
        self.first = known.first
        #: True if placing a pod of the shape may end the route.
        self.has_terms = known.first.has_affinity
        self._snapshot = snapshot
        self._objects_changed = snapshot.objects_changed

    def holds(self, snapshot: Snapshot) -> bool:
        """Return whether signing a pod of the shape would still lead to the class."""
        if self._objects_changed != snapshot.objects_changed or self._snapshot is not snapshot:
            return False
        for log, position in self._logs:  # noqa: SIM110 (a generator costs more than comparing)
            if log.position != position:
                return False
        return True

    def suits(self, pod: PodInfo) -> bool:
        """Return True for a pod of the shape that shares the spec and status objects of the first one."""
        first = self.first
        if pod.spec is not first.spec or pod.status is not first.status or pod.namespace != first.namespace:
            return False
        its, meta = first.pod.metadata, pod.pod.metadata
        return (
            pod.labels == first.labels
            and meta.owner_references == its.owner_references
            and meta.deletion_timestamp == its.deletion_timestamp
        )

    def share(self, pod: PodInfo) -> None:
        """Let this pod use the derived data of the first pod of the shape, and share the first pod's equal parts."""
        first = self.first
        known = first.__dict__
        if not first.spec.volumes or known.get("volumes", self) is None:  # as ``shares_all``, without a call
            pod.__dict__ = known
        else:
            pod.__dict__.update(first.facts_of_shape())
        if pod.spec is not first.spec:
            pod.merge(first)

    def bound(self, pod: PodInfo, bound: Pod) -> PodInfo:
        """Return the info of the bound version of a pod that the route suits, with the derived data of the first pod."""
        first = self.first
        info = PodInfo.__new__(PodInfo)
        info.pod, info.spec, info.uid, info.name = bound, bound.spec, pod.uid, pod.name
        info.namespace, info.labels = first.namespace, first.labels
        info.status, info.priority = first.status, first.priority
        info.__dict__ = first.__dict__ if first.shares_all else first.facts_of_shape()
        return info
