"""A cluster of the laboratory, which does not change, as the source of the map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from moorage.api.core import Node, Pod
from moorage.interfaces.web.hub import Make
from moorage.interfaces.web.mirror import Header, Mirror, SnapshotRows, View, snapshot_document
from moorage.interfaces.web.rows import QueueState, is_ended, pod_row, queue_state
from moorage.laboratory.cluster import Cluster

__all__ = ["ClusterSource", "snapshot_of"]


class ClusterSource:
    """The nodes and pods of a cluster at the time when the source is created."""

    live = False

    def __init__(self, cluster: Cluster) -> None:
        objects = cluster.objects()
        self._nodes = [one for one in objects if isinstance(one, Node)]
        self._pods = {one.key: one for one in objects if isinstance(one, Pod)}
        self._records = cluster.simulation.records
        self.scheduler = cluster.scheduler
        self.release = cluster.scheduler.gates.release
        self.notes = tuple(note.text for note in cluster.notes)

    def nodes(self) -> Iterator[Node]:
        return iter(self._nodes)

    def pods(self) -> Iterator[Pod]:
        return iter(self._pods.values())

    def pod(self, key: str) -> Pod | None:
        return self._pods.get(key)

    def namespaces(self) -> list[str]:
        return sorted({pod.namespace for pod in self._pods.values()})

    def follow(self, on_change: Callable[[str, str, Make | None], None]) -> None:
        del on_change

    def unfollow(self) -> None:
        pass

    def queue_state(self, uid: str) -> QueueState:
        record = self._records.get(uid)
        found = queue_state(self.scheduler, uid)
        if record is None:
            return found
        return msgspec.structs.replace(found, cause=record.message, attempts=record.attempts or found.attempts)


def snapshot_of(cluster: Cluster, at: str) -> dict[str, Any]:
    """Return the snapshot document of a cluster, to embed in a file."""
    source, mirror = ClusterSource(cluster), Mirror()
    for node in source.nodes():
        mirror.put_node(node)
    for pod in source.pods():
        if not is_ended(pod):
            mirror.put_pod(pod_row(pod, source.queue_state(pod.uid) if not pod.spec.node_name else QueueState()), 0.0)
    mirror.refresh()
    mirror.learn_shapes()
    header = Header(release=source.release, id="", at=at, live=False, writable=False, user="", notes=source.notes)
    return snapshot_document(SnapshotRows.of(mirror), header, View())
