"""Measurements of a live scheduler on the embedded API server: separate processes, TLS, one machine.

Every measurement returns figures for JSON. ``load`` is the machine's load average of the last minute, and ``loop_us`` the CPU
microseconds of a fixed computation: how busy and how fast the machine was.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, monotonic_ns, process_time
from typing import Any, Final

from benchmarks.live_world import EVENTS, PODS, Scheduler, World, world
from moorage.api.documents.records import Record
from moorage.rules.store.deletion import DeleteOptions
from moorage.rules.store.watches import CAPACITY

__all__ = ["LIVE", "LiveSizes", "measure"]

_ALONE: Final = "--leader-elect=false"
#: Polling interval for conditions without a notification.
_LOOK_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class LiveSizes:
    """``pods`` are measured, ``init`` exist before. ``seconds``: duration of a soak; ``lease``: its leader election flags.

    ``workload``: the workload of the pods for throughput, one of ``python -m benchmarks list``. ``peer``: the program of
    another scheduler.
    """

    nodes: int
    init: int = 0
    pods: int = 0
    seconds: float = 60.0
    lease: tuple[str, ...] = ()
    profile: Path | None = None
    workload: str = "basic"
    peer: Path | None = None


async def throughput(sizes: LiveSizes) -> dict[str, Any]:
    """Measure pods bound per second. They are created while the scheduler is stopped, so that creating them is not measured."""
    profiled = () if sizes.profile is None else ("-m", "cProfile", "-o", str(sizes.profile))
    return await _throughput(sizes, lambda there: there.scheduler(_ALONE, before=profiled))


async def against(sizes: LiveSizes) -> dict[str, Any]:
    """Measure the throughput of a peer and of Moorage, one after the other on equal clusters; ratios are relative to the peer.

    ``peer_pods_per_s`` is the throughput of the peer together with the server on this machine: the server uses a share of it.
    """
    program = sizes.peer
    if program is None:
        raise ValueError("--peer must name the program to compare with")
    theirs = await _throughput(sizes, lambda there: there.peer(program, _ALONE))
    ours = await _throughput(sizes, lambda there: there.scheduler(_ALONE))
    return {
        **ours,
        **{f"peer_{what}": found for what, found in theirs.items()},
        "times_pods_per_s": round(ours["pods_per_s"] / theirs["pods_per_s"], 2),
        "times_pods_per_cpu_s": round(ours["pods_per_cpu_s"] / theirs["pods_per_cpu_s"], 2),
    }


async def _throughput(sizes: LiveSizes, start: Callable[[World], Awaitable[Scheduler]]) -> dict[str, Any]:
    async with world(sizes.nodes, sizes.init, sizes.workload, coming=sizes.pods + 1) as there:
        scheduler = await start(there)
        await there.ready()
        scheduler.process.send_signal(signal.SIGSTOP)
        events = there.store.count(EVENTS)
        uids = await there.create_all(sizes.pods)
        began, cpu, own = monotonic(), scheduler.cpu_s, process_time()
        scheduler.process.send_signal(signal.SIGCONT)
        bound = there.follower.bound
        await there.follower.until(lambda: uids[-1] in bound and all(uid in bound for uid in uids))
        wall, busy = max(bound[uid] for uid in uids) - began, scheduler.cpu_s - cpu
        await _until(lambda: there.store.count(EVENTS) - events >= sizes.pods, 60.0)
        all_busy = scheduler.cpu_s - cpu
        return {
            "pods_per_s": round(sizes.pods / wall, 1),
            "wall_s": round(wall, 3),
            "cpu_s_per_1000": round(1000 * all_busy / sizes.pods, 4),
            # The clock of another process has steps of 10 ms.
            "pods_per_cpu_s": round(sizes.pods / max(all_busy, 0.01), 1),
            "cpu_s_per_1000_until_bound": round(1000 * busy / sizes.pods, 4),
            "server_cpu_s_per_1000": round(1000 * (process_time() - own) / sizes.pods, 4),
            "rss_mib": scheduler.memory_mib(),
            "broken": there.follower.broken,
        }


async def lag(sizes: LiveSizes) -> dict[str, Any]:
    """Measure how late the engine sees a change during a burst of changes."""
    async with world(sizes.nodes, sizes.init) as there:
        witness = await there.witness()
        await witness.ask("state")
        _burst(there, [*there.store.all(PODS)][: sizes.pods], "1")
        return await witness.ask("await", 1, sizes.pods)


async def relist(sizes: LiveSizes) -> dict[str, Any]:
    """Measure how long the engine needs to see everything again after its watch has expired (410)."""
    async with world(sizes.nodes, sizes.init) as there:
        witness = await there.witness()
        await witness.ask("state")
        cpu = witness.cpu_s
        await there.hang_up()
        pods = [*there.store.all(PODS)]
        for _ in range(CAPACITY // len(pods) + 1):  # without watches, write more than the history holds
            _burst(there, pods[:CAPACITY], "1")
        last = [*there.store.all(PODS)][-1000:]
        _burst(there, last, "2")
        await there.serve()
        seen = await witness.ask("await", 2, len(last))
        listed = "listing again" in witness.log.read_text()
        cpu_s = round(witness.cpu_s - cpu, 2)
        return {"in_sync_s": seen["all_s"], "listed": listed, "cpu_s": cpu_s, "rss_mib": witness.memory_mib()}


async def cold_start(sizes: LiveSizes) -> dict[str, Any]:
    """Measure the time from process start to the first bind, and the memory after it."""
    async with world(sizes.nodes, sizes.init) as there:
        uids = [*there.create(sizes.pods)]
        began = monotonic()
        scheduler = await there.scheduler(_ALONE)
        bound = there.follower.bound
        await there.follower.until(lambda: any(uid in bound for uid in uids))
        first = min(bound[uid] for uid in uids if uid in bound) - began
        await there.follower.until(lambda: all(uid in bound for uid in uids))
        return {
            "first_bind_s": round(first, 3), "cpu_s": round(scheduler.cpu_s, 2), "rss_mib": scheduler.memory_mib(),
            "peak_mib": scheduler.memory_mib("VmHWM"),
        }  # fmt: skip


async def failover(sizes: LiveSizes) -> dict[str, Any]:
    """Measure how long pods wait when the leader is killed, and when it is terminated."""
    took: dict[str, Any] = {}
    for how in (signal.SIGKILL, signal.SIGTERM):
        async with world(sizes.nodes, sizes.init) as there:
            first = await there.scheduler(*sizes.lease)
            await there.ready()
            await there.scheduler(*sizes.lease)
            await asyncio.sleep(3.0)  # the standby has listed everything by then
            began = monotonic()
            first.process.send_signal(how)
            if how is signal.SIGKILL:
                await first.process.wait()
            took[f"{how.name.lower()}_s"] = round(await _next_bound(there) - began, 3)
            took[f"broken_{how.name.lower()}"] = there.follower.broken
    return took


async def _next_bound(there: World) -> float:
    """Return when one of the new pods is bound; one is created every tenth of a second."""
    uids: list[str] = []
    bound = there.follower.bound
    while not any(uid in bound for uid in uids):
        uids += there.create(1)
        await asyncio.sleep(0.1)
    return min(bound[uid] for uid in uids if uid in bound)


async def soak(sizes: LiveSizes) -> dict[str, Any]:
    """Create and delete pods for a while. Memory, files and tasks must not grow, and no pod may be lost or bound twice."""
    async with world(sizes.nodes, sizes.init) as there:
        witness = await there.witness()
        await witness.ask("state")
        draw = random.Random(0)
        samples: list[dict[str, Any]] = []
        alive: list[str] = []
        ends = monotonic() + sizes.seconds
        while monotonic() < ends:
            due = monotonic() + 1.0
            await there.create_all(sizes.pods)
            alive = _after_some_went(there, draw, keep=sizes.pods * 5)
            await asyncio.sleep(max(0.0, due - monotonic()))
            samples.append(await _sample(witness))
        bound = there.follower.bound
        await _until(lambda: all(record.fields["spec.nodeName"] for record in there.store.all(PODS)), 60.0)
        await _until_async(lambda: _is_quiet(witness, there), 60.0)
        last = await _sample(witness)
        early = samples[len(samples) // 3]
        return {
            "seconds": sizes.seconds, "bound": len(bound), "alive": len(alive), "broken": there.follower.broken,
            "pods_known": last["pods"], "pods_there": there.store.count(PODS),
            "early": early, "last": last,
        }  # fmt: skip


def _after_some_went(there: World, draw: random.Random, keep: int) -> list[str]:
    """Delete new pods until ``keep`` are left; return their names."""
    names = [record.name for record in there.store.all(PODS) if record.name.startswith("new-")]
    draw.shuffle(names)
    for name in names[keep:]:
        there.store.delete(PODS, "default", name, DeleteOptions(grace_s=0))
    return names[:keep]


async def _sample(witness: Scheduler) -> dict[str, Any]:
    state = await witness.ask("state")
    return {**state, "rss_mib": witness.memory_mib(), "files": witness.files}


async def _is_quiet(witness: Scheduler, there: World) -> bool:
    state = await witness.ask("state")
    return bool(state["pods"] == there.store.count(PODS) and not state["assumed"] and not state["pending"])


def _burst(there: World, pods: Sequence[Record], turn: str) -> None:
    """Update these pods without a pause; a label carries the time."""
    for record in pods:
        document = record.document()
        document["metadata"].setdefault("labels", {}).update(round=turn, sent=str(monotonic_ns()))
        there.store.put(PODS, record, document)


async def _until(met: Callable[[], bool], patience_s: float) -> None:
    async with asyncio.timeout(patience_s):
        while not met():
            await asyncio.sleep(_LOOK_S)


async def _until_async(met: Callable[[], Awaitable[bool]], patience_s: float) -> None:
    async with asyncio.timeout(patience_s):
        while not await met():
            await asyncio.sleep(_LOOK_S * 10)


def _loop_us() -> float:
    began = process_time()
    for _ in range(2000):
        sum(range(1000))
    return round((process_time() - began) * 1e6 / 2000, 2)


Measurement = Callable[[LiveSizes], Coroutine[Any, Any, dict[str, Any]]]

#: Name → the measurement and its default sizes.
LIVE: Final[dict[str, tuple[Measurement, tuple[LiveSizes, ...]]]] = {
    "throughput": (throughput, (LiveSizes(1000, 0, 5000), LiveSizes(5000, 0, 5000))),
    "against": (against, (LiveSizes(1000, 0, 2000), LiveSizes(5000, 0, 2000))),
    "lag": (lag, (LiveSizes(1000, 10_000, 10_000),)),
    "relist": (relist, (LiveSizes(5000, 150_000),)),
    "cold-start": (cold_start, (LiveSizes(100, 1000, 1), LiveSizes(5000, 150_000, 1))),
    "failover": (failover, (LiveSizes(100),)),
    "soak": (soak, (LiveSizes(100, 500, 100),)),
}


def measure(name: str, **given: Any) -> list[dict[str, Any]]:
    """Run a measurement at its default sizes, except the given ones."""
    measured, usual = LIVE[name]
    found = []
    for sizes in dict.fromkeys(replace(one, **given) for one in usual):
        loop_us = _loop_us()
        figures = asyncio.run(measured(sizes))
        about = {"live": name, "nodes": sizes.nodes, "init": sizes.init, "pods": sizes.pods, "workload": sizes.workload}
        found.append(
            {**about, **figures, "load": round(os.getloadavg()[0], 2), "loop_us": round((loop_us + _loop_us()) / 2, 2)}
        )
    return found
