"""A live scheduler that reports what it has seen, for measurements inside the process.

It is wired like ``moorage run``. Pods with a label ``round`` are counted when the engine has processed them; the label ``sent``
holds the time of the change, in nanoseconds of the machine's monotonic clock. Each line on standard input is a query, answered
by a line of JSON:

    await ROUND COUNT   wait for so many pods of a round: their delay, and the total time
    state               the scheduler's counts of pods, tasks and faults
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from moorage.api.core import Pod
from moorage.basis.client.credentials import Endpoint
from moorage.basis.client.kubeconfig import ClientEnvironment, read_kubeconfig
from moorage.basis.client.rest import Rest
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.building.builder import complete_scheduler
from moorage.core.engine.facts import Fact, Seen
from moorage.live.runtime.attempt_metrics import Observers
from moorage.live.server.live_scheduler import Live, LiveSettings
from moorage.live.server.scheduler_metrics import SchedulerMetrics

__all__ = ["main"]


class Rounds:
    """When which pods of which round were seen."""

    def __init__(self) -> None:
        self._sent: dict[str, dict[str, int]] = {}
        self._seen: dict[str, dict[str, int]] = {}
        self._news = asyncio.Event()

    def note(self, pod: Pod) -> None:
        labels = pod.metadata.labels
        turn = labels.get("round")
        if turn is not None:
            self._sent.setdefault(turn, {})[pod.uid] = int(labels["sent"])
            self._seen.setdefault(turn, {}).setdefault(pod.uid, time.monotonic_ns())
            self._news.set()

    async def all_of(self, turn: str, count: int) -> dict[str, Any]:
        """Wait for so many pods of a round. Times in ms; ``all_s`` from the first change until the last pod was seen."""
        while len(self._seen.get(turn, ())) < count:
            self._news.clear()
            await self._news.wait()
        sent, seen = self._sent[turn], self._seen[turn]
        late = [(seen[uid] - sent[uid]) / 1e6 for uid in seen]
        p50, p99 = np.percentile(late, [50, 99])
        took_s = (max(seen.values()) - min(sent.values())) / 1e9
        return {"seen": len(seen), "p50_ms": round(float(p50), 2), "p99_ms": round(float(p99), 2), "all_s": round(took_s, 3)}


async def main(kubeconfig: str) -> None:
    """Schedule until standard input ends."""
    rounds, endpoint = Rounds(), _endpoint(kubeconfig)
    scheduler = complete_scheduler(load_source(ConfigSource()), 0)
    async with Rest(endpoint, qps=0) as rest:
        live = Live(
            scheduler, rest, LiveSettings(), identity="witness_0", wall=_wall, chance=random.Random(0),
            observers=Observers(lambda line: print(line, file=sys.stderr), measures=SchedulerMetrics(time.monotonic)),
        )  # fmt: skip
        live.loop.scheduler.observe = _watched(scheduler.observe, rounds)  # type: ignore[assignment, method-assign]
        running = asyncio.create_task(live.run())
        asking = asyncio.create_task(_answer(live, rounds))
        await asyncio.wait({running, asking}, return_when=asyncio.FIRST_COMPLETED)
        for task in (running, asking):
            task.cancel()
        await asyncio.gather(running, asking, return_exceptions=True)


def _watched(observe: Callable[[Fact, float], None], rounds: Rounds) -> Callable[[Fact, float], None]:
    def observed(fact: Fact, now: float) -> None:
        observe(fact, now)
        if isinstance(fact, Seen) and isinstance(fact.obj, Pod):
            rounds.note(fact.obj)

    return observed


async def _answer(live: Live, rounds: Rounds) -> None:
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := (await lines.readline()).decode().split():
        match line:
            case ["await", turn, count]:
                answer = await rounds.all_of(turn, int(count))
            case _:
                await live.loop.synced.wait()
                answer = _state(live)
        print(msgspec.json.encode(answer).decode(), flush=True)


def _state(live: Live) -> dict[str, Any]:
    scheduler = live.loop.scheduler
    pending = sum(scheduler.queue.counts().values())
    return {
        "pods": scheduler.cluster.pod_count, "assumed": len(scheduler.cluster.assumed), "pending": pending,
        "tasks": len(asyncio.all_tasks()), "faults": live.loop.faults, "dropped_events": live.loop.dropped_events,
    }  # fmt: skip


def _endpoint(kubeconfig: str) -> Endpoint:
    around = ClientEnvironment({}, time.monotonic, lambda: datetime.now(UTC))
    return read_kubeconfig([Path(kubeconfig)], must_exist=True).endpoint(around)


def _wall() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
