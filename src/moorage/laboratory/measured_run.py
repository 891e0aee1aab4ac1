"""One run of a cluster with one configuration and one seed, and what is measured of it.

A ``RunInput`` and ``Options`` go in and a ``MeasuredRun`` comes out. All three can be pickled, so runs may be spread over
processes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from moorage.api.core import Node, Pod
from moorage.api.gc_pause import collector_paused
from moorage.api.meta import Object
from moorage.api.workloads import PodDisruptionBudget
from moorage.cycle.disruption_budgets import Budgets
from moorage.engine.dropped_fields import pod_reader
from moorage.framework.changes import Change
from moorage.laboratory.changes import reconfigure
from moorage.laboratory.metrics import (
    NodeUse,
    WorkShape,
    balance,
    dominant_shares,
    fragmented,
    mix_fragmentation,
    skews,
    stranded,
    utilisation,
)
from moorage.laboratory.node_use import over_time, time_weighted, use_of_nodes
from moorage.laboratory.packing import Packed, pack, unpack
from moorage.laboratory.typical_mix import PodShape, eligible_shapes, is_bound_to_its_node
from moorage.report.outcome import InputNote, PodOutcome, Run
from moorage.report.run_values import MeasuredRun, UnplacedPod
from moorage.simulator.outcome import collect
from moorage.simulator.pod_record import PodRecord, State
from moorage.simulator.simulate import Options, load_options, prepare
from moorage.simulator.simulation import SimulatedAttempt, Simulation
from moorage.wording import counted, some

__all__ = ["WAITS", "RunInput", "measure_run", "pending_metrics", "run_metrics", "wait_metrics"]

#: The percentiles of waits.
WAITS: Final = (50, 90, 99)


@dataclass(frozen=True)
class RunInput:
    """What a run begins with: objects in order, notes on them, and what to measure.

    ``shapes``   the typical mix
    ``prices``   price of a node by its name; empty: there are no prices
    ``config``   changes of the configuration
    """

    objects: tuple[Object, ...]
    notes: tuple[InputNote, ...] = ()
    workloads: Mapping[str, str] = field(default_factory=dict)
    gone: tuple[PodRecord, ...] = ()
    shapes: tuple[PodShape, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    all_nodes: bool = False
    config: tuple[Change, ...] = ()

    @property
    def nodes(self) -> list[Node]:
        """The nodes among the objects."""
        return [obj for obj in self.objects if isinstance(obj, Node)]

    def __reduce__(self) -> tuple[Any, ...]:
        shapes = [(shape.requests, shape.weight, pack(shape.pod), shape.pods) for shape in self.shapes]
        others = (self.notes, dict(self.workloads), self.gone, dict(self.prices), self.all_nodes, self.config)
        return _run_input, ([pack(obj) for obj in self.objects], shapes, others)


def _run_input(objects: list[Packed], shapes: list[tuple[Any, ...]], others: tuple[Any, ...]) -> RunInput:
    notes, workloads, gone, prices, all_nodes, config = others
    typical = tuple(PodShape(requests, weight, cast(Pod, unpack(pod)), pods) for requests, weight, pod, pods in shapes)
    with collector_paused():
        return RunInput(tuple([unpack(obj) for obj in objects]), notes, workloads, gone, typical, prices, all_nodes, config)


class _Watch:
    """Counts what the records of pods do not tell."""

    def __init__(self) -> None:
        self.simulation: Simulation | None = None
        self.violations = 0
        self.decisions = 0
        #: The plugins that refused each pod in its last attempt, by ``namespace/name``.
        self.refused_by: dict[str, tuple[str, ...]] = {}

    def __call__(self, attempt: SimulatedAttempt) -> None:
        self.decisions += 1
        decision = attempt.decision
        self.refused_by[decision.pod.key] = decision.rejected_by
        after = decision.post_filter
        if after is None or not after.victims or self.simulation is None:
            return
        budgets = Budgets(self.simulation.scheduler.cluster.objects(PodDisruptionBudget).values())
        self.violations += len(budgets.split(after.victims)[0])


def measure_run(given: RunInput, options: Options) -> MeasuredRun:
    """Run the cluster to its end and return what is measured.

    Raises  ConfigError, InputError
    """
    watch = _Watch()
    loaded = load_options(options)
    for change in given.config:
        loaded = reconfigure(loaded, change)
    simulation, notes = prepare(options, watch, loaded=loaded)
    watch.simulation = simulation
    simulation.load(given.objects)
    begun = time.thread_time()
    simulation.run()
    seconds = time.thread_time() - begun
    run = collect(
        simulation, simulation.scheduler.gates.release, notes=(*given.notes, *notes), workloads=given.workloads,
        gone=given.gone,
    )  # fmt: skip
    metrics = run_metrics(simulation, run, given)
    metrics["preemptions.budgetViolations"] = float(watch.violations)
    return MeasuredRun(
        seed=options.seed,
        release=run.release,
        metrics=metrics,
        pending=_pending(run, watch.refused_by),
        placements=_placements(run),
        speed=watch.decisions / seconds if seconds > 0 else 0.0,
        notes=(*(note.text for note in run.notes), *_left_out(given.objects, simulation)),
    )


def _left_out(objects: Iterable[Object], simulation: Simulation) -> Iterator[str]:
    """Yield a note if pods have fields that the release does not know, or whose feature gates are off."""
    gates = simulation.scheduler.gates
    read = pod_reader(gates)
    changed = [obj.key for obj in objects if isinstance(obj, Pod) and (seen := read(obj)) is not obj and seen != obj]
    if changed:
        yield f"{counted(len(changed), 'pod')} with fields that kube-scheduler {gates.release} ignores: {some(changed)}"


def _pending(run: Run, refused_by: Mapping[str, tuple[str, ...]]) -> tuple[UnplacedPod, ...]:
    found = ((f"{pod.namespace}/{pod.name}", pod) for pod in run.in_state(State.PENDING))
    return tuple(UnplacedPod(key, pod.workload, pod.message, refused_by.get(key, ())) for key, pod in found)


def _placements(run: Run) -> dict[str, str]:
    """Return the node of each pod that the run was to place or evicted; empty if it has none at the end."""
    return {
        f"{pod.namespace}/{pod.name}": pod.node if pod.state in (State.PLACED, State.FINISHED) else "" for pod in run.pods
    }  # fmt: skip


# -- metrics -------------------------------------------------------------------------------------------------------------


def run_metrics(simulation: Simulation, run: Run, given: RunInput) -> dict[str, float]:
    """Return all metrics of a run by name; ``docs/reference/metrics.md`` explains them. A wait without end is infinite."""
    records = simulation.records.values()
    use = use_of_nodes(simulation, all_nodes=given.all_nodes)
    used = _nodes_used(simulation)
    metrics = {**pending_metrics(records), **wait_metrics(run.pods), "nodesUsed": float(len(used))}
    if given.prices:
        metrics["cost"] = sum(given.prices.get(name, 0.0) for name in used)
    metrics |= _state_metrics(use, eligible_shapes(simulation, given.shapes))
    means = time_weighted(over_time(use, run), _fullness)
    metrics |= {f"{name}.mean": value for name, value in means.items()}
    preempted = run.in_state(State.PREEMPTED)
    metrics["preemptions.victims"] = float(len(preempted))
    metrics["preemptions.replaced"] = float(sum(bool(pod.replaced_by) for pod in preempted))
    metrics["attempts"] = float(run.attempts)
    return metrics


def pending_metrics(records: Iterable[PodRecord]) -> dict[str, float]:
    """Return the number of pods that stay pending: of all, and by priority class if there are classes."""
    counts: dict[str, int] = {}
    pending = 0
    for record in records:
        name = record.pod.spec.priority_class_name
        waits = record.state == State.PENDING
        pending += waits
        if name:
            counts[name] = counts.get(name, 0) + waits
    return {"pending": float(pending), **{f"pending.{name}": float(counts[name]) for name in sorted(counts)}}


def wait_metrics(pods: Sequence[PodOutcome]) -> dict[str, float]:
    """Return percentiles of waits, from arrival to placement, by nearest rank. The wait of a pending pod is infinite."""
    waits = sorted(_waits(pods))
    if not waits:
        return {f"wait.p{percent}": 0.0 for percent in WAITS}
    return {f"wait.p{percent}": waits[max(math.ceil(percent * len(waits) / 100), 1) - 1] for percent in WAITS}


def _waits(pods: Iterable[PodOutcome]) -> Iterator[float]:
    for pod in pods:
        if pod.placed_s is not None:
            yield pod.placed_s - pod.arrived_s
        elif pod.state == State.PENDING:
            yield math.inf


def _nodes_used(simulation: Simulation) -> list[str]:
    """Return the nodes with a pod that does not exist because of its node."""
    table = simulation.scheduler.cluster.table
    return [
        node.name
        for node, pods in zip(table.nodes, table.pods, strict=True)
        if any(not is_bound_to_its_node(pod.pod) for pod in pods.values())
    ]


def _state_metrics(use: NodeUse, shapes: Sequence[WorkShape]) -> dict[str, float]:
    found = _fullness(use)
    found |= {f"jain.{name}": one.jain for name, one in balance(use).items()}
    found["dominantShare"] = float(dominant_shares(use).mean()) if use.counted.any() else 0.0
    found["fragmentation"] = mix_fragmentation(use, shapes)
    found |= {f"stranded.{name}": share for name, share in stranded(use, shapes).items()}
    found |= {f"fragmented.{name}": share for name, share in fragmented(use, shapes).items()}
    return found


def _fullness(use: NodeUse) -> dict[str, float]:
    """Return what is also averaged over time."""
    found = {f"utilisation.{name}": share for name, share in utilisation(use).items()}
    found |= {f"balance.{name}": one.sigma for name, one in balance(use).items()}
    found["skew"] = float(skews(use).mean()) if use.counted.any() else 0.0
    return found
