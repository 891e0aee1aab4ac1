"""The objects of a kind as bytes that can be read back in a tenth of the time that their JSON takes.

Most pods are copies, so what copies share stands once: their specs without the node, their namespaces, labels and owners, and
what kubelets report of their containers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr, replace

from moorage.api.core import ContainerStatus, Pod, PodSpec, PodStatus
from moorage.api.meta import Object, ObjectMeta, OwnerReference
from moorage.basis.inputs.cleaned_objects import KINDS
from moorage.simulator.cluster_input import SLOTS

#: The kinds whose objects can be kept, by slot.
KEPT_KINDS: Final = {kind.slot: kind for kind in KINDS if kind.slot in SLOTS}

_encode: Final = msgspec.msgpack.Encoder().encode


class _Shared(msgspec.Struct, array_like=True, frozen=True):
    """What the metadata of copies have in common."""

    namespace: str
    generate_name: str
    labels: dict[str, str]
    owner_references: tuple[OwnerReference, ...]


class _Reported(msgspec.Struct, array_like=True, frozen=True):
    """What the statuses of copies have in common."""

    containers: tuple[ContainerStatus, ...]
    init_containers: tuple[ContainerStatus, ...]


class _Row(msgspec.Struct, array_like=True, gc=False):
    """A pod: its other metadata and status, its node, and the indexes of its spec and of what it shares."""

    metadata: ObjectMeta
    status: PodStatus
    node: str
    spec: int
    shared: int
    reported: int


class _Pods(msgspec.Struct, array_like=True):
    specs: list[PodSpec]
    shared: list[_Shared]
    reported: list[_Reported]
    rows: list[_Row]


class _Table:
    """Different values in the order in which they came."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._at: dict[Hashable, int] = {}

    def index(self, value: Any) -> int:
        at = self._at.setdefault(_encode(value), len(self.values))
        if at == len(self.values):
            self.values.append(value)
        return at


def pack(slot: str, objects: Iterable[Object]) -> bytes:
    """Return the objects of a slot as bytes."""
    if slot != "pods":
        return _encode(list(objects))
    specs, shared, reported, rows = _Table(), _Table(), _Table(), []
    for pod in objects:
        assert isinstance(pod, Pod)
        meta, status, node = pod.metadata, pod.status, pod.spec.node_name
        at = (
            specs.index(replace(pod.spec, node_name="")),
            shared.index(_Shared(meta.namespace, meta.generate_name, meta.labels, meta.owner_references)),
            reported.index(_Reported(status.container_statuses, status.init_container_statuses)),
        )
        meta = replace(meta, namespace="", generate_name="", labels={}, owner_references=())
        rows.append(_Row(meta, replace(status, container_statuses=(), init_container_statuses=()), node, *at))
    return _encode(_Pods(specs.values, shared.values, reported.values, rows))


def unpack(slot: str, packed: bytes | msgspec.Raw) -> list[Any]:
    """Return the objects that ``pack`` was called with. Pods without a node, and of one spec, share it.

    Raises  msgspec.DecodeError; IndexError
    """
    if slot != "pods":
        found: list[Any] = msgspec.msgpack.decode(packed, type=list[KEPT_KINDS[slot].type])  # type: ignore[misc]
        return found
    read = msgspec.msgpack.decode(packed, type=_Pods)
    pods = []
    for row in read.rows:
        meta, spec, shared = row.metadata, read.specs[row.spec], read.shared[row.shared]
        force_setattr(meta, "namespace", shared.namespace)
        force_setattr(meta, "generate_name", shared.generate_name)
        force_setattr(meta, "labels", shared.labels)
        force_setattr(meta, "owner_references", shared.owner_references)
        force_setattr(row.status, "container_statuses", read.reported[row.reported].containers)
        force_setattr(row.status, "init_container_statuses", read.reported[row.reported].init_containers)
        if row.node:
            spec = spec.__copy__()  # type: ignore[attr-defined]  # faster than replace()
            force_setattr(spec, "node_name", row.node)
        pods.append(Pod(metadata=meta, spec=spec, status=row.status))
    return pods
