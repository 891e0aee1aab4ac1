"""What autoscalers in virtual time have in common, and ``compare_autoscalers``: what two of them cost and what pods feel of it.

Compared are autoscalers, sets of NodePools or expanders. Both work on the same arrivals, failures and chances, seed by seed, so
the differences of pairs are small beside the runs' own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from msgspec import Struct

from moorage.api.core import Pod
from moorage.api.workloads import PodDisruptionBudget
from moorage.core.queue import QueuePlace
from moorage.errors import InputError
from moorage.laboratory.compare.paired_metrics import compare_pairs
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.report.explanation import SCALING_UNITS
from moorage.report.gates import MetricComparison
from moorage.simulator.allowed_disruptions import counted_budgets


class ScalingEvent(Struct, frozen=True):
    """``nodes`` of a pool were ordered (``up``), became ready (``ready``) or were removed (``down``), or why they will be."""

    time_s: float
    action: str
    pool: str
    nodes: tuple[str, ...]


@dataclass
class PaidNode:
    """A node of a pool that is paid: what an hour costs, and since when it is not accounted. ``joined``: it is there."""

    pool: str
    price: float
    since_s: float
    joined: bool = True


def _is_ready(pod: Pod) -> bool:
    """Return whether a pod on a node is ready: by its condition, or without one."""
    return next((one.status == "True" for one in pod.status.conditions if one.type == "Ready"), True)


class NodeScaler:
    """What every autoscaler in virtual time tells: what it did, and what the nodes of its pools cost over time.

    ``events``    what happened, in order; ``rates``: seconds, and what all nodes cost from then on, in an hour
    ``missing``   what the input does not say, and what is assumed instead; ``currency``: of the prices
    """

    _simulation: Simulation

    def __init__(self, currency: str, missing: Iterable[str] = ()) -> None:
        self.currency, self.missing = currency, tuple(missing)
        self.events: list[ScalingEvent] = []
        self.rates: list[tuple[float, float]] = []
        self._paid: dict[str, PaidNode] = {}
        self._hours: dict[str, float] = {}
        self._spent: dict[str, float] = {}
        self._counted: dict[tuple[str, int], PodDisruptionBudget] = {}

    def sizes(self) -> dict[str, int]:
        """Return the number of nodes of each pool, without those on order."""
        held = Counter(one.pool for one in self._paid.values() if one.joined)
        return {pool: held[pool] for pool in self._hours}

    def node_hours(self) -> dict[str, float]:
        """Return the hours that the nodes of each pool were paid, added up."""
        self._account()
        return dict(self._hours)

    def costs(self) -> dict[str, float]:
        """Return what the nodes of each pool cost so far."""
        self._account()
        return dict(self._spent)

    def _budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """Return the disruption budgets; those without figures are counted from the pods as they are now."""
        simulation = self._simulation
        budgets = simulation.engine.scheduler.cluster.objects(PodDisruptionBudget).values()
        pods = (held.pod for row in simulation.table.pods for held in row.values())
        return counted_budgets(budgets, pods, simulation.aside.values(), _is_ready, self._counted)

    def _begin(self, simulation: Simulation, pools: Iterable[str]) -> None:
        """Begin a run without nodes that are paid."""
        self._simulation, self._paid = simulation, {}
        self._hours = dict.fromkeys(pools, 0.0)
        self._spent = dict(self._hours)

    def _account(self) -> None:
        now_s = self._simulation.now_s
        for one in self._paid.values():
            hours, one.since_s = (now_s - one.since_s) / 3600, now_s
            if one.pool in self._hours:
                self._hours[one.pool] += hours
                self._spent[one.pool] += hours * one.price

    def _pay(self, name: str, pool: str, price: float, *, joined: bool = True) -> None:
        """Pay a node from now on."""
        self._paid[name] = PaidNode(pool, price, self._simulation.now_s, joined)
        self._note_rate()

    def _end(self, name: str) -> None:
        """Pay a node no longer."""
        self._account()
        self._paid.pop(name, None)
        self._note_rate()

    def cost(self) -> float:
        """Return what all nodes of the pools cost so far."""
        return sum(self.costs().values())

    def cost_in(self, from_s: float, to_s: float) -> float:
        """Return what all nodes of the pools cost between two times."""
        spans = zip(self.rates, [time_s for time_s, _ in self.rates[1:]] + [inf], strict=True)
        return sum(rate * max(min(end, to_s) - max(begun, from_s), 0.0) for (begun, rate), end in spans) / 3600

    def _note_rate(self) -> None:
        self.rates.append((self._simulation.now_s, sum(one.price for one in self._paid.values())))

    def _note(self, action: str, pool: str, names: Iterable[str]) -> None:
        self.events.append(ScalingEvent(self._simulation.now_s, action, pool, tuple(names)))

    def _waiting(self) -> list[Pod]:
        """Return the pods that the scheduler found no node for."""
        return [
            one.pod.pod for one in self._simulation.engine.scheduler.queue.ranked()
            if one.attempts and one.place is not QueuePlace.GATED and not one.pod.status.nominated_node_name
        ]  # fmt: skip


# -- comparison --------------------------------------------------------------------------------------------------------

#: Makes the run of a seed: the simulation with all that happens in it, and the autoscaler that takes part.
Arrangement: TypeAlias = Callable[[int], tuple[Simulation, NodeScaler]]


def compare_autoscalers(
    a: Arrangement, b: Arrangement, *, until_s: float, seeds: Iterable[int] = range(10)
) -> dict[str, MetricComparison]:
    """Return the figures of A and B by name: means over the seeds, and the mean difference with its 95 % interval.

    ``cost`` and ``nodeHours`` of all pools; ``waitMean`` and ``waitP99``: seconds from arrival to placement;
    ``pendingAtTheEnd``; ``evicted``: pods that lost their node or were evicted; ``nodesRemoved``

    Raises  InputError without a seed
    """
    used = list(seeds)
    if not used:
        raise InputError("seeds: give at least one; two or more give an interval")
    of_a, of_b = ([_figures(arrange, seed, until_s) for seed in used] for arrange in (a, b))
    pairs = {name: ([run[name] for run in of_a], [run[name] for run in of_b]) for name in SCALING_UNITS}
    return {name: compare_pairs(name, *pair) for name, pair in pairs.items()}


def _figures(arrange: Arrangement, seed: int, until_s: float) -> dict[str, float]:
    simulation, scaler = arrange(seed)
    began = {node.name for node in simulation.table.nodes}
    came: set[str] = set()
    simulation.on_new_node(lambda node: came.add(node.name))
    totals = simulation.run(until=until_s)
    left = {node.name for node in simulation.table.nodes}
    return {
        "cost": scaler.cost(), "nodeHours": sum(scaler.node_hours().values()), "waitMean": totals.wait_mean_s,
        "waitP99": totals.wait_p99_s, "pendingAtTheEnd": totals.pending, "evicted": totals.deleted + totals.preempted,
        "nodesRemoved": len((began | came) - left),
    }  # fmt: skip
