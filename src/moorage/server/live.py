"""All parts of a live scheduler, wired: watches fill the inbox, the loop asks the engine, a lease says who may act."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from moorage.client.reflector import Reflector
from moorage.client.resources import WATCHED
from moorage.client.rest import Rest
from moorage.engine.machine import Scheduler
from moorage.runtime.inbox import Inbox
from moorage.runtime.leader import Election, Timing, lead
from moorage.runtime.loop import Loop
from moorage.runtime.ports import WallClock
from moorage.server.api_cluster import ApiCluster
from moorage.server.api_lease import ApiLease

__all__ = ["LeaderSettings", "Live"]


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """The lease that this scheduler and its other replicas stand for."""

    namespace: str = "kube-system"
    name: str = "kube-scheduler"
    timing: Timing = field(default_factory=Timing)


class Live:
    """A scheduler on an API server. ``run`` it; cancelling that drains and releases the lease.

    ``leader`` None means to act at once, without a lease. ``chance`` spreads retries; no decision depends on it.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        rest: Rest,
        *,
        identity: str,
        wall: WallClock,
        leader: LeaderSettings | None,
        chance: random.Random,
        report: Callable[[str], None],
        reporter: str = "default-scheduler",
    ) -> None:
        self._rest, self._wall, self._chance, self._report = rest, wall, chance, report
        self._leader = leader
        self.election = None if leader is None else Election(identity, leader.timing)
        self._clock = asyncio.get_running_loop().time
        inbox = Inbox()
        cluster = ApiCluster(rest, wall, reporter, identity)
        self.loop = Loop(scheduler, inbox, cluster, clock=self._clock, wall=wall, may_act=self._may_act, report=report)
        self.reflectors = [
            Reflector(resource, rest, inbox.put, clock=self._clock, rng=chance, report=report) for resource in WATCHED
        ]

    def _may_act(self, now: float) -> bool:
        return self.election is None or self.election.may_act(now)

    @property
    def not_synced(self) -> list[str]:
        """Kinds that were not listed yet."""
        return [one.resource.plural for one in self.reflectors if not one.synced.is_set()]

    @property
    def leads(self) -> bool:
        return self._may_act(self._clock())

    async def run(self) -> None:
        """Schedule until cancelled.

        Raises  LeadershipLostError; whatever ended one of the parts, as the scheduler is of no use without it
        """
        watching = [asyncio.create_task(one.run(), name=f"watch {one.resource.plural}") for one in self.reflectors]
        looping = asyncio.create_task(self.loop.run(), name="loop")
        syncing = asyncio.create_task(self._sync(), name="sync")
        acting = asyncio.create_task(self._act(), name="act")
        try:
            done, _ = await asyncio.wait({*watching, looping, acting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # The loop and the watches go on while work under way ends: its outcomes are facts, too.
            await _ended(acting)
            await _ended(*watching, syncing, looping)
        for task in done:
            await task

    async def _sync(self) -> None:
        for reflector in self.reflectors:
            await reflector.synced.wait()
        self.loop.synced.set()
        self._report("all kinds are listed; scheduling may begin")

    async def _act(self) -> None:
        if self._leader is None or self.election is None:
            await self.loop.act()
            return
        lock = ApiLease(self._rest, self._leader.namespace, self._leader.name)
        self._report(f"waiting for the lease {self._leader.namespace}/{self._leader.name}")
        await lead(self.election, lock, self.loop.act, clock=self._clock, wall=self._wall, rng=self._chance)


async def _ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
