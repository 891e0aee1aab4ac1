"""Clusters as KWOK (``kwokctl snapshot export`` or ``record``) and kube-scheduler-simulator export them.

A recording is a stream of YAML documents: the objects of the start, then a ResourcePatch for each change, with
durationNanosecond (since the start), method (create, patch or delete), target, and template, which is the object or the patch.
Nodes, pods and workloads are read. A pod runs until it is deleted, or has succeeded or failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final

from moorage.api.core import Pod
from moorage.api.reading.manifests import Document, read_documents
from moorage.errors import InputError
from moorage.simulator.trace import Trace
from moorage.simulator.traces.recorded_pods import RecordedPods, pods_of_owner
from moorage.simulator.traces.streams import json_lines, open_bytes

# Read files of YAML documents in parts that are cut between documents. JSON is read as a whole.

#: The smallest part in bytes, so that few parts are parsed.
_PART: Final = 256 << 10
#: The largest part, in bytes: one document, or JSON.
_MOST_BYTES: Final = 1 << 30
#: A document begins with such a line; within a document no line does, as block scalars are indented.
_BEGIN: Final = b"---"
_SPACES: Final = b" \t\r\n"


def streamed_documents(path: str) -> Iterator[Document]:
    """Yield the documents of a file with the lines that they start on.

    Raises  InputError
    """
    with open_bytes(path) as file:
        for part, before in _parts(file, path):
            try:
                for document in read_documents(part, path):
                    yield Document(document.data, document.line + before)
            except InputError as error:
                raise _later(error, path, before) from None


def _parts(file: BinaryIO, path: str) -> Iterator[tuple[bytes, int]]:
    """Yield parts of a file, each with the number of lines before it."""
    held: list[bytes] = []
    size = lines = before = 0
    is_json: bool | None = None
    while line := file.readline(_MOST_BYTES + 1):
        if is_json is None and line.strip(_SPACES):
            is_json = line.lstrip(_SPACES)[:1] in {b"{", b"["}
        if size >= _PART and not is_json and line.startswith(_BEGIN):
            yield b"".join(held), before
            held, size, before = [], 0, lines
        held.append(line)
        size += len(line)
        lines += 1
        if size > _MOST_BYTES:
            raise InputError(f"{path}: a document is larger than {_MOST_BYTES >> 30} GiB")
    yield b"".join(held), before


def _later(error: InputError, path: str, before: int) -> InputError:
    """Return an error in a part with the line number in the whole file."""
    text = str(error)
    found = re.match(re.escape(path) + r":(\d+)", text)
    return error if found is None or not before else InputError(f"{path}:{int(found[1]) + before}{text[found.end() :]}")


_PATCH: Final = "ResourcePatch"
_METHODS: Final = frozenset({"create", "patch", "delete"})
_ENDED: Final = ("Succeeded", "Failed")


def read_kwok(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace. Without recorded changes, all pods arrive at the start.

    Raises  InputError
    """
    held, owners, patches = RecordedPods(), [], 0
    for document in streamed_documents(pods):
        where = f"{pods}:{document.line}"
        for obj in _items(document.data, where):
            if obj.get("kind") == _PATCH:
                patches += 1
                _change(obj, held, where)
            elif obj.get("kind") in {"Pod", "Node"}:
                held.see(obj, where, 0.0, first=True)
            else:
                owners.append((obj, where))
    if not patches and not len(held.builder):
        _from_owners(owners, held)
    notes = ["nodes are there from the start to the end, as they were last; pods that were bound arrive without a node"]
    if not patches:
        notes.append("a snapshot without changes has no times: all pods arrive at the start and stay")
    return held.builder.finish(list(held.nodes.values()), notes)


def _items(data: Any, where: str) -> list[Mapping[str, Any]]:
    found = data.get("items") if isinstance(data, Mapping) and str(data.get("kind", "")).endswith("List") else [data]
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise InputError(f"{where}: expected Kubernetes objects")
    return found


def _change(patch: Mapping[str, Any], held: RecordedPods, where: str) -> None:
    """Record a change of a pod or a node; changes of other kinds are ignored."""
    method, nano, target = patch.get("method"), patch.get("durationNanosecond"), patch.get("target")
    if method not in _METHODS or not isinstance(nano, int) or not isinstance(target, Mapping):
        raise InputError(f"{where}: expected a ResourcePatch with method, target and durationNanosecond")
    resource = patch.get("resource")
    kind = {"pods": "Pod", "nodes": "Node"}.get(str(resource.get("resource"))) if isinstance(resource, Mapping) else None
    if kind is None:
        return
    time_s, template = nano / 1e9, patch.get("template")
    name, namespace = str(target.get("name", "")), str(target.get("namespace", "default"))
    changed: Mapping[str, Any] = template if isinstance(template, Mapping) else {}
    if method == "create":
        metadata = {"name": name, "namespace": namespace, **(changed.get("metadata") or {})}
        held.see({**changed, "kind": kind, "apiVersion": "v1", "metadata": metadata}, where, time_s)
    elif kind == "Pod" and (method == "delete" or _phase(changed) in _ENDED):
        held.gone(namespace, name, time_s)


def _phase(changed: Mapping[str, Any]) -> str:
    status = changed.get("status")
    return str(status.get("phase", "")) if isinstance(status, Mapping) else ""


def _from_owners(owners: list[tuple[Mapping[str, Any], str]], held: RecordedPods) -> None:
    """Create the pods of workloads, for a snapshot that has no pods."""
    for obj, where in owners:
        pods: list[Pod] = pods_of_owner(obj, where) or []
        for pod in pods:
            held.see_pod(pod, 0.0)


# -- kube scheduler simulator ------------------------------------------------------------------------------------------
# kube-scheduler-simulator: the recording of a cluster as JSON Lines, one change of an object a line.
#
# Each line has time (RFC 3339), event (Add, Update or Delete) and resource, which is the object, or only its name if it was
# deleted. Nodes and pods are read. A pod runs until it is deleted, or has succeeded or failed.

_EVENTS: Final = frozenset({"Add", "Update", "Delete"})
_READ: Final = frozenset({"Node", "Pod"})
#: Go writes up to nine digits of a second; Python reads six.
_FRACTION: Final = re.compile(r"(\.\d{6})\d+")


def read_kube_scheduler_simulator(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace.

    Raises  InputError
    """
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
