"""Pod garbage collection in a simulated cluster: pods are deleted some time after their node.

Source  kubernetes, pkg/controller/podgc/gc_controller.go, gcOrphaned
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from moorage.api.core import ENDED_PHASES, Node, Pod
from moorage.core.engine.facts import Done, Gone, News
from moorage.rules.workloads.pod_collection import QUARANTINE_S


class PodCollector:
    """Call ``note`` with every fact and ``act`` before each step of the scheduler. ``lose`` is called for each pod.

    ``pods``: all pods, by UID; ``came`` returns the number of a pod in order of arrival; ``left_by`` returns the UIDs of the
    pods on a missing node. Nodes that never existed are ignored.
    """

    def __init__(
        self,
        pods: Mapping[str, Pod],
        came: Callable[[str], int],
        left_by: Callable[[str], Collection[str]],
        lose: Callable[[Pod], None],
    ) -> None:
        self._pods = pods
        self._came = came
        self._left_by = left_by
        self._lose = lose
        #: The nodes that are missing. Facts of pods need no ``note`` while there are none.
        self.gone: set[str] = set()
        self._due: dict[str, float] = {}

    def note(self, fact: News, now: float) -> None:
        """Record a fact."""
        if isinstance(fact, Done):
            return
        obj = fact.obj
        if isinstance(obj, Node):
            if isinstance(fact, Gone):
                self.gone.add(obj.name)
                if self._left_by(obj.name):
                    self._due[obj.name] = now + QUARANTINE_S
            else:
                self.gone.discard(obj.name)
                self._due.pop(obj.name, None)
        elif self.gone and isinstance(obj, Pod) and obj.spec.node_name in self.gone and not isinstance(fact, Gone):
            self._due.setdefault(obj.spec.node_name, now + QUARANTINE_S)

    def due(self) -> float | None:
        """Return the time of the next deletion; None if there is none."""
        return min(self._due.values()) if self._due else None

    def save(self) -> Callable[[], None]:
        """Return a function that restores the present list of missing nodes."""
        gone, due = self.gone.copy(), self._due.copy()

        def restore() -> None:
            self.gone, self._due = gone, due

        return restore

    def act(self, now: float) -> None:
        """Delete the pods of nodes that have been missing long enough."""
        for name in [name for name, due in self._due.items() if due <= now]:
            del self._due[name]
            lost = [self._pods[uid] for uid in self._left_by(name) if uid in self._pods]
            for pod in sorted(lost, key=lambda pod: self._came(pod.metadata.uid)):
                if pod.status.phase not in ENDED_PHASES:
                    self._lose(pod)
