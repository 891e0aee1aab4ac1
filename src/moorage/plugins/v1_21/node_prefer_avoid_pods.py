"""NodePreferAvoidPods: prefer nodes that do not ask, in an annotation, to be spared the pods of this controller.

The annotation names controllers by kind and UID; only replication controllers and replica sets can be named. An annotation
that cannot be read asks for nothing.

Reads     the controller among the pod's owners; the annotation scheduler.alpha.kubernetes.io/preferAvoidPods of nodes
Scores    0 on nodes that would rather not have the pod, 100 on all others
Source    kube-scheduler 1.21, plugins/nodepreferavoidpods/node_prefer_avoid_pods.go; component-helpers 0.21,
          scheduling/corev1/helpers.go, GetAvoidPodsFromNodeAnnotations
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from moorage.framework.points import Depends, Signature
from moorage.plugins.default_selector import controller_of
from moorage.state.columns import IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable
from moorage.state.view import NodeView

__all__ = ["ANNOTATION", "NodePreferAvoidPods", "avoided"]

ANNOTATION = "scheduler.alpha.kubernetes.io/preferAvoidPods"
_CONTROLLERS = frozenset(["ReplicationController", "ReplicaSet"])

#: Kind and UID of a controller.
Controller = tuple[str, str]


class _Wire(msgspec.Struct, frozen=True, rename="camel"):
    """Base of what the annotation is made of."""


class _Owner(_Wire, frozen=True):
    kind: str = ""
    uid: str = ""


class _Signature(_Wire, frozen=True):
    pod_controller: _Owner | None = None


class _Entry(_Wire, frozen=True):
    pod_signature: _Signature = _Signature()
    eviction_time: datetime | None = None
    reason: str = ""
    message: str = ""


class _AvoidPods(_Wire, frozen=True):
    prefer_avoid_pods: tuple[_Entry, ...] | None = ()


def avoided(annotations: Mapping[str, str]) -> frozenset[Controller]:
    """Return the controllers whose pods a node would rather not have."""
    text = annotations.get(ANNOTATION, "")
    if not text:
        return frozenset()
    try:
        read = msgspec.json.decode(text, type=_AvoidPods)
    except (msgspec.MsgspecError, UnicodeError):
        return frozenset()
    owners = (entry.pod_signature.pod_controller for entry in read.prefer_avoid_pods or ())
    return frozenset((owner.kind, owner.uid) for owner in owners if owner is not None)


@dataclass(slots=True)
class _Kept:
    """Controllers → rows that avoid them, good for as long as ``version`` is the table's count of changed nodes."""

    version: int
    rows: dict[Controller, list[int]] = field(default_factory=dict)


class NodePreferAvoidPods:
    """See the module's description. Annotations are read again when a node comes, goes or changes."""

    name = "NodePreferAvoidPods"
    depends = Depends.NODES

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[NodeTable, _Kept] = WeakKeyDictionary()

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        controller = _controller(pod)
        rows = self._rows(nodes.table).get(controller, ()) if controller is not None else ()
        return np.where(nodes.holding(rows), 0, 100)

    def sign(self, pod: PodInfo) -> Signature:
        return {"replicating controller": _controller(pod)}

    def _rows(self, table: NodeTable) -> dict[Controller, list[int]]:
        kept = self._kept.get(table)
        if kept is None or kept.version != table.changes.nodes:
            kept = self._kept[table] = _Kept(table.changes.nodes)
            for row, node in enumerate(table.nodes):
                for controller in avoided(node.metadata.annotations):
                    kept.rows.setdefault(controller, []).append(row)
        return kept.rows


def _controller(pod: PodInfo) -> Controller | None:
    owner = controller_of(pod)
    return (owner.kind, owner.uid) if owner is not None and owner.kind in _CONTROLLERS else None
