"""How many instances changes would add: one more node of each group, 10% more of each resource, or uncordoned nodes.

Each gain is computed in the changed cluster: by the engine if there are few instances, else by arithmetic, which is exact if
the count equals the upper bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from moorage.api.core import Node
from moorage.basis.printable import counted
from moorage.core.engine.facts import Seen
from moorage.framework.changes import Change
from moorage.laboratory.amount_text import with_amount
from moorage.laboratory.budget import BudgetSpentError
from moorage.laboratory.capacity.capacity_bound import Room
from moorage.laboratory.edit.changes import apply
from moorage.laboratory.node_groups import group_nodes
from moorage.laboratory.plan.node_types import add_nodes, like_node
from moorage.report.capacity import CapacityGain, CapacityGroup
from moorage.state.pod_requests import amount

if TYPE_CHECKING:
    from moorage.laboratory.capacity.capacity import CapacityStudy

#: Maximum number of instances to place by the engine to find gains; beyond it, gains come from arithmetic or are left out.
MOST_INSTANCES: Final = 10_000
#: The largest cluster, in nodes, for which the engine computes gains.
MOST_NODES: Final = 1_000
#: Maximum number of groups of which a node is added.
MOST_GROUPS: Final = 12


class GainSearch:
    """Makes changes in a cluster at rest, counts instances, and rolls the changes back."""

    def __init__(self, study: CapacityStudy) -> None:
        self._study, self._cluster, self._budget = study, study.cluster, study.budget

    def find(
        self, groups: Sequence[CapacityGroup], rooms: Sequence[Room], instances: int, units: Sequence[int]
    ) -> tuple[tuple[CapacityGain, ...], str]:
        """Return the gains, and why some are left out."""
        wanted = list(self._changes(groups, rooms))
        bound = rooms[0].bound if len(rooms) == 1 else None
        exact = bound is not None and bound == instances
        cost = (instances * sum(units) + 100) * len(wanted)
        nodes = len(self._cluster.simulation.scheduler.snapshot.table)
        by_engine = cost <= MOST_INSTANCES and nodes <= MOST_NODES
        if not by_engine and not exact:
            return (), f"gains would take {cost} more placements"
        found: list[CapacityGain] = []
        for number, (gain, make) in enumerate(wanted, 1):
            self._study.question.progress(f"gain {number} of {len(wanted)} …")
            if not by_engine and gain.change == "resource":
                more = rooms[0].bound_with(gain.resource, _tenths(self._nodes, gain.resource)) - instances
                found.append(replace(gain, more=more, proof="bound"))
                continue
            try:
                self._budget.check()
                with self._cluster.transaction():
                    make()
                    after = self._study.recount() if by_engine else self._study.bound_now() or 0
            except BudgetSpentError:
                self._budget.leave(f"what {counted(len(wanted) - number + 1, 'more change')} would gain")
                break
            found.append(replace(gain, more=after - instances, proof="run" if by_engine else "bound"))
        return tuple(found), ""

    @property
    def _nodes(self) -> list[Node]:
        return list(self._cluster.simulation.scheduler.snapshot.table.nodes)

    def _changes(
        self, groups: Sequence[CapacityGroup], rooms: Sequence[Room]
    ) -> Iterator[tuple[CapacityGain, Callable[[], None]]]:
        nodes = self._nodes
        if not nodes:
            return
        taken = {node.name for node in nodes}
        for group in group_nodes(nodes)[:MOST_GROUPS]:
            pattern = next((node for node in group.nodes if not node.spec.unschedulable), group.nodes[0])
            name = next(free for free in (f"{pattern.name}-new", f"{pattern.name}-new-1") if free not in taken)
            fresh = like_node(pattern, name)
            yield CapacityGain("node", 0, group=group.name, nodes=(pattern.name,)), partial(self._add, fresh)
        for resource in dict.fromkeys(name for room in rooms for name, need in room.needs.items() if need and name != "pods"):
            yield CapacityGain("resource", 0, resource=resource), partial(self._enlarge, resource)
        for held in groups:
            cordoned = [node for node in nodes if node.name in held.nodes and node.spec.unschedulable]
            if cordoned and not held.eligible:
                names = tuple(node.name for node in cordoned)
                gain = CapacityGain("uncordon", 0, group=held.group, nodes=names)
                yield gain, partial(self._uncordon, cordoned)

    def _add(self, node: Node) -> None:
        add_nodes(self._cluster.simulation, [node], self._study.policies)

    def _enlarge(self, resource: str) -> None:
        """Give every node 10% more of a resource, rounded down."""
        nodes = self._nodes
        more = _tenths(nodes, resource)
        self._cluster.simulation.tell([
            Seen(_with(node, resource, amount(resource, node.status.allocatable[resource]) + extra))
            for node, extra in zip(nodes, more, strict=True) if extra
        ])  # fmt: skip

    def _uncordon(self, nodes: Sequence[Node]) -> None:
        changed = [apply([node], Change("node", "uncordon", f"node/{node.name}"))[0] for node in nodes]
        self._cluster.simulation.tell([Seen(node) for node in changed])


def _tenths(nodes: Sequence[Node], resource: str) -> list[int]:
    return [amount(resource, node.status.allocatable.get(resource, 0)) // 10 for node in nodes]


def _with(node: Node, resource: str, count: int) -> Node:
    return replace(node, status=replace(node.status, allocatable=with_amount(node.status.allocatable, resource, count)))
