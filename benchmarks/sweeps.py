"""What a sweep costs beside its runs: keys, workers, files, the index."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import Any

from moorage.sweeps.executors import process_pool
from moorage.sweeps.grid import SweepGrid, axis_of
from moorage.sweeps.store import open_store
from moorage.sweeps.sweep import SweepPlan, run_sweep

__all__ = ["measure_sweeps", "nothing"]


def nothing(*, number: int, seed: int) -> dict[str, Any]:
    """Return as much as a run of a cluster measures, at once."""
    return {f"metric{at}": float(number + seed + at) for at in range(40)}


def measure_sweeps(runs: int = 400) -> Iterator[dict[str, Any]]:
    """Yield the milliseconds that a sweep takes for each run that does nothing, and for each run that is in the store."""
    plan = SweepPlan(SweepGrid((axis_of("number", range(runs // 10)), axis_of("seed", range(10))), "nothing"), nothing)
    with tempfile.TemporaryDirectory() as folder, process_pool(2) as pool:
        list(pool.map(abs, range(8)))  # the processes start
        for name in ("made", "stored"):
            wall, cpu = time.perf_counter(), time.process_time()
            found = run_sweep(plan, open_store(folder), pool)
            assert len(found) == len(plan.grid)
            cpu_ms = 1000 * (time.process_time() - cpu) / len(found)
            wall_ms = 1000 * (time.perf_counter() - wall) / len(found)
            yield {
                "measurement": f"sweep, runs {name}", "runs": len(found),
                "cpu_ms": round(cpu_ms, 3), "wall_ms": round(wall_ms, 3),
                "cpu_share_of_a_1s_run": round(cpu_ms / 1000, 5),
            }  # fmt: skip
