"""Pod garbage collection in a simulated cluster: a node that has been gone for a while takes its pods along.

Source  kubernetes, pkg/controller/podgc/gc_controller.go, gcOrphaned
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from moorage.api.core import ENDED_PHASES, Node, Pod
from moorage.engine.facts import Done, Gone, News

__all__ = ["PodCollector"]

#: How long a node has to be missing before its pods are deleted, in seconds.
QUARANTINE_S: Final = 40.0


class PodCollector:
    """``note`` it every fact, and let it ``act`` before the scheduler's next step. ``lose`` is called for each pod.

    ``pods``: all that there are, by UID. A node that was never there is none of its business.
    """

    def __init__(self, pods: Mapping[str, Pod], lose: Callable[[Pod], None]) -> None:
        self._pods = pods
        self._lose = lose
        self._gone: set[str] = set()
        self._due: dict[str, float] = {}

    def note(self, fact: News, now: float) -> None:
        """Take notice of something that happened."""
        if isinstance(fact, Done):
            return
        obj = fact.obj
        if isinstance(obj, Node):
            if isinstance(fact, Gone):
                self._gone.add(obj.name)
                self._due[obj.name] = now + QUARANTINE_S
            else:
                self._gone.discard(obj.name)
                self._due.pop(obj.name, None)
        elif isinstance(obj, Pod) and obj.spec.node_name in self._gone and not isinstance(fact, Gone):
            self._due.setdefault(obj.spec.node_name, now + QUARANTINE_S)

    def due(self) -> float | None:
        """Return when there is something to do next; None if there is nothing."""
        return min(self._due.values(), default=None)

    def act(self, now: float) -> None:
        """Delete the pods of nodes that have been missing for long enough."""
        for name in [name for name, due in self._due.items() if due <= now]:
            del self._due[name]
            for pod in [pod for pod in self._pods.values() if pod.spec.node_name == name]:
                if pod.status.phase not in ENDED_PHASES:
                    self._lose(pod)
