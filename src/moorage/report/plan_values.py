"""The values of a plan: which nodes to buy, or which to remove, and how good the answer is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from moorage.report.answer import Answer, plain

__all__ = ["BlockingPod", "LeftPods", "MovedPod", "NodePlanValues", "NodeSet", "UnplaceablePods", "WhyNot"]


class WhyNot(Struct, frozen=True, rename="camel"):
    """Why pods fit on no node of a type."""

    type: str
    plugin: str
    reason: str


class UnplaceablePods(Struct, frozen=True, rename="camel"):
    """Pods of one shape that fit on no node, existing or new."""

    pods: tuple[str, ...]
    requests: Mapping[str, int]
    why: tuple[WhyNot, ...]


class LeftPods(Struct, frozen=True, rename="camel"):
    """Pods that stay pending with the nodes of a partial plan: why more nodes do not help, and the scheduler's message."""

    pods: tuple[str, ...]
    why: tuple[str, ...]
    message: str


class NodeSet(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A set of new nodes by type; ``pending``: how many pods stay pending with it, by the order in which they are placed."""

    cost: float
    nodes: Mapping[str, int]
    pending: Mapping[str, int] = {}


class MovedPod(Struct, frozen=True, rename="camel"):
    """A pod that moves because its node is removed. ``pod`` is the name of the old one, ``to`` the node of its replacement."""

    pod: str
    source: str
    to: str


class BlockingPod(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Why a node is not removed: the pod that prevents it, and the rule or the plugin."""

    pod: str = ""
    rule: str = ""
    plugin: str = ""
    text: str = ""


class NodePlanValues(Answer, frozen=True, kw_only=True):
    """The values of the answer.

    ``nodes``        how many of each type to buy; ``per_zone`` the same by zone, for types with zones
    ``lower_bound``  no set of nodes costs less, whatever the scheduler; ``bound_kind`` says how it was computed
    ``packing``      the cheapest packing by resources alone
    ``verified``     the cost of a verified set by order of placement: the real order, the largest and the smallest first
    ``sets``         the sets of nodes that were verified
    ``gap``          the difference between the verified cost and the bound, as a share of the bound
    ``status``       optimal (no cheaper set works), gap, partial (some pods stay pending with any number of these nodes),
                     impossible (all do) or undecided (no set for all of them was found in time)
    ``left``         the pods that stay pending with the nodes of a partial plan
    ``preempted``    running pods that are evicted for pending ones and that no controller replaces
    ``used``         requested and allocatable amounts of the new nodes, by resource
    ``remove``       existing nodes that can be removed; ``blocked`` says why others cannot
    ``moved``        the pods of removed nodes and their new nodes; ``lost``: those that no controller replaces
    """

    KIND = "NodePlan"

    nodes: Mapping[str, int] = {}
    per_zone: Mapping[str, Mapping[str, int]] = {}
    cost: float | None = None
    lower_bound: float | None = None
    bound_kind: str = ""
    packing: NodeSet | None = None
    packing_proven: bool = False
    verified: Mapping[str, float | None] = {}
    sets: Mapping[str, NodeSet] = {}
    gap: float | None = None
    status: str = "undecided"
    unplaceable: tuple[UnplaceablePods, ...] = ()
    used: Mapping[str, tuple[int, int]] = {}
    preempted: tuple[str, ...] = ()
    unit: str = ""
    priced: bool = True
    pods: int = 0
    left: tuple[LeftPods, ...] = ()
    remove: tuple[str, ...] = ()
    moved: tuple[MovedPod, ...] = ()
    lost: tuple[str, ...] = ()
    blocked: Mapping[str, tuple[BlockingPod, ...]] = {}
    saved: float | None = None
    consolidates: bool = False

    @property
    def staying(self) -> int:
        """How many of the pods stay pending."""
        return sum([len(one.pods) for one in self.unplaceable]) + sum([len(one.pods) for one in self.left])

    @property
    def holds(self) -> bool | None:
        """Whether there is a set of nodes with which all pods are placed; for a consolidation, whether a node can go."""
        if self.consolidates:
            return True if self.remove else False if self.stopped is None else None
        return {"impossible": False, "partial": False, "undecided": None}.get(self.status, True)

    def _answer(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "nodes": dict(self.nodes),
            "cost": self.cost,
            "lowerBound": self.lower_bound,
            "verified": dict(self.verified),
            "gap": self.gap,
            "status": self.status,
            "remove": list(self.remove),
            "moved": plain(self.moved),
            "blocked": plain(self.blocked),
        }
        if self.consolidates:
            return {**found, "saved": self.saved, "lost": list(self.lost)}
        return {
            **found,
            "perZone": plain(self.per_zone),
            "boundKind": self.bound_kind,
            **({} if self.packing is None else {"packing": {**plain(self.packing), "proven": self.packing_proven}}),
            "sets": plain(self.sets),
            "unplaceable": plain(self.unplaceable),
            "used": {name: {"requested": used, "allocatable": there} for name, (used, there) in self.used.items()},
            "pods": self.pods,
            "left": plain(self.left),
            "preempted": list(self.preempted),
        }
