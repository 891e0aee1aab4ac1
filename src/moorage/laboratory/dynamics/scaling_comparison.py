"""``compare_autoscalers``: what two autoscalers, sets of NodePools or expanders cost, and what pods feel of it.

Both work on the same arrivals, failures and chances, seed by seed, so the differences of pairs are small beside the runs' own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from moorage.errors import InputError
from moorage.laboratory.compare.paired_metrics import Draws, compare_pairs
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.report.explanation import SCALING_UNITS, scaling_table
from moorage.report.gates import MetricComparison

__all__ = ["Arrangement", "ScalingProcess", "compare_autoscalers", "scaling_table"]


class ScalingProcess(Protocol):
    """An autoscaler that tells what its nodes cost: ``KarpenterProcess`` or ``ClusterAutoscaler``."""

    def cost(self) -> float: ...

    def node_hours(self) -> dict[str, float]: ...

    def sizes(self) -> dict[str, int]: ...


#: Makes the run of a seed: the simulation with all that happens in it, and the autoscaler that takes part.
Arrangement: TypeAlias = Callable[[int], tuple[Simulation, ScalingProcess]]


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
        raise InputError("seeds: give at least one; five or more give an interval")
    of_a, of_b = ([_figures(arrange, seed, until_s) for seed in used] for arrange in (a, b))
    draws, pairs = Draws("0"), {name: ([run[name] for run in of_a], [run[name] for run in of_b]) for name in SCALING_UNITS}
    return {name: compare_pairs(name, *pair, draws) for name, pair in pairs.items()}


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
