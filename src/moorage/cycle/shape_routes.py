"""Shape routes: from a pod's shape straight to its class, without signing the pod again.

A route holds while no object that signatures may read changes, no log of an idle plugin moves on, and the class stays cached.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, Generic, TypeVar

from moorage.api.core import Pod
from moorage.cycle.pod_signatures import KnownShape
from moorage.state.cluster import Snapshot
from moorage.state.journal import Journal
from moorage.state.pod_info import PodInfo

__all__ = ["ShapeRoute"]

C = TypeVar("C")

#: The attributes of a ``PodInfo`` other than derived data.
_OF_ALL: Final = ("pod", "uid", "name", "namespace", "labels", "spec", "status", "priority")


class ShapeRoute(Generic[C]):
    """The route from one shape to its class, as found for the first pod of the shape."""

    __slots__ = (
        "_facts", "_facts_known", "_logs", "_objects_changed", "_snapshot", "_whole", "first", "has_terms", "key", "pod_class",
    )  # fmt: skip

    def __init__(self, known: KnownShape, key: Hashable, pod_class: C, snapshot: Snapshot) -> None:
        self.key = key
        self.pod_class = pod_class
        #: The logs of idle plugins with their positions, except journals, whose changes ``objects_changed`` counts.
        self._logs = tuple(pair for pair in known.stands_while if not isinstance(pair[0], Journal))
        self.first = known.first
        #: True if placing a pod of the shape may end the route.
        self.has_terms = known.first.has_affinity
        self._snapshot = snapshot
        self._objects_changed = snapshot.objects_changed
        self._facts: dict[str, Any] = {}
        self._whole: dict[str, Any] = {}
        self._facts_known = 0

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
        """Copy the derived data of the first pod of the shape to this one, and share the first pod's equal parts."""
        if len(self.first.__dict__) != self._facts_known:
            self._look_up_facts()
        pod.__dict__.update(self._facts)
        if pod.spec is not self.first.spec:
            pod.merge(self.first)

    def bound(self, pod: PodInfo, bound: Pod) -> PodInfo:
        """Return the info of the bound version of a pod that the route suits, with the derived data of the first pod."""
        if len(self.first.__dict__) != self._facts_known:
            self._look_up_facts()
        info = PodInfo.__new__(PodInfo)
        its = self._whole.copy()
        its["pod"], its["uid"], its["name"], its["spec"] = bound, pod.uid, pod.name, bound.spec
        info.__dict__ = its
        return info

    def _look_up_facts(self) -> None:
        """Look up the derived data of the first pod, which grows as plugins read more of it."""
        its = self.first.__dict__
        self._facts, self._facts_known = self.first.facts_of_shape(), len(its)
        self._whole = {name: its[name] for name in _OF_ALL} | self._facts
