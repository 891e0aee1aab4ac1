"""Runs of clusters and traces with Kueue's queues, and their metrics: waits of jobs, what evictions cost, and fairness.

Parameters set single fields of queues by name: ``ClusterQueue/NAME/nominalQuota/FLAVOR/RESOURCE``, also ``borrowingLimit`` and
``lendingLimit``, ``ClusterQueue/NAME/weight``, and the same for a ``Cohort``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from moorage.errors import InputError
from moorage.laboratory.compare.run_metrics import WAITS, MeasureSetting, RunMeter
from moorage.report.queue_report import QueueReport, QueueWaits, WorkloadFigures
from moorage.report.run_values import MeasuredRun
from moorage.simulator.kueue.batch_jobs import QueuedCluster
from moorage.simulator.simulate import Options

_KINDS: Final = ("ClusterQueue", "Cohort")
_AMOUNTS: Final = ("nominalQuota", "borrowingLimit", "lendingLimit")


def measure_queued(queued: QueuedCluster, options: Options, setting: MeasureSetting) -> MeasuredRun:
    """Run a cluster with its queues, which stay as they are, and return the measurements.

    Raises  ConfigError, InputError
    """
    fresh, meter = queued.fresh(), RunMeter()
    simulation, run = fresh.run(options, on_result=meter.count)
    measured = meter.measured(simulation, run, setting)
    return replace(measured, metrics={**measured.metrics, **queue_metrics(fresh.report(run.ended_s))})


def queue_metrics(report: QueueReport) -> dict[str, float]:
    """Return all metrics of queues by name; ``docs/reference/metrics.md`` explains them."""
    found = {f"jobWait.{name}": value for name, value in _waits(report.workloads).items()}
    for queue in report.queues:
        mine = [one for one in report.workloads if one.cluster_queue == queue.name]
        found |= {f"jobWait.{queue.name}.{name}": value for name, value in _waits(mine).items()}
    found["jobsWaiting"] = float(sum(queue.waiting for queue in report.queues))
    found["evictions"] = float(sum(queue.evictions for queue in report.queues))
    for queue in report.queues:
        for resource in queue.used_hours:
            unit = 1000.0 if resource == "cpu" else 1.0
            for name, hours in (("usedHours", queue.used_hours), ("lostHours", queue.lost_hours)):
                key = f"{name}.{resource}"
                found[key] = found.get(key, 0.0) + hours.get(resource, 0.0) / unit
    found["fairness"] = 1.0 if report.fairness is None else report.fairness
    return found


def _waits(workloads: Sequence[WorkloadFigures]) -> dict[str, float]:
    """Return percentiles of waits; a job that got no quota waits without end."""
    waits = QueueWaits.of(math.inf if one.reserved is None else one.reserved - one.arrived for one in workloads)
    return {f"p{percent}": 0.0 if waits is None else getattr(waits, f"p{percent}") for percent in WAITS}


def is_queue_parameter(name: str) -> bool:
    """Return whether a parameter is one of queues, not of the scheduler's configuration."""
    return name.partition("/")[0] in _KINDS


def with_queue_parameters(documents: Sequence[Mapping[str, Any]], parameters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the objects of Kueue with some fields set.

    Raises  InputError for a name that leads to no field
    """
    found: list[Any] = copy.deepcopy(list(documents)) if parameters else list(documents)
    for name, value in parameters.items():
        kind, _, rest = name.partition("/")
        title, _, path = rest.partition("/")
        field, _, place = path.partition("/")
        spec = next(
            (one.setdefault("spec", {}) for one in found if (one.get("kind"), one["metadata"].get("name")) == (kind, title)),
            None,
        )
        if spec is None:
            raise InputError(f"{name}: there is no {kind} of this name")
        if field == "weight" and not place:
            spec["fairSharing"] = {**(spec.get("fairSharing") or {}), "weight": str(value)}
        elif field in _AMOUNTS and place:
            _quota(spec, place, name)[field] = value
        else:
            raise InputError(f"{name}: expected {kind}/NAME/weight or {kind}/NAME/{'|'.join(_AMOUNTS)}/FLAVOR/RESOURCE")
    return found


def _quota(spec: Mapping[str, Any], place: str, name: str) -> dict[str, Any]:
    flavor, _, resource = place.partition("/")
    for group in spec.get("resourceGroups") or ():
        for one in group.get("flavors") or ():
            for quota in one.get("resources") or ():
                if (one.get("name"), quota.get("name")) == (flavor, resource):
                    found: dict[str, Any] = quota
                    return found
    raise InputError(f"{name}: it has no quota for {resource or 'a resource'} in flavor {flavor}")
