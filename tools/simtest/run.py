"""One run: a world under several faults, then a time without faults, then the oracle's verdict."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from moorage.api.feature_gates import FeatureGates
from moorage.live.runtime.leader_election import Timing
from moorage.live.runtime.loop import USUAL, LoopLimits
from moorage.live.server.live_scheduler import LeaderSettings
from moorage.testing.virtual_time import run_virtually
from tools.simtest.convergence import differences
from tools.simtest.device_world import Gadgets
from tools.simtest.memory_weights import tasks
from tools.simtest.nemesis import FAULTS, OF_HOLDINGS
from tools.simtest.oracle import Terms, judge
from tools.simtest.recording import MemoryRecord, Recording
from tools.simtest.scheduler_process import Member, WatchedScheduler, watched_scheduler
from tools.simtest.storage_world import Disks
from tools.simtest.unruly_plugin import Mood, unruly
from tools.simtest.virtual_api import VirtualApi, wall_time
from tools.simtest.world import World

__all__ = ["FinishedRun", "SimtestRun", "run"]

CHAOS_S, HEAL_S = 60.0, 150.0
#: What pods may use in addition to node resources.
HOLDINGS = ("volumes", "devices")
#: Feature gates for gangs.
_GANGS = {"GenericWorkload": True, "GangScheduling": True}
_PROCESSES = ("schedulers killed", "schedulers terminated", "lease stolen", "partition", "clock jumps")


@dataclass(frozen=True)
class FinishedRun:
    """A finished run. ``broken`` lists the broken invariants; empty means success."""

    seed: int
    faults: tuple[str, ...]
    recording: Recording
    broken: tuple[str, ...]
    bound: int


class SimtestRun:
    """The parts of a run, for faults to act on."""

    def __init__(
        self,
        seed: int,
        faults: Iterable[str],
        plugins: Iterable[type[Any]] = (),
        chaos_s: float = CHAOS_S,
        *,
        gangs: bool = False,
        holding: Iterable[str] = (),
        crowded: bool = False,
    ) -> None:
        self.crowded = crowded
        self.faults, self.chaos_s, self.gangs, self.holding = list(faults), chaos_s, gangs, list(holding)
        self._opened = _GANGS if gangs else {}
        rng = random.Random(f"{seed}/world")  # noqa: S311
        self.api = VirtualApi(seed, gates=FeatureGates(self._opened))
        self.world = World(self.api, rng, end_after_s=rng.choice([0.5, 3.0]))
        if "volumes" in self.holding:
            self.world.furnish(Disks(self.api, random.Random(f"{seed}/disks")))  # noqa: S311
        if "devices" in self.holding:
            self.world.furnish(Gadgets(self.api, random.Random(f"{seed}/gadgets")))  # noqa: S311
        self.api.network.streams = rng.random() < 0.5
        self.wall_offset_s = 0.0
        self.size = rng.choice([2, 3, 5])
        self.moods: list[Mood] = []
        self._seed, self._rng = seed, rng
        self._plugins = list(plugins)
        standby = any(fault in _PROCESSES for fault in self.faults) and rng.random() < 0.7
        drawn = random.Random(f"{seed}/limits")  # noqa: S311
        self._limits = LoopLimits(inbox=drawn.choice([4, 20, 100]), facts=drawn.choice([1, 2, 5])) if crowded else USUAL
        self._leader = None if crowded and not standby and drawn.random() < 0.5 else LeaderSettings(timing=Timing())
        self.members = [self._member(name) for name in (["a", "b"] if standby else ["a"])]

    @property
    def now(self) -> float:
        return self.api.clock()

    def _member(self, name: str) -> Member:
        mood = Mood(random.Random(f"{self._seed}/{name}"), self.api.recording)  # noqa: S311
        self.moods.append(mood)

        def make(actor: str) -> WatchedScheduler:
            plugins = [unruly("Unruly", actor, mood), unruly("Unrulier", actor, mood), *self._plugins]
            return watched_scheduler(actor, self.api.recording, plugins, seed=self._seed, opened=self._opened)

        return Member(
            self.api, name, make, leader=self._leader, rng=random.Random(f"{self._seed}/{name}/wait"),  # noqa: S311
            wall=lambda: wall_time(self.now + self.wall_offset_s), limits=self._limits,
        )  # fmt: skip

    async def play(self) -> None:
        """Start the world and the schedulers, inject the faults, then remove them."""
        for number in range(self.size):
            self.world.node(f"n{number}", self._rng.choice([2, 4]), "ab"[number % 2])
        for what in self.world.furniture():
            what.begin(self.size)
        for _ in range(self._rng.randrange(4)):
            self.world.any_pod()
        if self.crowded:
            self.world.crowd()
        for member in self.members:
            member.start()
        await asyncio.sleep(self._rng.choice([0.0, 0.05, 3.0]))
        await self._inject_faults()
        await self._heal()

    async def _inject_faults(self) -> None:
        faults = [asyncio.ensure_future(self._inject(name)) for name in self.faults]
        end = self.now + self.chaos_s
        while self.now < end:
            pods = self.world.pods()
            if len(pods) < 6 * self.size:
                self._more()
            elif self._rng.random() < 0.3:
                self.world.delete_pod(self._rng.choice(pods)["metadata"]["name"])
            for what in self.world.furniture():
                what.clear_away()
            await asyncio.sleep(self._rng.uniform(0.05, 3.0))
        for task in faults:
            task.cancel()
        for failed in await asyncio.gather(*faults, return_exceptions=True):
            if isinstance(failed, Exception):
                raise failed

    def _more(self) -> None:
        if self.gangs and self._rng.random() < 0.4:
            self.world.any_gang()
        else:
            self.world.any_pod()

    async def _inject(self, name: str) -> None:
        rng = random.Random(f"{self._seed}/{name}")  # noqa: S311
        await asyncio.sleep(rng.uniform(0, self.chaos_s / 2))
        self.api.recording.fault(f"{name}: begins")
        await FAULTS[name](self, rng, rng.uniform(5, self.chaos_s / 2))
        self.api.recording.fault(f"{name}: ends")

    async def _heal(self) -> None:
        """Remove every fault, and let the system settle before pods are flushed from the unschedulable ones by timeout."""
        self.api.recording.fault("all is well")
        self.api.network.heal()
        for mood in self.moods:
            mood.calm()
        await asyncio.sleep(25)
        for number in range(self.size):
            self.world.touch_node(f"n{number}")
        await asyncio.sleep(75)
        self._measure()
        await asyncio.sleep(HEAL_S - 100)
        self._measure()

    def _measure(self) -> None:
        for member in self.members:
            count = tasks(self.world.tasks)
            self.api.recording.add(MemoryRecord(self.now, member.actor, "tasks", count))


async def _play(seed: int, faults: list[str], plugins: Iterable[type[Any]], chaos_s: float, **worlds: Any) -> FinishedRun:
    simulation = SimtestRun(seed, faults, plugins, chaos_s, **worlds)
    recording = simulation.api.recording
    await simulation.play()
    broken = list(recording.broken)
    if not any(member.live is not None and member.live.leads for member in simulation.members):
        broken.append("L4: no scheduler leads")
    for member in simulation.members:
        broken += differences(member, simulation.world, recording.entries)
    alone = not ({"bind done late"} & set(faults))
    broken += judge(recording.entries, Terms(settled=True, calm=alone))
    broken += [f"S10: {who} {how}" for _, who, how in recording.exits if how.startswith(("crashed", "returned"))]
    for member in simulation.members:
        await member.stop()
    bound = sum(1 for pod in simulation.world.pods() if pod["spec"].get("nodeName"))
    return FinishedRun(seed, tuple(faults), recording, tuple(broken), bound)


def run(
    seed: int, faults: Iterable[str] | None = None, plugins: Iterable[type[Any]] = (), chaos_s: float = CHAOS_S, *,
    gangs: bool = False, holding: Iterable[str] | None = None, crowded: bool | None = None,
) -> FinishedRun:  # fmt: skip
    """Run a simulation in virtual time: ``chaos_s`` seconds of faults, by default three to six random ones, then none.

    ``gangs``: create pod groups with gang scheduling. ``holding``: what pods use in addition to node resources, of
    ``HOLDINGS``; random for None. ``crowded``: all nodes start full, with more pods than a scheduler processes between two
    attempts and than its inbox holds; leader election may be off. Random for None.
    """
    if crowded is None:
        crowded = random.Random(f"{seed}/crowd").random() < 0.25  # noqa: S311
    if holding is None:
        drawn = random.Random(f"{seed}/holding").random()  # noqa: S311
        holding = [name for name, share in zip(HOLDINGS, (drawn < 0.125, drawn > 0.875), strict=True) if share]
    if faults is None:
        rng = random.Random(f"{seed}/faults")  # noqa: S311
        left_out = () if holding else OF_HOLDINGS
        faults = rng.sample(sorted(FAULTS.keys() - left_out), rng.randrange(3, 7))
    return run_virtually(_play(seed, list(faults), plugins, chaos_s, gangs=gangs, holding=list(holding), crowded=crowded))
