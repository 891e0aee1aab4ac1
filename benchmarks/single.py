"""Measure single hard decisions: the first pod of a class, and a preemption attempt.

Each decision is repeated on an idle cluster, every time for a pod of a new class; nothing is bound.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.workloads import WORKLOADS, Sizes
from moorage.api.core import Pod
from moorage.interfaces.cli.given_back_memory import keep_freed_memory
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo

__all__ = ["first_of_class", "preemption_attempt"]

#: Decisions before the measurement, because the first run of code is slower.
_WARM_UP = 3


def first_of_class(nodes: int = 5000, init: int = 1000, times: int = 60) -> dict[str, Any]:
    """Schedule pods of classes that are all different, with the default profile."""
    workload = WORKLOADS["unique-classes"][0](Sizes(nodes, init, times + _WARM_UP), Random(0))
    return _figures("first-of-class", _at_rest(workload.objects, workload.init), workload.measured)


def preemption_attempt(nodes: int = 5000, init: int = 20000, times: int = 60) -> dict[str, Any]:
    """Schedule pods that only fit after preemption, on nodes full of pods of lower priority."""
    sizes = Sizes(nodes, init, 100 * (times + _WARM_UP))
    workload = WORKLOADS["preemption-churn"][0](sizes, Random(0))
    return _figures("preemption-attempt", _at_rest(workload.objects, workload.init), workload.churn)


def _at_rest(objects: Iterable[Any], init: Iterable[Pod]) -> SimulatedCluster:
    keep_freed_memory()
    simulation, _ = prepare(Options())
    simulation.load(objects)
    simulation.load(init)
    for _ in simulation.steps():
        pass
    gc.collect()
    gc.freeze()
    return simulation


def _figures(name: str, simulation: SimulatedCluster, pods: Iterable[Pod]) -> dict[str, Any]:
    took = list(_times(simulation, pods))[_WARM_UP:]
    return {"name": name, "least_ms": round(min(took) * 1e3, 3), "median_ms": round(median(took) * 1e3, 3), "times": len(took)}


def _times(simulation: SimulatedCluster, pods: Iterable[Pod]) -> Iterator[float]:
    scheduler = simulation.scheduler
    profile = next(iter(scheduler.profiles.values()))
    for pod in pods:
        info = PodInfo(pod)
        began = perf_counter()
        scheduler.cycle.decide(profile, info, scheduler.snapshot, {})
        yield perf_counter() - began
