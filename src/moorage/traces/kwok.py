"""KWOK: a cluster that kwokctl exported (``kwokctl snapshot export``), or recorded with its changes (``snapshot record``).

A recording is a stream of YAML documents: the objects of the start, then a ResourcePatch for each change, with
durationNanosecond (since the start), method (create, patch or delete), target, and template, which is the object or the patch.
Nodes, pods and workloads are read. A pod runs until it is deleted, or has succeeded or failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moorage.api.core import Pod
from moorage.errors import InputError
from moorage.simulator.trace import Trace
from moorage.traces.documents import streamed_documents
from moorage.traces.owned_pods import pods_of_owner
from moorage.traces.recorded_pods import RecordedPods

__all__ = ["read_kwok"]

_PATCH: Final = "ResourcePatch"
_METHODS: Final = frozenset({"create", "patch", "delete"})
_ENDED: Final = ("Succeeded", "Failed")


def read_kwok(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace. Without recorded changes, all pods arrive at the start.

    Raises  InputError
    """
    del nodes
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
