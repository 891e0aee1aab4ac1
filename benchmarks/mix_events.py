"""A workload of the mix: what exists at the start, and what happens then, as files that any scheduler can play.

``start.json``    a List of what exists when the measurement begins: nodes, running pods, services and the like
``later.json``    a List of the pods that are created later, by ``namespace/name``
``events.jsonl``  what happens, by time in seconds, one event per line. ``do`` is one of:

    create   ``pods``: these pods of ``later.json`` are created
    delete   ``pods``: these pods are deleted, wherever they are; a pod that is gone already is passed over
    update   ``node``: this manifest replaces the node of its name
    evict    ``on``: the pods of this node are deleted, and a copy of each is created, named as the pod with ``r`` appended
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.kinds import KIND_OF_TYPE
from moorage.api.meta import Object

__all__ = ["Manifest", "Mix", "arrivals", "creations", "manifest", "write_mix"]

Manifest = Mapping[str, Any]


@dataclass(slots=True)
class Mix:
    """A workload. ``events`` are in order; see the module for their forms."""

    start: list[Manifest]
    later: list[Manifest]
    events: list[Manifest] = field(default_factory=list)


def manifest(obj: Object) -> Manifest:
    """Return an object as it is written in a file."""
    kind = KIND_OF_TYPE[type(obj)]
    return {"apiVersion": kind.api_version, "kind": kind.name, **msgspec.to_builtins(obj, builtin_types=())}


def key_of(pod: Manifest) -> str:
    """Return ``namespace/name``."""
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"


def creations(pods: Sequence[Manifest], at: float = 0.0) -> Manifest:
    """Return the event that creates pods together."""
    return {"at": at, "do": "create", "pods": [key_of(pod) for pod in pods]}


def arrivals(timed: Iterable[tuple[float, Manifest, float | None]]) -> list[Manifest]:
    """Return the events of pods: the time, the pod, and after how many seconds it is deleted; None: it stays."""
    happens: list[tuple[float, int, str, str]] = []
    for at, pod, lasts in timed:
        happens.append((at, 1, "create", key_of(pod)))
        if lasts is not None:
            happens.append((at + max(lasts, 1e-3), 0, "delete", key_of(pod)))
    happens.sort(key=lambda one: one[:2])
    return [
        {"at": at, "do": do, "pods": [key for *_, key in group]}
        for (at, _, do), group in groupby(happens, key=lambda one: one[:3])
    ]


def write_mix(mix: Mix, folder: Path) -> None:
    """Write a workload to a folder, which is created."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, items in (("start.json", mix.start), ("later.json", mix.later)):
        (folder / name).write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))
    with (folder / "events.jsonl").open("wb") as file:
        file.writelines(msgspec.json.encode(event) + b"\n" for event in mix.events)
