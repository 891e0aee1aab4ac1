"""SimKube: an exported trace (``.sktrace``) in MessagePack, version 1 (a list), 2 or 3 (maps).

``events`` have ts (Unix seconds), applied_objs and deleted_objs: owners of pods such as Deployments, and bare pods. Owners
become the pods that their controllers would create, at the time when they were applied; a scaled owner gains or loses pods.
``pod_lifecycles`` (versions 1 and 2) or ``index`` (version 3) has, by owner, when pods started and ended. The pods of a CronJob
arrive when they started; each pod of another owner runs as long as the next recorded one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from mmap import mmap
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.errors import InputError
from moorage.simulator.trace import Trace
from moorage.simulator.traces.recorded_pods import RecordedPods, pods_of_owner
from moorage.simulator.traces.streams import whole_bytes

#: The largest file, in bytes.
_MOST_BYTES: Final = 16 << 30
_NIL: Final = b"\xc0"
_Key = tuple[str, str, str]


@dataclass
class _Owner:
    """The existing pods of an owner, oldest first, and how many it has had in all."""

    rows: list[tuple[str, int]] = field(default_factory=list)
    made: int = 0


def read_simkube(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace. SimKube records no nodes: give nodes of your own.

    Raises  InputError
    """
    with whole_bytes(pods, _MOST_BYTES) as data:
        events, recorded = _parts(data, pods)
        reading = _Reading(pods, _runs_by_owner(_decoded(recorded, pods)))
        for event in _in_time(events, pods):
            reading.take(event)
    return reading.finish()


@dataclass(frozen=True, slots=True)
class _Run:
    """When a pod started and, if it did, ended; Unix times."""

    start: float
    end: float | None


class _Reading:
    """The state of reading: the pods and owners of the events so far."""

    def __init__(self, path: str, runs: Mapping[str, Sequence[_Run]]) -> None:
        self._path, self._runs = path, runs
        self._held, self._owners = RecordedPods(), dict[_Key, _Owner]()
        self._origin: float | None = None
        self._skipped: Counter[str] = Counter()
        self._events = 0

    def take(self, event: Mapping[str, Any]) -> None:
        where = f"{self._path}: event {self._events}"
        self._events += 1
        unix_s = _time(event, self._path)
        self._origin = unix_s if self._origin is None else self._origin
        for obj in _objects(event, "applied_objs", where):
            self._apply(obj, unix_s - self._origin, where)
        for obj in _objects(event, "deleted_objs", where):
            _delete(obj, self._owners, self._held, unix_s - self._origin)

    def _apply(self, obj: Mapping[str, Any], time_s: float, where: str) -> None:
        kind, key = str(obj.get("kind")), _key(obj)
        runs = self._runs.get(f"{key[1]}/{key[2]}", ())
        if kind in {"Pod", "Node"}:
            self._held.see(obj, where, time_s)
            row = self._held.row_of(key[1], key[2]) if kind == "Pod" and runs else None
            if row is not None and runs[0].end is not None:
                self._held.builder.end(row, runs[0].end - runs[0].start)
            return
        if kind == "CronJob" and runs and key in self._owners:
            return  # applied before: all its runs have been added
        owner = self._owners.setdefault(key, _Owner())
        pods = pods_of_owner(obj, where)
        if pods is None:
            self._skipped[kind] += 1
        elif kind == "CronJob" and runs and pods:
            self._repeat(pods, runs)
        else:
            _fill(owner, pods, key, self._held, time_s, [run for run in runs if run.end is not None])

    def _repeat(self, pods: Sequence[Pod], runs: Sequence[_Run]) -> None:
        """Add the pods of an owner that creates pods repeatedly, such as a CronJob, at the times when they started."""
        assert self._origin is not None
        for number, run in enumerate(runs):
            pod = pods[number % len(pods)]
            time_s = max(run.start - self._origin, 0.0)
            row = self._held.see_pod(replace(pod, metadata=replace(pod.metadata, name=f"{pod.name}-{number}")), time_s)
            if run.end is not None:
                self._held.builder.end(row, run.end - run.start)

    def finish(self) -> Trace:
        notes = [
            "the nodes of the cluster are not recorded; pods arrive when their owner was applied, not when they were created",
            *(f"{count} {kind} not read: what pods it has is not known" for kind, count in sorted(self._skipped.items())),
        ]
        return self._held.builder.finish(list(self._held.nodes.values()), notes)


def _parts(data: bytes | mmap, path: str) -> tuple[Sequence[msgspec.Raw], msgspec.Raw]:
    """Return the events, not decoded yet, and the recorded runs of pods."""
    try:
        try:
            whole = msgspec.msgpack.decode(data, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError:
            listed = msgspec.msgpack.decode(data, type=list[msgspec.Raw])
            whole = dict(zip(("config", "events", "index", "pod_lifecycles"), listed, strict=True))
    except (msgspec.MsgspecError, ValueError) as error:
        if isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError):
            raise InputError(f"{path}: this is no MessagePack: {error}") from None
        raise InputError(f"{path}: this is no trace of SimKube: expected version, config, events and index") from None
    try:
        events = msgspec.msgpack.decode(whole.get("events", msgspec.Raw(_NIL)), type=list[msgspec.Raw])
    except msgspec.MsgspecError:
        raise InputError(f"{path}: events: expected a list of events") from None
    return events, whole.get("pod_lifecycles", whole.get("index", msgspec.Raw(_NIL)))


def _decoded(data: msgspec.Raw, path: str) -> Any:
    try:
        return msgspec.msgpack.decode(data, strict=False)
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError) as error:
        raise InputError(f"{path}: this is no MessagePack: {error}") from None


def _in_time(events: Sequence[msgspec.Raw], path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the events in order of time; only one is decoded at a time."""
    times = np.fromiter((_time(_event(event, path), path) for event in events), dtype=np.float64, count=len(events))
    for at in np.argsort(times, kind="stable").tolist():
        yield _event(events[at], path)


def _event(data: msgspec.Raw, path: str) -> Mapping[str, Any]:
    found = _decoded(data, path)
    if not isinstance(found, Mapping):
        raise InputError(f"{path}: events: expected a list of events")
    return found


def _runs_by_owner(recorded: Any) -> dict[str, list[_Run]]:
    """Return the runs of pods by the owner's ``namespace/name``, in order of their starts."""
    found: dict[str, list[_Run]] = {}
    for owner, run in _runs(recorded, ""):
        found.setdefault(owner, []).append(run)
    for runs in found.values():
        runs.sort(key=lambda run: run.start)
    return found


def _runs(value: Any, owner: str) -> Iterator[tuple[str, _Run]]:
    """Yield runs wherever they are below an owner's name: ``{start_ts, end_ts}``, or ``Finished`` or ``Running`` as a key."""
    if isinstance(value, Mapping):
        ends = value.get("Finished") or (value.get("start_ts", value.get("Running")), value.get("end_ts"))
        if isinstance(ends, Sequence) and len(ends) == 2 and isinstance(ends[0], (int, float)):
            start, end = float(ends[0]), ends[1]
            yield owner, _Run(start, max(float(end), start) if isinstance(end, (int, float)) else None)
            return
        for name, part in value.items():
            text = name[-1] if isinstance(name, tuple) and name else name
            named = isinstance(text, str) and "/" in text and not text.startswith(("apps/", "batch/"))
            yield from _runs(part, str(text) if named else owner)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for part in value:
            yield from _runs(part, owner)


def _time(event: Mapping[str, Any], path: str) -> float:
    found = event.get("ts")
    if not isinstance(found, (int, float)):
        raise InputError(f"{path}: events: ts: expected a Unix time, found {str(found)[:40]!r}")
    return float(found)


def _objects(event: Mapping[str, Any], name: str, where: str) -> list[Mapping[str, Any]]:
    found = event.get(name) or []
    if not isinstance(found, Sequence) or not all(isinstance(one, Mapping) for one in found):
        raise InputError(f"{where}: {name}: expected a list of objects")
    return list(found)


def _key(obj: Mapping[str, Any]) -> _Key:
    metadata = obj.get("metadata")
    named: Mapping[str, Any] = metadata if isinstance(metadata, Mapping) else {}
    return str(obj.get("kind")), str(named.get("namespace", "default")), str(named.get("name", ""))


def _fill(owner: _Owner, pods: Sequence[Pod], key: _Key, held: RecordedPods, time_s: float, runs: Sequence[_Run]) -> None:
    """Add or end pods until an owner has as many as it now asks for; recorded runs are used in turn."""
    while len(owner.rows) > len(pods):
        gone, _ = owner.rows.pop()
        held.gone(key[1], gone, time_s)
    for pod in pods[len(owner.rows) :]:
        row = held.see_pod(pod, time_s)
        if runs:
            run = runs[owner.made % len(runs)]
            held.builder.end(row, (run.end or run.start) - run.start)
        owner.rows.append((pod.name, row))
        owner.made += 1


def _delete(obj: Mapping[str, Any], owners: dict[_Key, _Owner], held: RecordedPods, time_s: float) -> None:
    kind, namespace, name = _key(obj)
    owner = owners.pop((kind, namespace, name), None)
    names = [name] if kind == "Pod" else [] if owner is None else [pod for pod, _ in owner.rows]
    for one in names:
        held.gone(namespace, one, time_s)
