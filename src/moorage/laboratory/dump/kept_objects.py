"""The objects of a kind as bytes that can be read back in a twentieth of the time that their JSON takes.

Most objects are copies, so they are written as columns: one for each field of their metadata, spec and status. A column has
each value once, and objects share it again when they are read. Pods have one column of specs, without the node and without the
affinity to it that the pods of a DaemonSet have.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec.structs import fields, force_setattr, replace

from moorage.api import packing
from moorage.api.core import PodSpec, PodStatus
from moorage.api.meta import Object, ObjectMeta
from moorage.basis.inputs.simulated_kinds import KINDS
from moorage.simulator.cluster_input import SLOTS

#: The kinds whose objects can be kept, by slot.
KEPT_KINDS: Final = {kind.slot: kind for kind in KINDS if kind.slot in SLOTS}

#: The fields whose structs are divided into columns.
_DIVIDED: Final = frozenset({"metadata", "spec", "status"})


class _Column(msgspec.Struct, array_like=True):
    """The values of a field: different ones, and the index of each object's as an unsigned int.

    ``at`` is empty if all objects have the same value, or each its own. Structs with ``parts`` have a column for each field.
    """

    values: msgspec.Raw = msgspec.Raw(b"\x90")
    at: memoryview = memoryview(b"")
    parts: list[_Column] = []


class _Packed(msgspec.Struct, array_like=True):
    """The columns of objects; of pods, those of metadata, specs, status, nodes, and nodes that affinities name."""

    count: int
    columns: list[_Column]


def pack(slot: str, objects: Iterable[Object]) -> bytes:
    """Return the objects of a slot as bytes."""
    held: list[Any] = list(objects)
    if slot != "pods":
        return packing.pack(_Packed(len(held), _table(KEPT_KINDS[slot].type, held).parts))
    specs, pins = zip(*[_without_pin(replace(pod.spec, node_name="")) for pod in held], strict=True) if held else ((), ())
    meta, status = _table(ObjectMeta, [pod.metadata for pod in held]), _table(PodStatus, [pod.status for pod in held])
    nodes = _column([pod.spec.node_name for pod in held])
    return packing.pack(_Packed(len(held), [meta, _column(specs), status, nodes, _column(pins)]))


def _table(kind: Any, objects: Sequence[Any]) -> _Column:
    """Return the columns of structs, and of the structs that all of them have in a field."""
    parts = []
    for one in fields(kind):
        values = list(map(attrgetter(one.name), objects))
        parts.append(_table(one.type, values) if one.name in _DIVIDED else _column(values))
    return _Column(parts=parts)


def _column(values: Sequence[Any]) -> _Column:
    known: dict[str | bytes, int] = {}
    different: list[Any] = []
    identities = list(map(id, values))
    numbers = dict(zip(identities, values, strict=True))
    for identity, value in numbers.items():
        number = numbers[identity] = known.setdefault(value if type(value) is str else packing.pack(value), len(different))
        if number == len(different):
            different.append(value)
    at = array("I", map(numbers.__getitem__, identities)) if 1 < len(different) < len(values) else b""
    return _Column(msgspec.Raw(packing.pack(different)), memoryview(bytes(at)))


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
    return _pinned(spec, [""])[0], fields[0].values[0]


def _pinned(spec: Any, nodes: Sequence[str]) -> list[Any]:
    """Return copies of a spec of ``_without_pin``, each with the name of a node."""
    rules = spec.affinity.node_affinity
    required = rules.required_during_scheduling_ignored_during_execution
    (term,) = required.node_selector_terms
    named = _varied(term.match_fields[0], "values", [(node,) for node in nodes])
    terms = _varied(term, "match_fields", [(one,) for one in named])
    required = _varied(required, "node_selector_terms", [(one,) for one in terms])
    rules = _varied(rules, "required_during_scheduling_ignored_during_execution", required)
    return _varied(spec, "affinity", _varied(spec.affinity, "node_affinity", rules))


def _varied(value: Any, name: str, values: Sequence[Any]) -> list[Any]:
    """Return copies of a struct, each with one of these values in a field. Calls that C code makes take a fifth of the time."""
    made = list(map(type(value).__copy__, repeat(value, len(values))))
    deque(map(force_setattr, made, repeat(name), values), maxlen=0)
    return made


def unpack(slot: str, packed: bytes | msgspec.Raw) -> list[Any]:
    """Return the objects that ``pack`` was called with. Pods without a node, and of one spec, share it.

    Raises  msgspec.DecodeError; IndexError
    """
    read = msgspec.msgpack.decode(packed, type=_Packed)
    count, columns = read.count, read.columns
    kind: Any = KEPT_KINDS[slot].type
    if slot != "pods":
        return _whole(map(kind, *_parts(kind, columns, count)), count)
    metadata, specs, status, nodes = (
        _whole(_values(column, one, count), count)
        for column, one in zip(columns[:4], (ObjectMeta, PodSpec, PodStatus, str), strict=True)
    )
    pinned: dict[int, tuple[list[int], list[str]]] = {}
    for at, pin in enumerate(_values(columns[4], str, count)):
        if pin:
            places, pins = pinned.setdefault(id(specs[at]), ([], []))
            places.append(at)
            pins.append(pin)
    for places, pins in pinned.values():
        for at, spec in zip(places, _pinned(specs[places[0]], pins), strict=True):
            specs[at] = spec
    copy: Any = PodSpec.__copy__  # type: ignore[attr-defined]  # faster than replace()
    specs = [copy(spec) if node else spec for spec, node in zip(specs, nodes, strict=True)]
    deque(map(force_setattr, specs, repeat("node_name"), nodes), maxlen=0)
    return list(map(kind, metadata, specs, status))


def _whole(values: Iterable[Any], count: int) -> list[Any]:
    if len(found := list(values)) != count:
        raise IndexError("a column has another length")
    return found


def _parts(kind: Any, columns: Sequence[_Column], count: int) -> list[Iterator[Any]]:
    return [_values(columns[at], one.type, count) for at, one in enumerate(fields(kind))]


def _values(column: _Column, kind: Any, count: int) -> Iterator[Any]:
    """Return each object's value of a field. C code makes structs in a tenth of the time that a loop takes."""
    if column.parts:
        return map(kind, *_parts(kind, column.parts, count))
    values: list[Any] = packing.unpack(column.values, list[kind])
    if len(values) == 1:
        return repeat(values[0], count)
    if not column.at:
        return iter(values)
    if len(column.at) != count * array("I").itemsize:
        raise IndexError("a column has another length")
    return map(values.__getitem__, column.at.cast("I"))
