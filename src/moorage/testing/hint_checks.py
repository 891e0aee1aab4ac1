"""Check the promise of ``Wake.by_shape``: hints answer the same for pods that differ only in name, UID and conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from moorage.api.core import PodCondition
from moorage.framework.events import Resource, Wake
from moorage.framework.profile import declared_wakes
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["broken_hints"]

_OF_PODS = {Resource.POD, Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD}


def broken_hints(plugin: Any, pods: Iterable[PodInfo], snapshot: Snapshot) -> Iterator[str]:
    """Yield a line for every hint whose answer differs between a pod and another pod of its shape."""
    shapes = [(pod, _twin(pod)) for pod in pods]
    changes: dict[Resource | str, list[tuple[Any, Any]]] = {
        Resource.NODE: list(_changes_of_nodes(snapshot)),
        Resource.POD: list(_changes_of_pods(snapshot)),
    }
    for wake in (wake for wake in declared_wakes(plugin) or () if isinstance(wake, Wake) and wake.by_shape):
        kind = Resource.POD if wake.event.resource in _OF_PODS else wake.event.resource
        for pod, twin in shapes:
            if any(_answer(wake, pod, *change) != _answer(wake, twin, *change) for change in changes.get(kind, ())):
                yield f"the hint for {wake.event} declares by_shape, but answers differently for two pods like {pod.name}"


def _twin(pod: PodInfo) -> PodInfo:
    metadata = replace(pod.metadata, name="twin-of-it", uid="twin-of-it")
    conditions = (PodCondition(type="PodScheduled", status="False", reason="Unschedulable"),)
    return PodInfo(replace(pod.pod, metadata=metadata, status=replace(pod.status, conditions=conditions)))


def _changes_of_nodes(snapshot: Snapshot) -> Iterator[tuple[Any, Any]]:
    nodes = snapshot.table.nodes
    yield from ((None, node) for node in nodes)
    yield from ((replace(one, metadata=other.metadata), one) for one, other in pairwise(nodes))
    yield from ((replace(one, metadata=other.metadata), other) for one, other in pairwise(nodes))


def _changes_of_pods(snapshot: Snapshot) -> Iterator[tuple[Any, Any]]:
    placed = [pod.on(snapshot.table.nodes[row].name) for row, pods in enumerate(snapshot.table.pods) for pod in pods.values()]
    for pod in placed:
        bare = PodInfo(replace(pod.pod, metadata=replace(pod.metadata, labels={})))
        yield from ((None, pod), (pod, None), (bare, pod), (pod, bare))


def _answer(wake: Wake, pod: PodInfo, old: Any, new: Any) -> object:
    try:
        return wake.when is None or bool(wake.when(pod, old, new))
    except Exception as error:
        return type(error)
