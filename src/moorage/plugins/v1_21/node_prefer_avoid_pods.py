"""NodePreferAvoidPods: prefer nodes whose annotation does not ask to avoid the pods of this pod's controller.

The annotation names controllers by kind and UID; only replication controllers and replica sets count. Like Go, the plugin
ignores the case of its field names. An invalid annotation avoids nothing.

Reads     the controller among the pod's owners; the annotation scheduler.alpha.kubernetes.io/preferAvoidPods of nodes
Scores    0 on nodes that avoid the pod, 100 on all others
Source    kube-scheduler 1.21, plugins/nodepreferavoidpods/node_prefer_avoid_pods.go; component-helpers 0.21,
          scheduling/corev1/helpers.go, GetAvoidPodsFromNodeAnnotations
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from moorage.api.reading.json_tree import UNREADABLE
from moorage.framework.points import Reusable, Reuse, Scope, ScorePlugin
from moorage.plugins.spread.spread_counts import controller_of
from moorage.state.table import NodeTable
from moorage.state.view import IntArray, NodeView, PodInfo

ANNOTATION = "scheduler.alpha.kubernetes.io/preferAvoidPods"
_CONTROLLERS = frozenset(["ReplicationController", "ReplicaSet"])

#: Kind and UID of a controller.
Controller = tuple[str, str]


class _Wire(msgspec.Struct, frozen=True):
    """Base of the structs in the annotation, with field names in lower case. Null means absent."""


class _Owner(_Wire, frozen=True):
    kind: str | None = None
    uid: str | None = None
    name: str | None = None
    apiversion: str | None = None
    controller: bool | None = None
    blockownerdeletion: bool | None = None


class _Signature(_Wire, frozen=True):
    podcontroller: _Owner | None = None


class _Entry(_Wire, frozen=True):
    podsignature: _Signature | None = None
    evictiontime: datetime | None = None
    reason: str | None = None
    message: str | None = None


class _AvoidPods(_Wire, frozen=True):
    preferavoidpods: tuple[_Entry | None, ...] | None = None


def avoided(annotations: Mapping[str, str]) -> frozenset[Controller]:
    """Return the controllers whose pods a node's annotation avoids."""
    text = annotations.get(ANNOTATION, "")
    if not text:
        return frozenset()
    try:
        read = msgspec.convert(_in_lower_case(msgspec.json.decode(text)), _AvoidPods | None)
    except UNREADABLE:
        return frozenset()
    entries = (read.preferavoidpods if read is not None else None) or ()
    signatures = (entry.podsignature for entry in entries if entry is not None)
    owners = (signature.podcontroller for signature in signatures if signature is not None)
    return frozenset((owner.kind or "", owner.uid or "") for owner in owners if owner is not None)


def _in_lower_case(tree: Any) -> Any:
    """Return decoded JSON with all field names in lower case; of equal names the last counts."""
    if isinstance(tree, list):
        return [_in_lower_case(one) for one in tree]
    return {name.lower(): _in_lower_case(one) for name, one in tree.items()} if isinstance(tree, dict) else tree


@dataclass(slots=True)
class _AvoidingRows:
    """Controllers → rows that avoid them, valid while ``version`` is the table's count of node changes."""

    version: int
    rows: dict[Controller, list[int]] = field(default_factory=dict)


class NodePreferAvoidPods(ScorePlugin[PodInfo], Reusable):
    """The plugin; see the module docstring. It parses the annotations again when a node is added, deleted or changed."""

    name = "NodePreferAvoidPods"
    reuse = Reuse(
        Scope.NODE,
        signature=lambda pod: {"replicating controller": _controller(pod)},
        signature_reads=(),
        signature_reads_metadata=True,
    )

    def __init__(self) -> None:
        self._cache: WeakKeyDictionary[NodeTable, _AvoidingRows] = WeakKeyDictionary()

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        controller = _controller(pod)
        rows = self._rows(nodes.table).get(controller, ()) if controller is not None else ()
        return np.where(nodes.holding(rows), 0, 100)

    def _rows(self, table: NodeTable) -> dict[Controller, list[int]]:
        cached = self._cache.get(table)
        if cached is None or cached.version != table.changes.nodes:
            cached = self._cache[table] = _AvoidingRows(table.changes.nodes)
            for row, node in enumerate(table.nodes):
                for controller in avoided(node.metadata.annotations):
                    cached.rows.setdefault(controller, []).append(row)
        return cached.rows


def _controller(pod: PodInfo) -> Controller | None:
    owner = controller_of(pod)
    return (owner.kind, owner.uid) if owner is not None and owner.kind in _CONTROLLERS else None
