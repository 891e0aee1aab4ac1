"""SimKube: an exported trace (``.sktrace``) in MessagePack, version 1 (a list), 2 or 3 (maps).

``events`` have ts (Unix seconds), applied_objs and deleted_objs: owners of pods such as Deployments, and bare pods. Owners
become the pods that their controllers would create, when they were applied; a scaled owner gains or loses pods. How long pods
ran is in ``pod_lifecycles`` (versions 1 and 2) or in ``index`` (3); the lifetimes of an owner are used in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from moorage.errors import InputError
from moorage.simulator.trace import Trace
from moorage.traces.owned_pods import pods_of_owner
from moorage.traces.recorded_pods import RecordedPods
from moorage.traces.streams import open_bytes

__all__ = ["read_simkube"]

#: The largest file, in bytes: it is read as a whole.
_MOST_BYTES: Final = 2 << 30
_Key = tuple[str, str, str]


@dataclass
class _Owner:
    """The pods of an owner that are there now, oldest first, and how many it had."""

    rows: list[tuple[str, int]] = field(default_factory=list)
    made: int = 0


def read_simkube(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace. SimKube records no nodes: give nodes of your own.

    Raises  InputError
    """
    del nodes
    events, lifetimes = _parts(_decoded(pods), pods)
    held, owners = RecordedPods(), dict[_Key, _Owner]()
    origin = min((_time(event, pods) for event in events), default=0.0)
    skipped: dict[str, int] = {}
    for number, event in enumerate(sorted(events, key=lambda one: _time(one, pods))):
        time_s, where = _time(event, pods) - origin, f"{pods}: event {number}"
        for obj in _objects(event, "applied_objs", where):
            if obj.get("kind") in {"Pod", "Node"}:
                held.see(obj, where, time_s)
            elif not _apply(obj, owners.setdefault(_key(obj), _Owner()), held, time_s, lifetimes, where):
                skipped[str(obj.get("kind"))] = skipped.get(str(obj.get("kind")), 0) + 1
        for obj in _objects(event, "deleted_objs", where):
            _delete(obj, owners, held, time_s)
    notes = ["the nodes of the cluster are not recorded; pods arrive when their owner was applied, not when they were created"]
    notes += [f"{count} {kind} not read: what pods it has is not known" for kind, count in sorted(skipped.items())]
    return held.builder.finish(list(held.nodes.values()), notes)


def _decoded(path: str) -> Any:
    with open_bytes(path) as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise InputError(f"{path}: larger than {_MOST_BYTES >> 30} GiB")
    try:
        return msgspec.msgpack.decode(data, strict=False)
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError) as error:
        raise InputError(f"{path}: this is no MessagePack: {error}") from None


def _parts(whole: Any, path: str) -> tuple[list[Mapping[str, Any]], Mapping[str, list[float]]]:
    """Return the events, and the lifetimes of pods by the owner's ``namespace/name``."""
    if isinstance(whole, Mapping):
        events, recorded = whole.get("events"), whole.get("pod_lifecycles", whole.get("index"))
    elif isinstance(whole, Sequence) and len(whole) == 4:
        events, recorded = whole[1], whole[3]
    else:
        raise InputError(f"{path}: this is no trace of SimKube: expected version, config, events and index")
    if not isinstance(events, Sequence) or not all(isinstance(event, Mapping) for event in events):
        raise InputError(f"{path}: events: expected a list of events")
    found: dict[str, list[float]] = {}
    for owner, seconds in _lifetimes(recorded, ""):
        found.setdefault(owner, []).append(seconds)
    return list(events), found


def _lifetimes(value: Any, owner: str) -> Iterator[tuple[str, float]]:
    """Yield lifetimes wherever they are below an owner's name: ``{start_ts, end_ts}`` or ``{"Finished": [start, end]}``."""
    if isinstance(value, Mapping):
        ends = value.get("Finished") or (value.get("start_ts"), value.get("end_ts"))
        if isinstance(ends, Sequence) and len(ends) == 2 and all(isinstance(one, (int, float)) for one in ends):
            yield owner, max(float(ends[1]) - float(ends[0]), 0.0)
            return
        for name, part in value.items():
            text = name[-1] if isinstance(name, tuple) and name else name
            named = isinstance(text, str) and "/" in text and not text.startswith(("apps/", "batch/"))
            yield from _lifetimes(part, str(text) if named else owner)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for part in value:
            yield from _lifetimes(part, owner)


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


def _apply(
    obj: Mapping[str, Any], owner: _Owner, held: RecordedPods, time_s: float, lifetimes: Mapping[str, list[float]], where: str
) -> bool:
    """Let an owner have the pods that it asks for now; return False for a kind without known pods."""
    pods = pods_of_owner(obj, where)
    if pods is None:
        return False
    _, namespace, name = _key(obj)
    known = lifetimes.get(f"{namespace}/{name}", [])
    while len(owner.rows) > len(pods):
        gone, _ = owner.rows.pop()
        held.gone(namespace, gone, time_s)
    for pod in pods[len(owner.rows) :]:
        row = held.see_pod(pod, time_s)
        if known:
            held.lasts(row, known[owner.made % len(known)])
        owner.rows.append((pod.name, row))
        owner.made += 1
    return True


def _delete(obj: Mapping[str, Any], owners: dict[_Key, _Owner], held: RecordedPods, time_s: float) -> None:
    kind, namespace, name = _key(obj)
    owner = owners.pop((kind, namespace, name), None)
    names = [name] if kind == "Pod" else [] if owner is None else [pod for pod, _ in owner.rows]
    for one in names:
        held.gone(namespace, one, time_s)
