"""The current objects of a cluster, and look-ups of them for the search for changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import groupby
from typing import Any, Final, Protocol

from moorage.api.core import Namespace, Node, Pod
from moorage.api.custom_objects import CustomObject
from moorage.api.meta import Object
from moorage.basis.inputs.kinds import KINDS
from moorage.laboratory.objects import key_of
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.simulation import SimulatedCluster

__all__ = [
    "ASIDE", "NOTHING_AROUND", "ListedObjects", "Surroundings", "aside_of", "cluster_input", "is_simulated",
    "present_objects",
]  # fmt: skip


_SLOTS: Mapping[type, str] = {kind.type: kind.slot for kind in KINDS}
_ONE_OF_EACH: dict[str, Any] = {kind.slot: (kind.type(),) for kind in KINDS}
#: Kinds that the scheduler does not read: workloads, and kinds that admission reads.
ASIDE = frozenset(_SLOTS) - {type(obj) for obj in objects_of(ClusterInput(**_ONE_OF_EACH))}


def is_simulated(kind: type[Object]) -> bool:
    """Return whether simulations read objects of this kind."""
    return issubclass(kind, CustomObject) or kind in _SLOTS


def aside_of(cluster: ClusterInput) -> dict[str, Object]:
    """Return the objects that the scheduler does not read, by ``kind/namespace/name``."""
    held = (obj for kind in KINDS if kind.type in ASIDE for obj in getattr(cluster, kind.slot))
    return {key_of(obj): obj for obj in held}


def present_objects(aside: Mapping[str, Object], simulation: SimulatedCluster) -> list[Object]:
    """Return all objects: those that the scheduler does not read, then nodes, placed pods and pending pods."""
    cluster = simulation.scheduler.cluster
    table = cluster.table
    arrival = table.arrival.view.tolist()
    nodes: list[Node] = [table.nodes[row] for row in sorted(range(len(table)), key=arrival.__getitem__)]
    pods: list[Pod] = simulation.pods_in_order()
    others = [obj for kind in cluster.kinds if kind is not Namespace for obj in cluster.objects(kind).values()]
    placed = [pod for pod in pods if pod.spec.node_name]
    waiting = [pod for pod in pods if not pod.spec.node_name]
    return [*aside.values(), *cluster.namespaces.values(), *others, *nodes, *placed, *waiting]


def cluster_input(objects: Iterable[Object]) -> ClusterInput:
    """Return objects by kind."""
    held: dict[str, list[Any]] = {}
    for kind, some in groupby(objects, type):
        held.setdefault("custom" if issubclass(kind, CustomObject) else _SLOTS[kind], []).extend(some)
    slots: dict[str, Any] = {slot: tuple(some) for slot, some in held.items()}
    return ClusterInput(**slots)


# -- surroundings ------------------------------------------------------------------------------------------------------
# Look-ups of objects for the search for changes, and a list of objects that provides them.


class Surroundings(Protocol):
    """Objects that are found by kind and name."""

    def find(self, kind: type[Object], namespace: str, name: str) -> Object | None:
        """Return the object of a kind and name, if there is one."""

    def all_of(self, kind: type[Object]) -> Iterable[Object]:
        """Return all objects of a kind."""


class ListedObjects:
    """A list of objects. The index by name is built at the first look-up."""

    def __init__(self, objects: Iterable[Object]) -> None:
        self._objects = list(objects)

    def find(self, kind: type[Object], namespace: str, name: str) -> Object | None:
        return self._named.get((kind, namespace, name))

    def all_of(self, kind: type[Object]) -> Iterable[Object]:
        return [obj for obj in self._objects if isinstance(obj, kind)]

    @cached_property
    def _named(self) -> dict[tuple[type[Object], str, str], Object]:
        return {(type(obj), obj.metadata.namespace, obj.metadata.name): obj for obj in reversed(self._objects)}


NOTHING_AROUND: Final = ListedObjects(())
