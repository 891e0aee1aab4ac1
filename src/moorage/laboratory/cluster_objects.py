"""The current objects of a cluster, and look-ups of them for the search for changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from itertools import groupby
from os import PathLike
from typing import Any, Final, Protocol, TypeAlias

from moorage.api.core import Namespace, Node, Object, Pod
from moorage.api.custom_objects import CustomObject
from moorage.api.documents.served_kinds import KINDS as SERVED
from moorage.api.documents.served_kinds import ServedKind
from moorage.api.kinds import Kind
from moorage.basis.inputs.files import InputFile, open_sources
from moorage.basis.inputs.objects import FoundObject, find_objects
from moorage.basis.inputs.simulated_kinds import KINDS
from moorage.basis.printable import close_to
from moorage.errors import InputError
from moorage.simulator.cluster_input import ClusterInput, WrittenObjects
from moorage.simulator.cluster_reader import STRICT_RULES, ReadRules, read_objects
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.simulation import SimulatedCluster

# -- objects -----------------------------------------------------------------------------------------------------------
# Convert the forms in which programs give objects (API structs, dicts, YAML text, paths) into one.
#
# A string that holds a line break or begins with ``{`` is YAML or JSON text; any other string is a path.

#: What functions of the laboratory take for objects.
ObjectLike: TypeAlias = Object | Mapping[str, Any] | str | PathLike[str]

_NAMES = {kind.type: kind.name for kind in KINDS}


def kind_name(obj: Object) -> str:
    """Return the Kubernetes kind of an object."""
    return _NAMES.get(type(obj), type(obj).__name__)


def key_of(obj: Object) -> str:
    """Return ``kind/namespace/name``, or ``kind/name`` for an object without a namespace, with the kind in lower case."""
    return f"{kind_name(obj).lower()}/{obj.key}"


def documents(given: Mapping[str, Any] | str | PathLike[str], where: str) -> Iterator[FoundObject]:
    """Yield the objects of a dict, of YAML or JSON text, or of a file or directory."""
    if isinstance(given, Mapping):
        plain = dict(given)
        yield FoundObject(str(plain.get("apiVersion") or ""), str(plain.get("kind") or ""), plain, where)
        return
    text = text_of(given)
    sources: Iterable[InputFile] = (
        open_sources([os.fspath(given)], recursive=False, stdin=None, skipped=[])
        if text is None
        else [InputFile(where, text.encode())]
    )
    for source in sources:
        yield from find_objects(source)


def text_of(given: str | PathLike[str]) -> str | None:
    """Return YAML or JSON text unchanged; None for a path."""
    return given if isinstance(given, str) and ("\n" in given or given.lstrip().startswith("{")) else None


def is_implied(obj: Object) -> bool:
    """Return True for a bare namespace, which the reader adds for objects in it."""
    return isinstance(obj, Namespace) and obj.metadata.labels == {"kubernetes.io/metadata.name": obj.metadata.name}


def read_given(
    given: Iterable[ObjectLike], *, validated: bool = True, custom: Iterable[str] = (), rules: ReadRules = STRICT_RULES
) -> ClusterInput:
    """Return the cluster that these describe together, with defaults filled in.

    Raises  InputError for what cannot be read
    """
    return read_objects(_flattened(given), validated=validated, custom=custom, rules=rules)


def _flattened(given: Iterable[ObjectLike]) -> Iterator[Object | FoundObject]:
    for number, one in enumerate(given, 1):
        if isinstance(one, Object):
            yield one
        elif isinstance(one, Mapping | str | PathLike):
            yield from documents(one, f"object {number}")
        else:
            raise InputError(
                f"object {number}: expected an API object, a dict, YAML text or a path, found {type(one).__name__}"
            )


def flat_objects(objects: Iterable[ObjectLike | Iterable[ObjectLike]]) -> Iterator[ObjectLike]:
    """Yield objects, also those in nested iterables.

    Raises  InputError for anything else
    """
    for one in objects:
        if isinstance(one, Object | Mapping | str | PathLike):
            yield one
        elif isinstance(one, Iterable):
            yield from one
        else:
            raise InputError(f"expected objects, found {type(one).__name__}")


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
    nodes: list[Node] = simulation.nodes_in_order()
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
    """Objects that are found by kind and name. ``written``: what the input's admission policies read of it, if it has any."""

    @property
    def written(self) -> WrittenObjects | None: ...

    def find(self, kind: type[Object], namespace: str, name: str) -> Object | None:
        """Return the object of a kind and name, if there is one."""

    def all_of(self, kind: type[Object]) -> Iterable[Object]:
        """Return all objects of a kind."""


class ListedObjects:
    """A list of objects. The index by name is built at the first look-up."""

    def __init__(self, objects: Iterable[Object], written: WrittenObjects | None = None) -> None:
        self._objects = list(objects)
        self.written = written

    def find(self, kind: type[Object], namespace: str, name: str) -> Object | None:
        return self._named.get((kind, namespace, name))

    def all_of(self, kind: type[Object]) -> Iterable[Object]:
        return [obj for obj in self._objects if isinstance(obj, kind)]

    @cached_property
    def _named(self) -> dict[tuple[type[Object], str, str], Object]:
        return {(type(obj), obj.metadata.namespace, obj.metadata.name): obj for obj in reversed(self._objects)}


NOTHING_AROUND: Final = ListedObjects(())


# -- inventory ---------------------------------------------------------------------------------------------------------
# Find an object of a cluster by its name.


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
