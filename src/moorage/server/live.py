"""All parts of a live scheduler, wired: watches fill the inbox, the loop asks the engine, a lease says who may act."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from moorage.client.raw_objects import WholeObjects
from moorage.client.reflector import Reflector
from moorage.client.resources import custom_resource, watched
from moorage.client.rest import Rest
from moorage.engine.scheduler import Scheduler
from moorage.errors import ClusterError, MoorageError
from moorage.runtime.inbox import Inbox
from moorage.runtime.leader_election import Election, Timing, lead
from moorage.runtime.loop import USUAL, Loop, LoopLimits
from moorage.runtime.observer import SILENT, UNMEASURED, Log, Measures
from moorage.runtime.ports import Extenders, WallClock
from moorage.server.api_cluster import ApiCluster
from moorage.server.api_locks import AnyLock, lock_on

__all__ = ["LeaderSettings", "Live", "PartEndedError"]

#: For how long events are still written once the lease was released.
_FLUSH_S = 1.0


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """The lease that this scheduler and its other replicas stand for, or what ``lock`` names in its place."""

    namespace: str = "kube-system"
    name: str = "kube-scheduler"
    timing: Timing = field(default_factory=Timing)
    lock: str = "leases"


class PartEndedError(MoorageError):
    """A part of the scheduler was cancelled, and not by who runs it: a plugin did, say."""


class Live:
    """A scheduler on an API server. ``run`` it; cancelling that drains and releases the lease, and writes events for a moment.

    ``leader`` None means to act at once, without a lease. ``chance`` spreads retries; no decision depends on it. ``report`` is
    told what went wrong and was survived, ``log`` and ``measures`` what is done. ``delayed``: nothing is watched before it
    leads.
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
        log: Log = SILENT,
        measures: Measures | None = UNMEASURED,
        delayed: bool = False,
        extenders: Extenders | None = None,
        limits: LoopLimits = USUAL,
    ) -> None:
        self._rest, self._wall, self._chance, self._log = rest, wall, chance, log
        self._leader = leader
        self._wanted = asyncio.Event()
        if not delayed:
            self._wanted.set()
        self._identity, self._reporter = identity, reporter
        self.election = None if leader is None else Election(identity, leader.timing)
        self._clock = asyncio.get_running_loop().time
        inbox = Inbox(limits.inbox)
        cluster = ApiCluster(rest, reporter, identity.partition("_")[0])
        self.loop = Loop(
            scheduler, inbox, cluster, clock=self._clock, wall=wall, may_act=self._may_act, report=report, log=log,
            measures=measures, unix=lambda: datetime.fromisoformat(wall()).timestamp(), extenders=extenders, limits=limits,
        )  # fmt: skip
        whole = WholeObjects() if scheduler.cycle.extenders else None
        if whole is not None:
            scheduler.cycle.whole = whole.json_of
        named = scheduler.named_kinds
        for name in named.unusable:
            log.error(None, "Incorrect event registration", gvk=name)
        self.reflectors = [
            Reflector(
                resource,
                rest,
                inbox.source(resource.plural),
                clock=self._clock,
                rng=chance,
                report=report,
                whole=whole,
                streams=True,
            )
            for resource in (*watched(scheduler.gates), *map(custom_resource, named.kinds))
        ]

    def _may_act(self, now: float) -> bool:
        return self.election is None or self.election.may_act(now)

    @property
    def not_synced(self) -> list[str]:
        """Kinds of which the engine does not have the first list."""
        return [source.name for source in self.loop.inbox.sources if not source.synced]

    @property
    def waits_for(self) -> list[str]:
        """What it waits for before it schedules: lists, each with what was wrong with it last."""
        pairs = zip(self.reflectors, self.loop.inbox.sources, strict=True)
        left = [(source.name, one.trouble) for one, source in pairs if not source.synced]
        failed = [f"the list of {name}, which failed ({trouble})" for name, trouble in left if trouble]
        others = [name for name, trouble in left if not trouble]
        return [*failed, *([f"the list{'s' if len(others) > 1 else ''} of {', '.join(others)}"] if others else [])]

    @property
    def unserved(self) -> list[str]:
        """Kinds that the server does not serve."""
        return [one.resource.kind for one in self.reflectors if one.unserved]

    @property
    def leads(self) -> bool:
        return self._may_act(self._clock())

    async def run(self) -> None:
        """Schedule until cancelled.

        Raises  LeadershipLostError; PartEndedError; whatever ended one of the parts, as the scheduler is of no use without it
        """
        watching = [asyncio.create_task(self._follow(one), name=f"watch {one.resource.plural}") for one in self.reflectors]
        looping = asyncio.create_task(self.loop.run(), name="loop")
        syncing = asyncio.create_task(self._sync(), name="sync")
        acting = asyncio.create_task(self._act(), name="act")
        try:
            done, _ = await asyncio.wait({*watching, looping, acting}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await _ended(acting)
            await self.loop.flush(_FLUSH_S)
            raise
        finally:
            # The loop and the watches go on while work under way ends: its outcomes are facts, too.
            await _ended(acting)
            await _ended(*watching, syncing, looping)
        for task in done:
            if task.cancelled():
                raise PartEndedError(f"{task.get_name()}: cancelled from within the process")
            await task

    async def _follow(self, reflector: Reflector[Any]) -> None:
        await self._wanted.wait()
        await reflector.run()

    async def _sync(self) -> None:
        await self.loop.synced.wait()
        self._log.info(3, "Handlers synced")

    async def _act(self) -> None:
        if self._leader is None or self.election is None:
            self._wanted.set()
            await self.loop.act()
            return
        if self._wanted.is_set():  # who cannot list the cluster must not keep the lease from those who can
            await self.loop.synced.wait()
        lock = lock_on(self._rest, self._leader.lock, self._leader.namespace, self._leader.name, self._identity)
        name = f"{self._leader.namespace}/{self._leader.name}"
        await lead(
            self.election, lock, self._led(lock), clock=self._clock, wall=self._wall, rng=self._chance, log=self._log, name=name
        )

    def _led(self, lock: AnyLock) -> Callable[[], Awaitable[None]]:
        """What to do once this replica leads: say so where people look, without waiting for that, and schedule."""

        async def act() -> None:
            self._wanted.set()
            telling = asyncio.create_task(self._tell_of_leading(lock), name="tell of leading")
            try:
                await self.loop.act()
            finally:
                await _ended(telling)

        return act

    async def _tell_of_leading(self, lock: AnyLock) -> None:
        try:
            await lock.tell(f"{self._identity} became leader", self._wall(), self._reporter)
        except ClusterError as error:
            self._log.error(error, "Server rejected event (will not retry!)", reason="LeaderElection")


async def _ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
