"""Run one workload through the engine in the simulator, with all default plugins and every node scored.

Startup (creating objects, loading nodes and existing pods) is measured separately. The measurement spans from the first
measured pod to the last bind, without the time of the checks.
"""

from __future__ import annotations

import gc
import platform
import resource
from collections.abc import Iterable, Iterator
from random import Random
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks.checking import CheckedCycle, CheckFailedError
from benchmarks.mechanisms import MECHANISMS
from benchmarks.workloads import CHURN_EVERY, WORKLOADS, Sizes, Workload
from moorage.core.engine.facts import Seen
from moorage.interfaces.cli.given_back_memory import collect_seldom, keep_freed_memory
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedCluster, State

__all__ = ["run"]


def run(name: str, sizes: Sizes, seed: int = 0, check_every: int = 100, without: Iterable[str] = ()) -> dict[str, Any]:
    """Run a workload and return its figures. ``without``: mechanisms to switch off, for good in this process.

    Raises  CheckFailedError if a sampled decision differs from the full path, or pods were not bound
    """
    for mechanism in without:
        MECHANISMS[mechanism]()
    keep_freed_memory()
    collect_seldom()
    began = perf_counter()
    workload = WORKLOADS[name][0](sizes, Random(seed))
    simulation, _ = prepare(Options(seed=seed))
    cycle = CheckedCycle(seed=seed)
    simulation.scheduler.cycle = cycle
    simulation.load(workload.objects)
    simulation.load(workload.init)
    for _ in simulation.steps():
        pass
    gc.collect()
    gc.freeze()
    started = perf_counter()
    cycle.watch(check_every)
    loop_us = _loop_us()
    figures = _measure(simulation, cycle, workload)
    return {
        "workload": name,
        "nodes": sizes.nodes,
        "init": sizes.init,
        "pods": sizes.pods,
        "seed": seed,
        "without": sorted(without),
        **figures,
        "checked": cycle.checked,
        "loop_us": round((loop_us + _loop_us()) / 2, 2),
        "startup_s": round(started - began, 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _loop_us() -> float:
    """Return the CPU microseconds of a fixed computation: the current speed of this machine."""
    began = process_time()
    for _ in range(2000):
        sum(range(1000))
    return (process_time() - began) * 1e6 / 2000


def _measure(simulation: SimulatedCluster, cycle: CheckedCycle, workload: Workload) -> dict[str, Any]:
    wall, cpu = perf_counter(), process_time()
    times, latencies = [0.0], []
    for _ in _decisions(simulation, workload):
        now = perf_counter() - wall - cycle.wall_s
        latencies.append(now - times[-1])
        times.append(now)
    total, busy = times[-1], process_time() - cpu - cycle.cpu_s
    if cycle.failure is not None:
        raise cycle.failure
    bound = sum(simulation.records[pod.metadata.uid].state == State.PLACED for pod in workload.measured)
    if bound < len(workload.measured):
        raise CheckFailedError(f"{bound} of {len(workload.measured)} pods were bound")
    p50, p99 = np.percentile(latencies, [50, 99]) * 1e6
    return {
        "bound": bound,
        "decisions": len(latencies),
        "pods_per_s": round(bound / total, 1),
        "pods_per_s_samples": round(_mean_of_seconds(times[1:]), 1),
        "p50_us": round(float(p50), 1),
        "p99_us": round(float(p99), 1),
        "growth": round(_growth(latencies), 2),
        "cpu_s_per_1000": round(1000 * busy / max(bound, 1), 4),
    }


def _growth(latencies: list[float]) -> float:
    """Return the median decision time of the last tenth relative to the first tenth: 1 means no growth."""
    tenth = max(len(latencies) // 10, 1)
    return float(np.median(latencies[-tenth:]) / np.median(latencies[:tenth]))


def _decisions(simulation: SimulatedCluster, workload: Workload) -> Iterator[object]:
    """Load the measured pods and decide until all are bound; with churn, in portions.

    Portions follow each other every fifth of a simulated second, with a disturbing pod before each.
    """
    first = len(workload.measured) if not workload.churn else CHURN_EVERY
    now = simulation.now
    for turn, disturbing in enumerate(workload.churn):
        simulation.at(now + turn / 5, Seen(disturbing))
        for one in workload.measured[turn * first : (turn + 1) * first]:
            simulation.at(now + turn / 5, Seen(one))
    if not workload.churn:
        simulation.load(workload.measured)
    left = {pod.metadata.uid for pod in workload.measured}
    for decision in simulation.steps():
        yield decision
        if decision.node is not None:
            left.discard(decision.pod.uid)
            if not left:
                return


def _mean_of_seconds(times: list[float]) -> float:
    """Return the mean of the decisions per whole second, without the first; over the whole time if that is too short."""
    whole = int(times[-1])
    if whole < 2:
        return len(times) / times[-1]
    counts = np.histogram(times, bins=whole, range=(0, whole))[0]
    return float(np.mean(counts[1:]))
