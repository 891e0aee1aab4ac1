"""Measure how fast the embedded API server's store accepts writes, in memory and in a file, alternating in one process.

Each writer creates pods one after the other and waits until each is durable, as a client would; writers run concurrently on one
event loop. In a file, concurrent writes share one sync, so the cost of a file depends on the number of waiting writes.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from moorage.api.documents.served_kinds import served
from moorage.cluster.apiserver.http.serve import open_store

__all__ = ["Rate", "measure_writes"]

_PODS: Final = served("pods")


class Rate(NamedTuple):
    """``per_s`` by wall clock, ``per_cpu_s`` by CPU time of the process."""

    per_s: float
    per_cpu_s: float


def _pod(i: int) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
    metadata = {"name": f"p{i}", "labels": {"app": "web"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


async def _write(path: Path | None, count: int, writers: int) -> Rate:
    store = open_store(path, seed=1)
    numbers = iter(range(count))

    async def write() -> None:
        for i in numbers:
            store.create(_PODS, "default", _pod(i))
            await store.settle()

    start, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(write() for _ in range(writers)))
    took_s, used_s = time.perf_counter() - start, time.process_time() - cpu
    store.close()
    return Rate(count / took_s, count / used_s)


def measure_writes(folder: Path | None, count: int, writers: int, rounds: int) -> tuple[Rate, Rate]:
    """Return the median rates in memory and in a file in a folder, which should be on the disk to measure."""
    memory, kept = [], []
    for _ in range(rounds):
        memory.append(asyncio.run(_write(None, count, writers)))
        with TemporaryDirectory(dir=folder) as home:
            kept.append(asyncio.run(_write(Path(home) / "data", count, writers)))
    return _median(memory), _median(kept)


def _median(rates: list[Rate]) -> Rate:
    return Rate(median(one.per_s for one in rates), median(one.per_cpu_s for one in rates))
