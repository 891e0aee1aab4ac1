"""What a sweep costs beside its runs: keys, workers, files, the index."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any, Final

from benchmarks.what_ifs import loop_us
from moorage.sweeps.executors import CallingThread, process_pool
from moorage.sweeps.grid import SweepGrid, axis_of
from moorage.sweeps.store import open_store
from moorage.sweeps.sweep import SweepPlan, run_sweep

__all__ = ["measure_sweeps", "nothing"]

#: The CPU microseconds of ``sum(range(1000))`` on the machine that the bound, 1 % of a run of 1 s, is for.
_LOOP_US: Final = 9.0


def nothing(*, number: int, seed: int) -> dict[str, Any]:
    """Return as much as a run of a cluster measures, at once."""
    return {f"metric{at}": float(number + seed + at) for at in range(40)}


def work(*, number: int) -> dict[str, Any]:
    """Take some tenths of a second."""
    return {"sum": float(sum(sum(range(1000)) for _ in range(10_000 + number % 2)))}


def waited(runs: int = 20, rounds: int = 3) -> dict[str, Any]:
    """Measure by how much runs one after the other take longer in a sweep, waits for the disk included.

    The least of some rounds counts on each side; a round of one side follows a round of the other.
    """
    plan = SweepPlan(SweepGrid((axis_of("number", range(runs)),), "work"), work)
    alone, swept = [], []
    with tempfile.TemporaryDirectory() as folder:  # what a store needs is imported
        run_sweep(SweepPlan(SweepGrid((axis_of("number", [0]),), "work"), work), open_store(folder), CallingThread())
    for _ in range(rounds):
        began = time.perf_counter()
        for number in range(runs):
            work(number=number)
        alone.append((time.perf_counter() - began) / runs)
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            run_sweep(plan, open_store(folder), CallingThread())
            swept.append((time.perf_counter() - began) / runs)
    more, speed = min(swept) - min(alone), loop_us()
    return {
        "measurement": "sweep of runs that compute, on the wall", "runs": runs, "run_ms": round(1000 * min(alone), 1),
        "more_ms": round(1000 * more, 2), "share_of_a_1s_run": round(more * _LOOP_US / speed, 5), "loop_us": speed,
    }  # fmt: skip


def measure_sweeps(runs: int = 400) -> Iterator[dict[str, Any]]:
    """Yield the milliseconds that a sweep takes for each run that does nothing, and for each run that is in the store."""
    plan = SweepPlan(SweepGrid((axis_of("number", range(runs // 10)), axis_of("seed", range(10))), "nothing"), nothing)
    with process_pool(2) as pool:
        list(pool.map(abs, range(8)))  # the processes start
        yield from _measured(plan, pool, "in two processes")
    yield from _measured(plan, CallingThread(), "in this process, whose CPU time is all there is")
    yield waited()


def _measured(plan: SweepPlan, executor: Executor, where: str) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("made", "stored"):
            before, wall, cpu = loop_us(), time.perf_counter(), time.process_time()
            found = run_sweep(plan, open_store(folder), executor)
            assert len(found) == len(plan.grid)
            cpu_ms = 1000 * (time.process_time() - cpu) / len(found)
            wall_ms = 1000 * (time.perf_counter() - wall) / len(found)
            speed = (before + loop_us()) / 2
            yield {
                "measurement": f"sweep {where}, runs {name}", "runs": len(found), "cpu_ms": round(cpu_ms, 3),
                "wall_ms": round(wall_ms, 3), "share_of_a_1s_run": round(cpu_ms * _LOOP_US / speed / 1000, 5), "loop_us": speed,
            }  # fmt: skip
