"""The metrics of one run: pods that stay pending, waits, nodes used, how full nodes are, and preemption."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from moorage.api.workloads import PodDisruptionBudget
from moorage.core.cycle.decision import Decision
from moorage.core.preemption.disruption_budgets import Budgets
from moorage.laboratory.compare.typical_mix import PodShape, eligible_shapes, is_bound_to_its_node
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
from moorage.laboratory.node_groups import over_time, time_weighted, use_of_nodes
from moorage.report.job_tables import job_figures, job_rows
from moorage.report.outcome import PodOutcome, Run
from moorage.report.run_values import MeasuredRun, UnplacedPod
from moorage.simulator.pod_records import PodRecord, State
from moorage.simulator.simulation import SimulatedAttempt, SimulatedCluster
from moorage.state.pod_info import PodInfo

#: The percentiles of waits.
WAITS: Final = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class MeasureSetting:
    """The settings of the measurement.

    ``shapes``       the typical mix
    ``prices``       price of a node by its name; empty: there are no prices
    ``all_nodes``    count nodes that are not ready or not schedulable as well
    ``not_created``  pods that a quota refuses
    """

    shapes: tuple[PodShape, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    all_nodes: bool = False
    not_created: int = 0


class RunMeter:
    """Measures a run. ``hear`` must be called with its attempts, which the records of pods do not contain; or ``count`` with
    its decisions."""

    def __init__(self) -> None:
        self.decisions = 0
        self._victims: list[tuple[PodInfo, ...]] = []
        #: The plugins that refused each pod in its last attempt, by ``namespace/name``; none for pods that no plugin refused.
        self._refused_by: dict[str, tuple[str, ...]] = {}

    def hear(self, attempt: SimulatedAttempt) -> None:
        """Record the decision of an attempt."""
        self.count(attempt.decision)

    def count(self, decision: Decision) -> None:
        """Record a decision."""
        self.decisions += 1
        refused_by = decision.rejected_by
        if refused_by:
            self._refused_by[decision.pod.key] = refused_by
        elif self._refused_by:
            self._refused_by.pop(decision.pod.key, None)
        if decision.post_filter is not None and decision.post_filter.victims:
            self._victims.append(decision.post_filter.victims)

    def repeat(self, count: int) -> None:
        """Record that so many pods failed as in their last attempts."""
        self.decisions += count

    def measured(
        self, simulation: SimulatedCluster, run: Run, setting: MeasureSetting, notes: Iterable[str] = (), speed: float = 0.0
    ) -> MeasuredRun:
        """Return the measurements, after the end of the run."""
        return MeasuredRun(
            seed=run.seed,
            release=run.release,
            metrics=self._metrics(simulation, run, setting),
            pending=tuple(self._unplaced(pod) for pod in run.in_state(State.PENDING)),
            placements=_placements(run),
            speed=speed,
            notes=(*(note.text for note in run.notes), *notes),
        )

    def _unplaced(self, pod: PodOutcome) -> UnplacedPod:
        key = f"{pod.namespace}/{pod.name}"
        return UnplacedPod(key, pod.workload, pod.message, self._refused_by.get(key, ()))

    def _metrics(self, simulation: SimulatedCluster, run: Run, setting: MeasureSetting) -> dict[str, float]:
        """Return all metrics by name; ``docs/reference/metrics.md`` explains them. A wait without end is infinite."""
        use = use_of_nodes(simulation, all_nodes=setting.all_nodes)
        used = _nodes_used(simulation)
        metrics = {**pending_metrics(simulation.records.values()), "notCreated": float(setting.not_created)}
        metrics |= {**wait_metrics(run.pods), "nodesUsed": float(len(used))}
        if setting.prices:
            metrics["cost"] = sum(setting.prices.get(name, 0.0) for name in used)
        metrics |= state_metrics(use, eligible_shapes(simulation, setting.shapes))
        metrics |= {f"{name}.mean": value for name, value in time_weighted(over_time(use, run), fullness).items()}
        preempted = run.in_state(State.PREEMPTED)
        metrics["preemptions.victims"] = float(len(preempted))
        metrics["preemptions.replaced"] = float(sum(bool(pod.replaced_by) for pod in preempted))
        metrics["preemptions.budgetViolations"] = float(self._violations(simulation))
        metrics["attempts"] = float(run.attempts)
        if any(pod.state == State.FINISHED for pod in run.pods):
            metrics |= job_figures(job_rows(run))
        return metrics

    def _violations(self, simulation: SimulatedCluster) -> int:
        """Return the number of victims whose budget did not allow it, by the budgets' own status."""
        budgets = Budgets(simulation.scheduler.cluster.objects(PodDisruptionBudget).values())
        return sum(len(budgets.split(victims)[0]) for victims in self._victims)


def _placements(run: Run) -> dict[str, str]:
    """Return the node of each pod that the run was to place or evicted; empty if it has none at the end."""
    on_a_node = (State.PLACED, State.FINISHED)
    return {f"{pod.namespace}/{pod.name}": pod.node if pod.state in on_a_node else "" for pod in run.pods}


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


def _nodes_used(simulation: SimulatedCluster) -> list[str]:
    """Return the nodes with a pod that does not exist because of its node."""
    table = simulation.scheduler.cluster.table
    return [
        node.name
        for node, pods in zip(table.nodes, table.pods, strict=True)
        if any(not is_bound_to_its_node(pod.pod) for pod in pods.values())
    ]


def state_metrics(use: NodeUse, shapes: Sequence[WorkShape]) -> dict[str, float]:
    """Return how full the nodes are, how evenly, and how usable the free amounts are."""
    found = fullness(use)
    found |= {f"jain.{name}": one.jain for name, one in balance(use).items()}
    found["dominantShare"] = float(dominant_shares(use).mean()) if use.counted.any() else 0.0
    found["fragmentation"] = mix_fragmentation(use, shapes)
    found |= {f"stranded.{name}": share for name, share in stranded(use, shapes).items()}
    found |= {f"fragmented.{name}": share for name, share in fragmented(use, shapes).items()}
    return found


def fullness(use: NodeUse) -> dict[str, float]:
    """Return the metrics that are also averaged over time."""
    found = {f"utilisation.{name}": share for name, share in utilisation(use).items()}
    found |= {f"balance.{name}": one.sigma for name, one in balance(use).items()}
    found["skew"] = float(skews(use).mean()) if use.counted.any() else 0.0
    return found
