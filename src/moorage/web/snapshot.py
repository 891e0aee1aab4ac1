"""The snapshot: all nodes and pods as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from moorage.web.mirror import Mirror, View, causes_of
from moorage.web.rows import NodeRow, PodRow
from moorage.web.stranded import stranded_shares

__all__ = ["Header", "SnapshotRows", "snapshot_document"]

_BYTES: Final = ("memory", "ephemeral-storage", "hugepages-")
_FIRST: Final = ("cpu", "memory", "pods")
_DENSE: Final = ("cpu", "memory")


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a snapshot that are not about nodes or pods.

    ``live``      whether changes will follow
    ``writable``  whether the interface may change the cluster
    ``asks``      whether questions are answered
    """

    release: str
    id: str
    at: str
    live: bool
    writable: bool
    user: str
    asks: bool = True
    notes: tuple[str, ...] = ()


class SnapshotRows(msgspec.Struct, frozen=True):
    """The rows of a mirror at one moment."""

    nodes: Mapping[str, NodeRow]
    pods: Mapping[str, PodRow]
    causes: Mapping[tuple[str, str], int]
    groups: Mapping[str, str]
    used: Mapping[str, Mapping[str, int]]
    shapes: Sequence[Any]

    @classmethod
    def of(cls, mirror: Mirror) -> SnapshotRows:
        """Return the rows of a mirror, with copies of the dicts that it changes in place."""
        used = {name: dict(held) for name, held in mirror.used.items()}
        return cls(dict(mirror.nodes), dict(mirror.pods), dict(mirror.causes), mirror.groups, used, mirror.shapes)


def snapshot_document(rows: SnapshotRows, header: Header, view: View) -> dict[str, Any]:
    """Return the document of a snapshot, with the pods that ``view`` shows."""
    nodes = list(rows.nodes.values())
    pods = list(rows.pods.values()) if view.namespaces is None else [one for one in rows.pods.values() if view.shows(one.key)]
    resources = _resources(nodes)
    return {
        "apiVersion": "moorage.dev/v1",
        "kind": "Snapshot",
        **msgspec.structs.asdict(header),
        "resources": resources,
        "unit": {name: _unit(name) for name in resources},
        "nodes": _node_columns(nodes, rows, resources),
        "pods": _pod_columns(pods, {row.name: at for at, row in enumerate(nodes)}),
        "causes": causes_of(rows.causes, view),
    }


def _resources(nodes: Sequence[NodeRow]) -> list[str]:
    offered = {name for row in nodes for name in row.allocatable} | set(_FIRST)
    return [*_FIRST, *sorted(offered - set(_FIRST))]


def _unit(name: str) -> str:
    return "milli" if name == "cpu" else "bytes" if name.startswith(_BYTES) else "count"


def _node_columns(nodes: Sequence[NodeRow], rows: SnapshotRows, resources: Sequence[str]) -> dict[str, Any]:
    used = [rows.used.get(row.name, {}) for row in nodes]
    return {
        "name": [row.name for row in nodes],
        "zone": [row.zone for row in nodes],
        "labels": [row.labels for row in nodes],
        "group": [rows.groups.get(row.name, "") for row in nodes],
        "ready": [row.ready for row in nodes],
        "cordoned": [row.cordoned for row in nodes],
        "taints": [row.taints for row in nodes],
        "allocatable": {name: [row.allocatable.get(name, 0) for row in nodes] for name in resources},
        "requested": {name: [held.get(name, 0) for held in used] for name in resources},
        "stranded": stranded_shares(rows.shapes, [row.allocatable for row in nodes], used),
    }


def _pod_columns(pods: Sequence[PodRow], index: Mapping[str, int]) -> dict[str, Any]:
    return {
        "key": [row.key for row in pods],
        "owner": [row.owner for row in pods],
        "node": [-1 if row.node is None else index.get(row.node, -1) for row in pods],
        "state": [row.state for row in pods],
        "priority": [row.priority for row in pods],
        "requests": {**{name: [row.requests.get(name, 0) for row in pods] for name in _DENSE}, **_sparse(pods)},
        "cause": [row.cause for row in pods],
        "arrived": [row.arrived for row in pods],
        "attempts": [row.attempts for row in pods],
    }


def _sparse(pods: Sequence[PodRow]) -> dict[str, dict[str, list[int]]]:
    """Return, for each resource other than cpu and memory, the indices and the requests of the few pods that request it."""
    found: dict[str, dict[str, list[int]]] = {}
    for at, row in enumerate(pods):
        if len(row.requests) <= len(_DENSE) and all(name in _DENSE for name in row.requests):
            continue
        for name, amount in row.requests.items():
            if name not in _DENSE and amount:
                column = found.setdefault(name, {"index": [], "value": []})
                column["index"].append(at)
                column["value"].append(amount)
    return found
