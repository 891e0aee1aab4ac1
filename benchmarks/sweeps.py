"""What a sweep costs beside its runs: keys, workers, files, the index."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any, Final

from benchmarks.what_ifs import loop_us
from moorage.laboratory.sweeps.grid import SweepGrid, axis_of
from moorage.laboratory.sweeps.jobs import CallingThread, process_pool
from moorage.laboratory.sweeps.store import open_store
from moorage.laboratory.sweeps.sweep import SweepPlan, run_sweep

__all__ = ["measure_sweeps", "nothing"]

#: The CPU microseconds of ``sum(range(1000))`` on the machine that the bound, 1 % of a run of 1 s, is for.
_LOOP_US: Final = 9.0


def nothing(*, number: int, seed: int) -> dict[str, Any]:
    """Return as much as a run of a cluster measures, at once."""
    return {f"metric{at}": float(number + seed + at) for at in range(40)}


#: The wall and CPU seconds of each run of ``work`` in this process.
_spent: list[tuple[float, float]] = []


def work(*, number: int) -> dict[str, Any]:
    """Take some tenths of a second."""
    wall, cpu = time.perf_counter(), time.thread_time()
    found = {"sum": float(sum(sum(range(1000)) for _ in range(10_000 + number % 2)))}
    _spent.append((time.perf_counter() - wall, time.thread_time() - cpu))
    return found


def waited(runs: int = 20, rounds: int = 5) -> dict[str, Any]:
    """Measure by how much runs one after the other take longer in a sweep, waits for the disk included; the median of rounds.

    What a sweep adds is at most the time that passes outside of its runs, and what other threads compute beside them.
    """
    plan = SweepPlan(SweepGrid((axis_of("number", range(runs)),), "work"), work)
    with tempfile.TemporaryDirectory() as folder:  # what a store needs is imported
        run_sweep(SweepPlan(SweepGrid((axis_of("number", [0]),), "work"), work), open_store(folder), CallingThread())
    found = sorted(_added(plan, runs) for _ in range(rounds))
    share, more_ms, run_ms, speed = found[len(found) // 2]
    return {
        "measurement": "sweep of runs that compute, on the wall", "runs": runs, "rounds": rounds, "run_ms": round(run_ms, 1),
        "more_ms": round(more_ms, 2), "share_of_a_1s_run": round(share, 5), "all_shares": [round(one[0], 5) for one in found],
        "loop_us": speed,
    }  # fmt: skip


def _added(plan: SweepPlan, runs: int) -> tuple[float, float, float, float]:
    """Return what one sweep adds to a run: the share of a run of 1 s, and milliseconds; then those of a run, and the speed."""
    _spent.clear()
    before = loop_us()
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
        run_sweep(plan, open_store(folder), CallingThread())
        wall, own = time.perf_counter() - wall, time.thread_time() - own
        others = time.process_time() - cpu - own
    inside = sum(one for one, _ in _spent)
    more, speed = (wall - inside + others) / runs, (before + loop_us()) / 2
    return more * _LOOP_US / speed, 1000 * more, 1000 * inside / runs, speed


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
