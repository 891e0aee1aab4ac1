"""``moorage simulate --autoscale``: let an autoscaler add and remove nodes while the pods are scheduled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from moorage.api.reading.manifests import read_first_yaml
from moorage.basis.printable import one_line
from moorage.errors import InputError
from moorage.interfaces.cli.cluster_files import CONFIG_LIMIT, read_file
from moorage.laboratory.dynamics.autoscaler import ClusterAutoscaler
from moorage.laboratory.dynamics.node_pools import NodePool, read_pools
from moorage.laboratory.dynamics.pod_arrivals import TraceArrivals
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.laboratory.present import read_given
from moorage.report.outcome import InputNote, Run
from moorage.report.style import columns, paragraph, some_pods
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_run import input_notes
from moorage.simulator.pod_books import SimulatedAttempt, in_turn
from moorage.simulator.simulate import Options
from moorage.simulator.trace import Trace

__all__ = ["AutoscaledPools", "simulate_autoscaled"]

#: Default duration of a simulation in seconds; for a trace it starts at the last arrival.
_DEFAULT_S = 3600.0


class AutoscaledPools(NamedTuple):
    """The options of the autoscaler: the file of its pools, its expander, and the file of the expander's config map."""

    file: str
    expander: str
    priorities_file: str | None = None

    def priorities(self) -> str:
        """Return the priorities in the config map, or in a file that has nothing else; "" without a file."""
        if self.priorities_file is None:
            return ""
        text = read_file(self.priorities_file, CONFIG_LIMIT).decode("utf-8", "replace")
        tree = read_first_yaml(text, self.priorities_file)
        held = tree.get("data", {}).get("priorities") if isinstance(tree, dict) and tree.get("kind") == "ConfigMap" else text
        if not isinstance(held, str):
            raise InputError(f"{self.priorities_file}: data.priorities: not found in the config map")
        return held


def simulate_autoscaled(
    given: ClusterInput | Trace, options: Options, pools: AutoscaledPools, until_s: float | None,
    on_attempt: Callable[[SimulatedAttempt], None] | None,
) -> tuple[Run, str]:  # fmt: skip
    """Return the run, and a table of the autoscaler's actions.

    Raises  InputError
    """
    cluster = given if isinstance(given, ClusterInput) else read_given(list(given.nodes))
    simulation = Simulation(cluster, options, keep_records=True)
    simulation.engine.on_attempt = in_turn(simulation.engine.on_attempt, on_attempt)
    known = read_pools(pools.file)
    scaler = ClusterAutoscaler(known, expander=pools.expander, priorities=pools.priorities())
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
    why = _not_added(scaler, simulation)
    told = [InputNote("Remark", f"autoscaler: {text}") for text in (*map(_sentence, lines), *why)]
    below = "".join(paragraph(one_line(text), indent="  ", hanging="    ") + "\n" for text in why)
    return replace(run, notes=(*run.notes, *notes, *told)), _table(scaler, lines, simulation.now_s) + below


def _not_added(scaler: ClusterAutoscaler, simulation: Simulation) -> list[str]:
    """Return why no pool grows for the pods that are pending, those with one reason together."""
    found: dict[str, list[str]] = {}
    for queued in simulation.engine.scheduler.queue.ranked():
        text = scaler.why_not_added(queued.pod)
        if text:
            found.setdefault(text, []).append(queued.pod.key)
    return [f"{some_pods(names)}: {text}" for text, names in found.items()]


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
