"""Borg 2019 (Google cluster-usage traces v3): one of eight cells in May 2019.

Pods   instance_events, as JSON Lines or as CSV with a header: time (microseconds), type, collection_id, instance_index,
       collection_type, priority, alloc_collection_id, resource_request.cpus, resource_request.memory (shares of the largest
       machine). Several files of one table can be joined first
Nodes  machine_events, in the same forms: time, machine_id, type, capacity.cpus, capacity.memory, switch_id
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator, Mapping
from math import isnan, nan
from typing import Any, Final

from moorage.api.core import Node
from moorage.errors import InputError
from moorage.simulator.trace import Trace
from moorage.simulator.traces.streams import json_lines, open_bytes, table_rows
from moorage.simulator.traces.task_tables import TaskTable, machine

#: The largest machine, of which all amounts are shares. Google does not publish its size.
MACHINE_CPU_MILLI: Final = 96_000
MACHINE_MEMORY: Final = 384 << 30
_TYPES: Final = (
    "SUBMIT", "QUEUE", "ENABLE", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL", "LOST", "UPDATE_PENDING", "UPDATE_RUNNING",
)  # fmt: skip
_SUBMIT, _SCHEDULE = 0, 3
#: An evicted instance comes back, so it has not ended.
_ENDS: Final = frozenset({5, 6, 7, 8})
_ADD, _UPDATE = 1, 3
_MACHINE_TYPES: Final = ("EVENT_TYPE_UNKNOWN", "ADD", "REMOVE", "UPDATE")
#: The trace begins at 600 s; earlier events describe what existed at that time. Times after the end are 2^63 - 1.
_ORIGIN_S: Final = 600.0
_NEVER: Final = float(2**62)
_COLUMNS: Final = ("time", "type", "collection_id", "instance_index")
_MACHINE_COLUMNS: Final = ("time", "machine_id", "type")


class _Record:
    """A record of either form: numbers may be texts, and names with dots may be nested."""

    def __init__(self, where: str, cells: Mapping[str, Any]) -> None:
        self.where = where
        self._cells = cells

    def value(self, name: str) -> Any:
        if name in self._cells:
            return self._cells[name]
        outer, _, inner = name.partition(".")
        held = self._cells.get(outer)
        return held.get(inner) if isinstance(held, Mapping) else self._cells.get(name.replace(".", "_"))

    def number(self, name: str, missing: float = 0.0) -> float:
        found = self.value(name)
        if found is None or found == "":
            return missing
        try:
            return float(found)
        except (TypeError, ValueError):
            raise InputError(f"{self.where}: {name}: expected a number, found {str(found)[:40]!r}") from None

    def kind(self, names: tuple[str, ...]) -> int:
        found = self.value("type")
        if isinstance(found, str) and found in names:
            return names.index(found)
        number = int(self.number("type", -1.0))
        if not 0 <= number < len(names):
            raise InputError(f"{self.where}: type: expected 0 to {len(names) - 1} or a name, found {str(found)[:40]!r}")
        return number


def _records(path: str, columns: tuple[str, ...]) -> Iterator[_Record]:
    with open_bytes(path) as file:
        is_json = file.read(1) == b"{"
    if is_json:
        yield from (_Record(where, found) for where, found in json_lines(path))
    else:
        yield from (_Record(row.where, row.cells) for row in table_rows(path, columns))


class _Instances:
    """The instances of a trace, event by event."""

    def __init__(self) -> None:
        self.table = TaskTable()
        self.inside = 0
        #: ``_key`` of collection and index → row; -1 for instances inside reservations.
        self._rows: dict[Hashable, int] = {}
        #: When each row was first scheduled, NaN before.
        self._begun = array("d")

    def take(self, record: _Record) -> None:
        kind = record.kind(_TYPES)
        collection, index = int(record.number("collection_id")), int(record.number("instance_index"))
        time_s = record.number("time") / 1e6
        row = self._rows.get(key := _key(collection, index))
        if row is None:
            row = self._rows[key] = self._add(record, (collection, index), time_s)
        if row < 0:
            return
        if kind == _SUBMIT:
            self.table.builder.start(row, min(self.table.builder.time_of(row), time_s))
        elif kind == _SCHEDULE:
            if isnan(self._begun[row]):
                self._begun[row] = time_s
        elif kind in _ENDS and time_s < _NEVER / 1e6:
            begun = self._begun[row]
            begun = max(self.table.builder.time_of(row) if isnan(begun) else begun, _ORIGIN_S)
            self.table.builder.end(row, time_s - begun)

    def _add(self, record: _Record, key: tuple[int, int], time_s: float) -> int:
        if record.number("alloc_collection_id"):
            self.inside += 1
            return -1
        cpu = round(record.number("resource_request.cpus") * MACHINE_CPU_MILLI)
        memory = round(record.number("resource_request.memory") * MACHINE_MEMORY)
        labels = (("collection", str(key[0])), ("kind", "alloc" if record.number("collection_type") else "job"))
        priority = int(record.number("priority"))
        self._begun.append(nan)
        return self.table.add(
            f"{key[0]}-{key[1]}", time_s, None, cpu, memory, priority=priority, labels=labels, job=str(key[0])
        )


def _key(collection: int, index: int) -> Hashable:
    """Return one number for a collection and an index, which takes less memory than a pair."""
    return (collection << 32) + index if 0 <= index < 1 << 32 else (collection, index)


def read_borg_2019(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace: a pod for each instance that does not run inside a reservation (alloc).

    Raises  InputError
    """
    instances = _Instances()
    for record in _records(pods, _COLUMNS):
        instances.take(record)
    notes = [
        "amounts are shares of the largest machine, taken as 96 cores and 384 GiB",
        "constraints, usage and changes of requests are not in it, and an evicted instance keeps running",
        "the instances of a job start one by one, as Borg's do",
    ]
    if instances.inside:
        notes.append(f"{instances.inside} instances inside of reservations left out: the reservations have the room")
    return instances.table.builder.finish([] if nodes is None else _machines(nodes), notes, origin_s=_ORIGIN_S)


def _machines(path: str) -> list[Node]:
    found: dict[int, Node] = {}
    for record in _records(path, _MACHINE_COLUMNS):
        if record.kind(_MACHINE_TYPES) in {_ADD, _UPDATE}:
            number = int(record.number("machine_id"))
            cpu = round(record.number("capacity.cpus") * MACHINE_CPU_MILLI)
            memory = round(record.number("capacity.memory") * MACHINE_MEMORY)
            zone = str(record.value("switch_id") or "")[:16]
            if cpu and memory:
                found[number] = machine(f"machine-{number}", cpu, memory, zone=zone)
    return list(found.values())
