"""The arguments of PlacementGenerate and PlacementScore plugins: the pod group, and sets of nodes to confine it to."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.state.group_trees import GroupNode
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["GroupInfo", "Placement", "Proposal"]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group that is being scheduled, with the pods that this attempt places.

    ``tree`` is the group with those below, since 1.37; only with the gate CompositePodGroup may it be a composite group.
    """

    namespace: str
    name: str
    pods: tuple[PodInfo, ...]
    tree: GroupNode | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A named set of nodes; the name "" stands for all nodes."""

    name: str
    nodes: NodeView


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """The result of trying a group on a placement: each pod that fits there, with its node."""

    placement: Placement
    assigned: tuple[tuple[PodInfo, str], ...]
