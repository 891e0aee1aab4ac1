"""The costs of changes: a table of base costs, parts of which a file can replace.

A numeric change costs more the further the number moves. An eviction costs more for each disruption budget that it violates,
and if the pod that replaces the evicted one stays pending.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replace_costs
from operator import truediv
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Node
from moorage.api.reading.manifests import read_first_yaml
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.present import Surroundings
from moorage.state.pod_requests import amount

__all__ = ["BASE_COSTS", "Costs", "read_costs"]

#: Verb → base cost.
BASE_COSTS: Final[Mapping[str, float]] = {
    # wait: no action needed
    "wait": 1, "wait-open": 3,
    # correct a name, or make what is missing
    "correct": 1, "scheduler-name": 1, "create": 2, "tolerate-own": 2, "ungate": 2, "label": 3, "match-label-keys": 3,
    "node-name": 3, "volume": 3,
    # repair
    "uncordon": 2, "repair": 3,
    # make room with the pods that are there
    "evict": 3, "evict-budget": 3, "evict-stranded": 3, "move": 3, "surge": 3, "scale": 5,
    # ask for less; request-share: times the share by which the request falls
    "request": 4, "request-share": 4,
    # add a node; add-node-share: times its price, as a share of the dearest one
    "add-node": 8, "add-node-share": 1,
    "priority": 9, "preemption-policy": 9,
    # loosen a rule
    "max-skew": 9, "max-skew-step": 0.5, "relabel": 10, "tolerate": 10, "drop-selector": 10, "drop-expression": 10,
    "prefer": 10, "schedule-anyway": 10, "drop-port": 10, "untaint": 11, "untaint-condition": 12, "claim": 12,
    # change the configuration, or what no one should change
    "profile": 12, "plugin-argument": 12, "feature": 12, "allocatable": 12, "allocatable-share": 1, "pods": 12,
    "disable-plugin": 16,
}  # fmt: skip
#: How many changes keep their cost.
_REMEMBERED: Final = 8192
#: Taints that the node lifecycle controller, the kubelet or a cloud provider sets for as long as a condition lasts.
_CONDITIONS: Final = frozenset(
    f"node.kubernetes.io/{name}"
    for name in ("not-ready", "unreachable", "memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable")
) | {"node.cloudprovider.kubernetes.io/uninitialized"}


@dataclass(frozen=True, slots=True)
class Costs:
    """A complete table of costs."""

    #: What a node like each of these costs, as a share of the dearest one.
    table: Mapping[str, float] = field(default_factory=lambda: BASE_COSTS)
    shares: Mapping[str, float] = field(default_factory=dict)
    _known: dict[Change, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def with_nodes(self, around: Surroundings) -> Costs:
        """Return costs that tell nodes to add apart by their sizes, unless prices are given."""
        if self.shares:
            return self
        sizes = {node.metadata.name: _sizes(node) for node in around.all_of(Node) if isinstance(node, Node)}
        most = [max(some) or 1 for some in zip(*sizes.values(), strict=True)] if sizes else []
        return replace_costs(self, shares={name: sum(map(truediv, size, most)) / len(most) for name, size in sizes.items()})

    def price(self, change: Change) -> Change:
        """Return the change with its cost set, and without the constraint for which a plugin offered it."""
        return replace(change, cost=self.cost_of(change), term="")

    def cost_of(self, change: Change) -> float:
        """Return the cost of one change. A verb that is not in the table has the cost that its plugin gave it."""
        cost = self._known.get(change)
        if cost is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            priced = change.verb in self.table
            cost = round(self.table[self._row(change)] + self._extra(change), 6) if priced else change.cost
            self._known[change] = cost
        return cost

    def sum_of(self, changes: Iterable[Change]) -> float:
        """Return the sum of the costs of changes, without the extra costs of evictions."""
        return round(sum(map(self.cost_of, changes)), 6)

    def least_of_one(self, change: Change) -> float:
        """Return the least cost of one change if a pod may move instead of being evicted."""
        return min(self.table["evict"], self.table["move"]) if change.verb == "evict" else self.cost_of(change)

    def least_of(self, changes: Collection[Change]) -> float:
        """Return the least cost of changes if pods may move instead of being evicted."""
        saved = max(0.0, self.table["evict"] - self.table["move"])
        whole = self.sum_of(changes)
        return round(whole - saved * sum(one.verb == "evict" for one in changes), 6) if saved else whole

    def total(self, changes: Iterable[Change]) -> float:
        return round(sum(change.cost for change in changes), 6)

    @staticmethod
    def _row(change: Change) -> str:
        if change.verb == "wait" and change.path.startswith("job/") and " until " not in change.path:
            return "wait-open"
        is_condition = change.verb == "untaint" and str(change.old).partition("=")[0].partition(":")[0] in _CONDITIONS
        return "untaint-condition" if is_condition else change.verb

    def _extra(self, change: Change) -> float:
        old, new = change.old, change.new
        if change.verb == "add-node":
            return self.table["add-node-share"] * self.shares.get(str(new).removeprefix("like "), 0.0)
        if not isinstance(old, int) or not isinstance(new, int):
            return 0.0
        match change.verb:
            case "request":
                return self.table["request-share"] * (old - new) / old if old else 0.0
            case "max-skew":
                return self.table["max-skew-step"] * (new - old)
            case "allocatable":
                return self.table["allocatable-share"] * (new - old) / old if old else self.table["allocatable-share"]
        return 0.0


def _sizes(node: Node) -> tuple[int, ...]:
    """Return what makes a node dear: its cpu, its memory, and its other devices."""
    held = {name: amount(name, count) for name, count in node.status.allocatable.items()}
    return held.get("cpu", 0), held.get("memory", 0), sum(count for name, count in held.items() if "/" in name)


def read_costs(text: bytes, where: str) -> Costs:
    """Read a file of costs: a mapping of names in the table to numbers; names that it leaves out keep their costs.

    Raises  InputError
    """
    given = read_first_yaml(text, where)
    if not isinstance(given, dict):
        raise InputError(f"{where}: a file of costs is a mapping such as 'uncordon: 1'")
    for name, cost in given.items():
        if name not in BASE_COSTS:
            raise InputError(f"{where}: unknown cost {name!r}; known: {', '.join(BASE_COSTS)}")
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < float("inf"):
            raise InputError(f"{where}: the cost of {name} must be a number of at least 0, not {cost!r}")
    return Costs({**BASE_COSTS, **given})
