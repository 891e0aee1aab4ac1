"""Find an object of a cluster by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from moorage.api.core import Namespace, Node, Object, Pod
from moorage.api.documents.served_kinds import KINDS as SERVED
from moorage.api.documents.served_kinds import ServedKind
from moorage.api.kinds import Kind
from moorage.basis.inputs.simulated_kinds import KINDS
from moorage.basis.printable import close_to
from moorage.errors import InputError
from moorage.laboratory.cluster_objects import key_of
from moorage.simulator.cluster_input import WrittenObjects
from moorage.simulator.simulation import SimulatedCluster


@cache
def kinds_by_name() -> Mapping[str, Kind]:
    """Return the kinds by all names that kubectl takes: kind, plural and short names."""
    found = {kind.name.lower(): kind for kind in KINDS}
    for served in SERVED:
        kind = found.get(served.kind.lower())
        if kind is not None and kind.group == served.group:
            found.update(dict.fromkeys((served.resource, *served.short_names), kind))
    return found


@cache
def served_as(kind: Kind) -> ServedKind:
    """Return how an API server serves a kind."""
    return next(served for served in SERVED if (served.kind, served.group) == (kind.name, kind.group))


class Inventory:
    """The objects of a cluster. ``aside`` are those that the scheduler does not read, by ``kind/namespace/name``.

    ``patterns``  nodes that the cluster does not have, and that can be added, by name
    """

    def __init__(self, simulation: SimulatedCluster, aside: Mapping[str, Object], patterns: Iterable[Node] = ()) -> None:
        self.simulation = simulation
        self.aside = aside
        self._patterns = {node.name: node for node in patterns}

    def find(self, kind: type[Object], namespace: str, name: str) -> Object | None:
        """Return the object of a kind and name, if there is one."""
        inner = f"{namespace}/{name}" if namespace else name
        cluster = self.simulation.scheduler.cluster
        if kind is Pod:
            return self.simulation.pod_named(inner)
        if kind is Node:
            row = cluster.table.row_of.get(name)
            return self._patterns.get(name) if row is None else cluster.table.nodes[row]
        if kind is Namespace:
            return cluster.namespaces.get(name)
        return self.aside.get(f"{kind.__name__.lower()}/{inner}") or cluster.objects(kind).get(inner)

    def all_of(self, kind: type[Object]) -> list[Object]:
        """Return all objects of a kind."""
        cluster = self.simulation.scheduler.cluster
        if kind is Pod:
            return list(self.simulation.pods.values())
        if kind is Node:
            return list(cluster.table.nodes)
        if kind is Namespace:
            return list(cluster.namespaces.values())
        aside = [obj for obj in self.aside.values() if isinstance(obj, kind)]
        return [*aside, *cluster.objects(kind).values()]

    def like(self, obj: Object) -> Object | None:
        """Return the object of the same kind and name, if there is one."""
        metadata = obj.metadata
        return self.find(type(obj), metadata.namespace, metadata.name)

    def get(self, ref: str | Object) -> Object:
        """Return an object by ``kind/namespace/name``, ``kind/name``, or the name of a pod; for an object, its current version.

        Kinds are named as for kubectl: ``deployment``, ``deployments`` or ``deploy``. The namespace may be left out if it is
        ``default``.

        Raises  InputError if there is none
        """
        if isinstance(ref, Object):
            found, ref = self.like(ref), key_of(ref)
        else:
            head, _, rest = ref.partition("/")
            kind = kinds_by_name().get(head.lower()) if rest else None
            found = self._named(kinds_by_name()["pod"], ref) if kind is None else self._named(kind, rest)
        if found is None:
            raise InputError(f"there is no {ref if '/' in ref else f'pod {ref}'}{self._close(ref)}")
        return found

    def _close(self, ref: str) -> str:
        """Return the names most like one that no object has, of its kind."""
        head, _, rest = ref.partition("/")
        kind = kinds_by_name().get(head.lower())
        wanted, held = (ref, self.all_of(Pod)) if kind is None else (rest, self.all_of(kind.type))
        return close_to(wanted, {obj.key if "/" in wanted else obj.name: key_of(obj) for obj in held})

    def _named(self, kind: Kind, name: str) -> Object | None:
        namespace, slash, inner = name.rpartition("/")
        return self.find(kind.type, (namespace if slash else "default") if kind.namespaced else "", inner)


class PresentObjects:
    """A view of a cluster that always shows the current objects. ``inventory`` returns the current inventory."""

    def __init__(self, inventory: Callable[[], Inventory], written: WrittenObjects | None = None) -> None:
        self._inventory = inventory
        self.written = written

    def find(self, kind: type[Object], namespace: str, name: str) -> Object | None:
        """Return the object of a kind and name, if there is one."""
        return self._inventory().find(kind, namespace, name)

    def all_of(self, kind: type[Object]) -> list[Object]:
        """Return all objects of a kind."""
        return self._inventory().all_of(kind)
