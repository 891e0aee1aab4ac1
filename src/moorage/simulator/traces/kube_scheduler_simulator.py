"""kube-scheduler-simulator: the recording of a cluster as JSON Lines, one change of an object a line.

Each line has time (RFC 3339), event (Add, Update or Delete) and resource, which is the object, or only its name if it was
deleted. Nodes and pods are read. A pod runs until it is deleted, or has succeeded or failed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from moorage.errors import InputError
from moorage.simulator.trace import Trace
from moorage.simulator.traces.recorded_pods import RecordedPods
from moorage.simulator.traces.streams import json_lines

__all__ = ["read_kube_scheduler_simulator", "seconds_of"]

_EVENTS: Final = frozenset({"Add", "Update", "Delete"})
_READ: Final = frozenset({"Node", "Pod"})
#: Go writes up to nine digits of a second; Python reads six.
_FRACTION: Final = re.compile(r"(\.\d{6})\d+")


def read_kube_scheduler_simulator(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace.

    Raises  InputError
    """
    del nodes
    held, origin, others = RecordedPods(), None, 0
    for where, record in json_lines(pods):
        event, resource = record.get("event"), record.get("resource")
        if event not in _EVENTS or not isinstance(resource, Mapping):
            raise InputError(f"{where}: expected time, event (Add, Update or Delete) and resource")
        time_s = seconds_of(record.get("time"), where)
        origin = time_s if origin is None else origin
        if resource.get("kind") not in _READ:
            others += 1
        elif event != "Delete":
            held.see(resource, where, time_s - origin, first=time_s == origin)
        elif resource["kind"] == "Pod":
            metadata = resource.get("metadata")
            named: Mapping[str, Any] = metadata if isinstance(metadata, Mapping) else {}
            held.gone(str(named.get("namespace", "")), str(named.get("name", "")), time_s - origin)
    notes = ["nodes are there from the start to the end, as they were last; pods that were bound arrive without a node"]
    if others:
        notes.append(f"{others} changes of other objects not read")
    return held.builder.finish(list(held.nodes.values()), notes)


def seconds_of(text: object, where: str) -> float:
    """Return a time in RFC 3339 as seconds.

    Raises  InputError
    """
    try:
        found = datetime.fromisoformat(_FRACTION.sub(r"\1", str(text)))
    except ValueError:
        raise InputError(f"{where}: time: expected a time such as 2026-01-02T03:04:05Z, found {str(text)[:40]!r}") from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
