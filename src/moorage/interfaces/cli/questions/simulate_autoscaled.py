"""``moorage simulate --autoscale``: let an autoscaler add and remove nodes while the pods are scheduled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from moorage.laboratory.dynamics.autoscaler import ClusterAutoscaler
from moorage.laboratory.dynamics.node_pools import NodePool, read_pools
from moorage.laboratory.dynamics.pod_arrivals import TraceArrivals
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.laboratory.objects import read_given
from moorage.report.outcome import InputNote, Run
from moorage.report.style import columns
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_run import input_notes
from moorage.simulator.pod_books import SimulatedAttempt, in_turn
from moorage.simulator.simulate import Options
from moorage.simulator.trace import Trace

__all__ = ["simulate_autoscaled"]

#: Default duration of a simulation in seconds; for a trace it starts at the last arrival.
_DEFAULT_S = 3600.0


def simulate_autoscaled(
    given: ClusterInput | Trace, options: Options, pools: str, expander: str, until_s: float | None,
    on_attempt: Callable[[SimulatedAttempt], None] | None,
) -> tuple[Run, str]:  # fmt: skip
    """Return the run, and a table of the autoscaler's actions.

    Raises  InputError
    """
    cluster = given if isinstance(given, ClusterInput) else read_given(list(given.nodes))
    simulation = Simulation(cluster, options, keep_records=True)
    simulation.engine.on_attempt = in_turn(simulation.engine.on_attempt, on_attempt)
    known = read_pools(pools)
    scaler = ClusterAutoscaler(known, expander=expander)
    last_s = 0.0
    if isinstance(given, Trace):
        simulation.use(TraceArrivals(given.arrivals))
        last_s = given.arrivals[-1].time_s if len(given.arrivals) else 0.0
    simulation.use(scaler)
    before = scaler.sizes()
    simulation.run(until=last_s + _DEFAULT_S if until_s is None else until_s)
    run = simulation.outcome()
    notes = input_notes(given) if isinstance(given, ClusterInput) else [InputNote("Remark", text) for text in given.notes]
    lines = _lines(scaler, known, before)
    told = [InputNote("Remark", f"autoscaler: {_sentence(line)}") for line in lines]
    return replace(run, notes=(*run.notes, *notes, *told)), _table(scaler, lines, simulation.now_s)


def _lines(scaler: ClusterAutoscaler, pools: list[NodePool], before: dict[str, int]) -> list[list[str]]:
    hours, sizes, rows = scaler.node_hours(), scaler.sizes(), []
    for pool in pools:
        added, removed = (
            sum(len(event.nodes) for event in scaler.events if (event.pool, event.action) == (pool.name, action))
            for action in ("ready", "down")
        )
        rows.append(
            [
                pool.name, str(before[pool.name]), str(added), str(removed), str(sizes[pool.name]), f"{hours[pool.name]:.1f}",
                f"{hours[pool.name] * pool.price:.2f}",
            ]
        )  # fmt: skip
    return rows


def _sentence(line: list[str]) -> str:
    name, before, added, removed, now, hours, cost = line
    return f"pool {name} had {before} nodes, {added} came and {removed} went, {now} at the end; {hours} node hours, cost {cost}"


def _table(scaler: ClusterAutoscaler, lines: list[list[str]], seconds: float) -> str:
    head = ["POOL", "BEFORE", "ADDED", "REMOVED", "AT THE END", "NODE HOURS", "COST"]
    whole = f"AUTOSCALER   {seconds / 3600:.1f} simulated hours, cost {scaler.cost():.2f}"
    return f"{whole}\n{columns(head, lines, right=(1, 2, 3, 4, 5, 6))}\n"
