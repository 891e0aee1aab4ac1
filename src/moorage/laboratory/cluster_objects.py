"""The current objects of a cluster, and look-ups of them for the search for changes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from os import PathLike
from typing import Any, TypeAlias

from moorage.api.core import Namespace, Node, Object, Pod
from moorage.api.custom_objects import CustomObject
from moorage.basis.inputs.files import InputFile, open_sources
from moorage.basis.inputs.objects import FoundObject, find_objects
from moorage.basis.inputs.simulated_kinds import KINDS
from moorage.errors import InputError
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import STRICT_RULES, ReadRules, read_objects
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.simulation import SimulatedCluster

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
