"""The pods that the scheduler knows, as plugins may list them."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.core.engine.engine_state import EngineState
from moorage.framework.handle import PodLister, WaitingPod
from moorage.state.pod_info import PodInfo


class KnownPods(PodLister):
    """The pending, placed and waiting pods of one scheduler."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def get(self, uid: str) -> PodInfo | None:
        queued = self._state.queue.get(uid)
        placed = self._state.cluster.pod(uid)
        return placed if placed is not None else None if queued is None else queued.pod

    def pending(self) -> Iterator[PodInfo]:
        node_of = self._state.cluster.node_of
        return (pod for pod in self._state.queue.pods() if node_of(pod.uid) is None)

    def placed(self) -> Iterator[tuple[PodInfo, str]]:
        table = self._state.cluster.table
        for row, node in enumerate(table.nodes):
            yield from ((pod, node.name) for pod in list(table.pods[row].values()))

    def waiting(self) -> Iterator[WaitingPod]:
        return iter(self._state.bindings.waiting())

    def nominated(self, node: str) -> tuple[PodInfo, ...]:
        return self._state.queue.nominated.get(node, ())

    def node_of(self, uid: str) -> str | None:
        return self._state.cluster.node_of(uid)
