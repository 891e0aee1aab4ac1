"""``compare_autoscalers``: what two autoscalers, sets of NodePools or expanders cost, and what pods feel of it.

Both work on the same arrivals, failures and chances, seed by seed, so the differences of pairs are small beside the runs' own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, TypeAlias

from moorage.errors import InputError
from moorage.laboratory.compare.paired_metrics import Draws, compare_pairs
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.report.gates import MetricComparison
from moorage.report.style import columns

__all__ = ["Arrangement", "ScalingProcess", "compare_autoscalers", "scaling_table"]

#: Name of a figure → its unit, in the order of the table.
_UNITS: Final[Mapping[str, str]] = {
    "cost": "", "nodeHours": "h", "waitMean": "s", "waitP99": "s", "pendingAtTheEnd": "pods", "evicted": "pods",
    "nodesRemoved": "nodes",
}  # fmt: skip


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
    draws = Draws("0")
    return {name: compare_pairs(name, [run[name] for run in of_a], [run[name] for run in of_b], draws) for name in _UNITS}


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


def scaling_table(found: Mapping[str, MetricComparison], a: str = "A", b: str = "B") -> str:
    """Return a comparison as a table. A difference that may be chance is marked with ``~``."""
    rows = []
    for name, one in found.items():
        low, high = one.bounds(relative=True)
        differs = one.difference or 0.0
        shown = f"{'~ ' if one.may_be_zero else ''}{differs:+.2f}"
        rows.append([name, _UNITS.get(name, ""), f"{one.a:.2f}", f"{one.b:.2f}", shown, f"{low:+.2f} to {high:+.2f}"])
    return columns(["FIGURE", "UNIT", a, b, f"{b} - {a}", "95 % INTERVAL"], rows, right=(2, 3, 4, 5)) + "\n"
