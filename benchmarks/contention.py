"""How long does a week of jobs take that wait for each other? Jobs of twenty shapes arrive at random and end."""

from __future__ import annotations

from random import Random
from time import process_time
from typing import Any, Final, NamedTuple

import moorage
from benchmarks.loop_time import loop_us
from moorage.simulator.trace import Trace, simulate_trace

__all__ = ["CONTENTION", "measure_contention"]

_WEEK_S: Final = 7 * 86_400.0
_CORES, _MEMORY_GIB = 32, 128
_SHAPES: Final = 20


class Contention(NamedTuple):
    """``load``: what all jobs request, as a share of the cores of the nodes over the week."""

    nodes: int
    pods: int
    load: float


CONTENTION: Final = {
    "full-22": Contention(22, 5_000, 0.95),
    "full-20": Contention(20, 5_000, 1.0),
    "overfull-20": Contention(20, 5_000, 1.1),
    "large": Contention(10_000, 100_000, 0.8),
}


def made(of: Contention, seed: int = 0) -> Trace:
    """Return the trace: lengths are exponential, with the mean that makes the load."""
    random = Random(seed)
    size = {"cpu": str(_CORES), "memory": f"{_MEMORY_GIB}Gi", "pods": "110"}
    nodes = [
        {"metadata": {"name": f"node-{at:05}"}, "status": {"allocatable": size, "capacity": size}} for at in range(of.nodes)
    ]
    shapes = [(random.choice([1, 2, 4, 8, 16]), random.choice([2, 4, 8, 16, 32])) for _ in range(_SHAPES)]
    drawn = [(random.uniform(0, _WEEK_S), random.choice(shapes), random.expovariate(1.0)) for _ in range(of.pods)]
    mean_s = of.load * of.nodes * _CORES * _WEEK_S / sum(cpu * length for _, (cpu, _), length in drawn)
    return Trace.of(
        nodes,
        [(time_s, _pod(f"job-{at}", *shape), mean_s * length) for at, (time_s, shape, length) in enumerate(drawn)],
    )


def _pod(name: str, cpu: int, memory_gib: int) -> dict[str, Any]:
    requests = {"cpu": str(cpu), "memory": f"{memory_gib}Gi"}
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}


def measure_contention(name: str) -> dict[str, Any]:
    """Play one of ``CONTENTION``, and return figures. ``scaled_s``: CPU seconds at 9 µs for ``sum(range(1000))``."""
    of = CONTENTION[name]
    trace = made(of)
    before = loop_us()
    began = process_time()
    run = simulate_trace(trace, moorage.Options())
    cpu_s = process_time() - began
    loop = (before + loop_us()) / 2
    waits = sorted(pod.placed_s - pod.arrived_s for pod in run.pods if pod.placed_s is not None)
    return {
        "contention": name, **of._asdict(), "attempts": run.attempts, "placed": len(waits),
        "wait_p50_s": round(waits[len(waits) // 2]), "cpu_s": round(cpu_s, 2), "loop_us": round(loop, 1),
        "scaled_s": round(cpu_s * 9 / loop, 2),
    }  # fmt: skip
