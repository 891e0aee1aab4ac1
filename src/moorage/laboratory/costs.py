"""The costs of changes: a table of factors, which a team can change.

A change costs its effort, who must act, how it is undone, and what it disturbs: pods that move or are preempted, and
disruptions that budgets count. A node costs its price. Numeric changes cost more the further the number moves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replace_costs
from math import log2
from operator import truediv
from typing import Any, Final

from msgspec.structs import replace

from moorage.api.core import Node, Pod
from moorage.api.pod_requests import amount
from moorage.api.reading.manifests import read_first_yaml
from moorage.basis import table_of
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.change.corrections import closest
from moorage.laboratory.plan.node_types import NodeType, nodes_by_volumes, nodes_to_buy
from moorage.laboratory.surroundings import Surroundings

#: What changes cost, in which order people make them, and which are left out.
CHANGES: Final[Mapping[str, Any]] = table_of("moorage.laboratory.change", "changes.toml")
_EFFORTS: Final[Mapping[str, Mapping[str, float]]] = CHANGES["efforts"]
#: Change → how it is undone.
UNDONE: Final = {verb: how for how, verbs in _EFFORTS.items() for verb in verbs}
#: Name in a file of costs → cost.
BASE_COSTS: Final[Mapping[str, float]] = {
    **CHANGES["costs"], **{f"effort.{verb}": cost for verbs in _EFFORTS.values() for verb, cost in verbs.items()},
}  # fmt: skip
#: How many changes keep their cost.
_REMEMBERED: Final = 8192
#: A quarter of a request is this many steps; each half of that is only a quarter of a step more, down to a sixteenth.
_FAR: Final = 3.0
_FARTHEST: Final = 16
#: Changes after which one pod is elsewhere.
_MOVING: Final = frozenset(["evict", "move", "scale"])
#: Taints that the node lifecycle controller, the kubelet or a cloud provider sets for as long as a condition lasts.
_CONDITIONS: Final = frozenset(
    f"node.kubernetes.io/{name}"
    for name in ("not-ready", "unreachable", "memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable")
) | {"node.cloudprovider.kubernetes.io/uninitialized"}


@dataclass(frozen=True, slots=True)
class Costs:
    """A complete table of costs.

    ``types``   the nodes that can be bought, with their prices; without types, one more of each node
    ``prices``  what a node like each of these costs; ``shares``: the same as a share of the dearest one
    ``patterns`` nodes of types that the cluster does not have
    ``usage``   what pods use, by ``namespace/pod``, in the scheduler's units
    """

    table: Mapping[str, float] = field(default_factory=lambda: BASE_COSTS)
    types: tuple[NodeType, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    patterns: tuple[Node, ...] = ()
    usage: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    _known: dict[Change, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def with_nodes(self, around: Surroundings) -> Costs:
        """Return costs with the prices of the types; without types, nodes to add differ by their sizes.

        Raises  InputError for a type like a node that does not exist
        """
        if self.shares:
            return self
        nodes = [node for node in around.all_of(Node) if isinstance(node, Node)]
        if self.types:
            prices, patterns = nodes_to_buy(self.types, nodes)
            dearest = max(prices.values(), default=0.0) or 1.0
            shares = {name: price / dearest for name, price in prices.items()}
            return replace_costs(self, prices=prices, shares=shares, patterns=tuple(patterns))
        sizes = {node.metadata.name: _sizes(node) for node in nodes}
        most = [max(some) or 1 for some in zip(*sizes.values(), strict=True)] if sizes else []
        return replace_costs(self, shares={name: sum(map(truediv, size, most)) / len(most) for name, size in sizes.items()})

    def with_zones(self, pod: Pod, around: Surroundings) -> Costs:
        """Return costs with one more pattern for each group and each zone in which a volume of the pod is and no node."""
        made = [] if self.types else nodes_by_volumes(pod, around)
        if not made:
            return self
        shares = {node.name: self.shares.get(like, 0.0) for like, node in made}
        return replace_costs(self, shares={**self.shares, **shares}, patterns=tuple(node for _, node in made))

    def price(self, change: Change) -> Change:
        """Return the change with its cost set, and without the constraint for which a plugin offered it."""
        return replace(change, cost=self.cost_of(change), term="")

    def cost_of(self, change: Change) -> float:
        """Return the cost of one change. A verb that is not in the table has the cost that its plugin gave it."""
        cost = self._known.get(change)
        if cost is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            cost = self._known[change] = round(sum(self.parts_of(change).values()), 6)
        return cost

    def parts_of(self, change: Change) -> dict[str, float]:
        """Return what a change costs, by the names of the table."""
        row = self._row(change)
        if row not in UNDONE:
            return {f"effort.{row}": change.cost}
        who = "none" if change.verb == "wait" else "other" if change.verb == "scale" else change.owner
        named = [f"effort.{row}", f"who.{who}", f"undone.{UNDONE[row]}"]
        parts = {name: self.table[name] for name in named}
        if change.verb in _MOVING:
            parts["disturbs.moved"] = self.table["disturbs.moved"]
        return parts | self._steps(change)

    def sum_of(self, changes: Iterable[Change]) -> float:
        """Return the sum of the costs of changes, without what else they disturb."""
        return round(sum(map(self.cost_of, changes)), 6)

    def least_of(self, changes: Collection[Change]) -> float:
        """Return the least cost of changes if pods may move instead of being evicted."""
        whole, saved = self.sum_of(changes), max(0.0, self.table["effort.evict"] - self.table["effort.move"])
        return round(whole - saved * sum(one.verb == "evict" for one in changes), 6) if saved else whole

    @staticmethod
    def _row(change: Change) -> str:
        if change.verb == "wait" and change.path.startswith("job/") and " until " not in change.path:
            return "wait-open"
        is_condition = change.verb == "untaint" and str(change.old).partition("=")[0].partition(":")[0] in _CONDITIONS
        return "untaint-condition" if is_condition else change.verb

    def _steps(self, change: Change) -> dict[str, float]:
        old, new = change.old, change.new
        if change.verb == "add-node":
            return {"price": self.table["price"] * self.shares.get(str(new).removeprefix("like "), 0.0)}
        if not isinstance(old, int) or not isinstance(new, int) or (name := f"steps.{change.verb}") not in self.table:
            return {}
        match change.verb:
            case "request":  # half of it is reasonable; below a quarter, the request was a mistake
                steps = _steps_down(old, new)
            case "allocatable":
                steps = (new - old) / old if old else 1.0
            case _:
                steps = new - old
        return {name: self.table[name] * steps}


def _steps_down(old: int, new: int) -> float:
    """Return the steps from a request to another one; they depend on the share that is left, and on no unit."""
    if new * _FARTHEST < old:  # at most one step more than for a sixteenth
        return _FAR + log2(_FARTHEST / (_FAR + 1)) / 4 + 1 - new * _FARTHEST / old
    steps = old / new - 1 if new else 0.0
    return steps if steps <= _FAR else _FAR + log2((steps + 1) / (_FAR + 1)) / 4


def _sizes(node: Node) -> tuple[int, ...]:
    """Return what makes a node dear: its cpu, its memory, and its other devices."""
    held = {name: amount(name, count) for name, count in node.status.allocatable.items()}
    return held.get("cpu", 0), held.get("memory", 0), sum(count for name, count in held.items() if "/" in name)


def read_costs(text: bytes, where: str) -> Costs:
    """Read a file of costs; what it leaves out keeps its cost.

    Raises  InputError
    """
    return costs_of(read_first_yaml(text, where), where)


def costs_of(given: Any, where: str) -> Costs:
    """Return the costs of a mapping such as ``{who: {node: 2}, effort: {uncordon: 9}}``; an effort may stand alone.

    Raises  InputError
    """
    if not isinstance(given, dict):
        raise InputError(f"{where}: costs are a mapping such as 'effort: {{uncordon: 1}}'")
    flat: dict[str, Any] = {}
    for name, held in given.items():
        flat |= {f"{name}.{inner}": cost for inner, cost in held.items()} if isinstance(held, dict) else {str(name): held}
    found = {name if name in BASE_COSTS else f"effort.{name}": (name, cost) for name, cost in flat.items()}
    for name, (asked, cost) in found.items():
        if name not in BASE_COSTS:
            near = closest(asked, BASE_COSTS)
            known = f"closest is {near}" if near else f"known: {', '.join(BASE_COSTS)}"
            raise InputError(f"{where}: unknown cost {asked!r}; {known}")
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < float("inf"):
            raise InputError(f"{where}: the cost of {asked} must be a number of at least 0, not {cost!r}")
    return Costs({**BASE_COSTS, **{name: float(cost) for name, (_, cost) in found.items()}})
