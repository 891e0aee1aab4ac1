"""The objects of a kind as bytes that can be read back in a tenth of the time that their JSON takes.

Most pods are copies, so what copies share stands once: their specs without the node, nor the affinity to it that the pods of a
DaemonSet have, their namespaces, labels and owners, and what kubelets report of their containers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr, replace

from moorage.api.core import ContainerStatus, NodeSelector, Pod, PodCondition, PodSpec, PodStatus
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
    conditions: tuple[PodCondition, ...]


class _Row(msgspec.Struct, array_like=True, gc=False):
    """A pod: its other metadata and status, its node, and the indexes of its spec and of what it shares.

    ``pinned``: the node that its affinity names, which its spec leaves out
    """

    metadata: ObjectMeta
    status: PodStatus
    node: str
    spec: int
    shared: int
    reported: int
    pinned: str = ""


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
        spec, pinned = _without_pin(replace(pod.spec, node_name=""))
        at = (
            specs.index(spec),
            shared.index(_Shared(meta.namespace, meta.generate_name, meta.labels, meta.owner_references)),
            reported.index(_Reported(status.container_statuses, status.init_container_statuses, status.conditions)),
        )
        meta = replace(meta, namespace="", generate_name="", labels={}, owner_references=())
        status = replace(status, container_statuses=(), init_container_statuses=(), conditions=())
        rows.append(_Row(meta, status, node, *at, pinned))
    return _encode(_Pods(specs.values, shared.values, reported.values, rows))


def _without_pin(spec: PodSpec) -> tuple[PodSpec, str]:
    """Return a spec without the name of the only node that its affinity allows, and that name; "" if it names none."""
    affinity = spec.affinity
    nodes = None if affinity is None else affinity.node_affinity
    required = None if nodes is None else nodes.required_during_scheduling_ignored_during_execution
    if required is None or len(required.node_selector_terms) != 1:
        return spec, ""
    fields = required.node_selector_terms[0].match_fields
    if len(fields) != 1 or fields[0].operator != "In" or len(fields[0].values) != 1 or not fields[0].values[0]:
        return spec, ""
    return _pinned(spec, ""), fields[0].values[0]


def _pinned(spec: Any, node: str) -> Any:
    """Return a spec of ``_without_pin`` with the name of a node."""
    nodes = spec.affinity.node_affinity
    term = nodes.required_during_scheduling_ignored_during_execution.node_selector_terms[0]
    term = replace(term, match_fields=(replace(term.match_fields[0], values=(node,)),))
    nodes = replace(nodes, required_during_scheduling_ignored_during_execution=NodeSelector(node_selector_terms=(term,)))
    return replace(spec, affinity=replace(spec.affinity, node_affinity=nodes))


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
        reported = read.reported[row.reported]
        force_setattr(row.status, "container_statuses", reported.containers)
        force_setattr(row.status, "init_container_statuses", reported.init_containers)
        force_setattr(row.status, "conditions", reported.conditions)
        if row.pinned:
            spec = _pinned(spec, row.pinned)
        if row.node:
            spec = spec.__copy__()  # type: ignore[attr-defined]  # faster than replace()
            force_setattr(spec, "node_name", row.node)
        pods.append(Pod(metadata=meta, spec=spec, status=row.status))
    return pods
