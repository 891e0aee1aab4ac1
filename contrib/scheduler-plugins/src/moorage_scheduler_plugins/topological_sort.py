"""TopologicalSort: order the pods of an application as its workloads depend on each other; all others by priority and time.

Source  scheduler-plugins 903da7df82cb, pkg/networkaware/topologicalsort
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from moorage.framework.args import PluginArgs
from moorage.framework.events import Action, ClusterEvent, Wake
from moorage.framework.handle import Handle
from moorage.framework.points import Attachable, EnqueueExtensions, QueueSortPlugin, SortableQueued
from moorage_scheduler_plugins.app_groups import APP_GROUPS, found_in, group_of, workload_of


class TopologicalSortArgs(PluginArgs, frozen=True):
    namespaces: tuple[str, ...] = ("default",)


class _Key(NamedTuple):
    """A queued pod as it is compared: with pods of its application by ``turn``, with others by priority and time."""

    group: str
    turn: int
    priority: int
    timestamp: float

    def __lt__(self, other: Any) -> bool:
        if self.group and self.group == other.group and self.turn != other.turn:
            return bool(self.turn < other.turn)
        return (-self.priority, self.timestamp) < (-other.priority, other.timestamp)


class TopologicalSort(QueueSortPlugin, EnqueueExtensions, Attachable):
    name = "TopologicalSort"
    Args = TopologicalSortArgs

    def __init__(self, args: TopologicalSortArgs | None = None) -> None:
        self._namespaces = (args or TopologicalSortArgs()).namespaces or ("default",)
        self._handle: Handle | None = None

    def attach(self, handle: Handle) -> None:
        self._handle = handle

    def wakes_on(self) -> Iterator[Wake]:
        # It rejects no pod; the kind is named to be watched.
        yield Wake(ClusterEvent(APP_GROUPS, Action.UPDATE), when=lambda pod, old, new: False)

    def sort_key(self, queued: SortableQueued) -> Any:
        pod, group = queued.pod, group_of(queued.pod)
        return _Key(group, self._turn(group, workload_of(pod)) if group else -1, pod.priority, queued.timestamp)

    def _turn(self, group: str, workload: str) -> int:
        found = None if self._handle is None else found_in(self._handle.snapshot, APP_GROUPS, group, self._namespaces)
        order = [] if found is None else found.get("status", "topologyOrder", default=[]) or []
        turns = {one.get("workload", {}).get("selector"): int(one.get("index", 0)) for one in order}
        return turns.get(workload, -1)
