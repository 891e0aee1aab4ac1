"""Nodes that could be added to a cluster, one more of each group, and what refuses a pod even on an empty one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import is_
from typing import Any, Final

from moorage.api.core import Node
from moorage.framework.change_values import taint_text
from moorage.framework.changes import Change
from moorage.framework.profile import Profile, Step
from moorage.framework.reuse import Scope
from moorage.laboratory.changes import apply
from moorage.state.cluster import ClusterState, Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable

__all__ = ["FurtherNodes", "NodeKinds", "judging_nodes_alone"]

_HOST: Final = "kubernetes.io/hostname"
_CORDON: Final = "node.kubernetes.io/unschedulable"
#: Maximum number of groups for which one more node is offered.
_MOST_GROUPS: Final = 32


class NodeKinds:
    """The groups of a cluster's nodes: nodes of a group differ in their names alone. Kept until nodes change."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._table = snapshot.table
        #: For each row: the node, its name and the number of its kind.
        self._rows: list[tuple[Node, str, int]] = []
        self._nodes: list[Node] = []
        self._numbers: dict[Any, int] = {}
        self._first: list[str] = []
        self._further: FurtherNodes | None = None

    def further(self) -> FurtherNodes:
        """Return one more node of each group."""
        names = self.first_names()
        if self._further is None:
            self._further = FurtherNodes(self._table, names)
        return self._further

    def first_names(self) -> list[str]:
        """Return the first name of each group, sorted."""
        nodes, rows = self._table.nodes, self._rows
        if len(nodes) == len(self._nodes) and all(map(is_, nodes, self._nodes)):
            return self._first
        del rows[len(nodes) :]
        rows += [self._row_of(node) for node in nodes[len(rows) :]]
        for at, (node, held) in enumerate(zip(nodes, rows, strict=True)):
            if node is not held[0]:
                rows[at] = self._row_of(node)
        first: dict[int, str] = {}
        for _, name, kind in rows:
            known = first.get(kind)
            if known is None or name < known:
                first[kind] = name
        self._nodes, self._first, self._further = nodes.copy(), sorted(first.values()), None
        return self._first

    def _row_of(self, node: Node) -> tuple[Node, str, int]:
        return node, node.name, self._numbers.setdefault(_kind_of(node), len(self._numbers))


def _kind_of(node: Node) -> Any:
    labels = {**node.labels, _HOST: ""}
    taints = [taint_text(one) for one in node.spec.taints if one.key != _CORDON]
    return tuple(labels.items()), tuple(taints), tuple(node.status.allocatable.items())


class FurtherNodes:
    """One more node like each of these, except where its name is in use.

    ``nodes``        the change that adds each node, and the node
    ``beside``       a cluster of these nodes, in order, without pods
    ``is_complete``  False if there are so many that some are left out
    """

    def __init__(self, table: NodeTable, like: Sequence[str]) -> None:
        self.is_complete = len(like) <= _MOST_GROUPS
        self.nodes: list[tuple[Change, Node]] = []
        state = ClusterState()
        for name in like[:_MOST_GROUPS]:
            change = Change("cluster", "add-node", f"node/{name}-new", "", None, f"like {name}")
            if f"{name}-new" not in table.row_of:
                *_, node = apply([table.nodes[table.row_of[name]]], change)
                assert isinstance(node, Node)
                self.nodes.append((change, node))
                state.set_node(node)
        self.beside = state.snapshot


def judging_nodes_alone(profile: Profile, pod: PodInfo) -> Profile:
    """Return a profile with only the plugins of a profile whose verdict on a node does not depend on other nodes or pods."""
    alone = {step.name for step in profile.at("filter") if _judges_alone(step, pod)}
    steps: Mapping[str, tuple[Step, ...]] = {
        point: tuple(step for step in profile.at(point) if step.name in alone) for point in ("preFilter", "filter")
    }
    return replace(profile, steps={**profile.steps, **steps})


def _judges_alone(step: Step, pod: PodInfo) -> bool:
    reuse = step.reuse
    return (
        reuse.scope is Scope.NODE
        and reuse.other_nodes is None
        and reuse.signature is not None
        and reuse.signature(pod) is not None
    )
