"""A live scheduler: reflectors fill the inbox, the loop drives the engine, and leader election decides when it may act."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from moorage.basis.client.raw_objects import FOR_EXTENDERS, WRITTEN, RawObjects
from moorage.basis.client.reflector import Reflector, Sink
from moorage.basis.client.rest import Rest
from moorage.basis.client.watched_resources import custom_resource, groups_of, watched
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import ClusterError, MoorageError
from moorage.live.runtime.attempt_metrics import UNOBSERVED, Observers
from moorage.live.runtime.inbox import Inbox
from moorage.live.runtime.leader_election import Election, Timing, end_tasks, lead
from moorage.live.runtime.loop import USUAL, Loop, LoopLimits
from moorage.live.runtime.ports import Clocks, Extenders, WallClock
from moorage.live.runtime.side_loop import SideLoop, across
from moorage.live.server.api_cluster import ApiCluster
from moorage.live.server.election_locks import AnyLock, lock_on

#: Seconds for writing the remaining events after the lease is released.
_FLUSH_S = 1.0


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """The lease (or the lock object that ``lock`` names) that the replicas of this scheduler compete for."""

    namespace: str = "kube-system"
    name: str = "kube-scheduler"
    timing: Timing = field(default_factory=Timing)
    lock: str = "leases"


@dataclass(frozen=True, slots=True)
class Aside:
    """Where the lease is kept, so that a busy loop does not lose it: another loop, and the client to use there."""

    loop: SideLoop
    rest: Callable[[], Rest]


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """How a scheduler runs on an API server.

    ``leader``     the lease it competes for; None: act at once, without a lease
    ``reporter``   the component name in the events that it writes
    ``delayed``    start the watches only once it leads
    ``extenders``  the client that asks the configured extenders
    ``sink_of``    wraps the sink of each watch, to record what it delivers
    ``aside``      where the lease is kept; None: on the loop that schedules
    """

    leader: LeaderSettings | None = None
    reporter: str = "default-scheduler"
    delayed: bool = False
    extenders: Extenders | None = None
    sink_of: Callable[[Sink], Sink] = lambda sink: sink
    limits: LoopLimits = USUAL
    aside: Aside | None = None


class PartEndedError(MoorageError):
    """A task of the scheduler was cancelled from inside the process, for example by a plugin."""


class Live:
    """A scheduler on an API server. When ``run`` is cancelled, it finishes its work, releases the lease and flushes its events.

    ``identity`` names this replica in the lease. ``chance`` randomizes retries and influences no decision.
    """

    def __init__(
        self, scheduler: Scheduler, rest: Rest, settings: LiveSettings, *, identity: str, wall: WallClock,
        chance: random.Random, observers: Observers = UNOBSERVED,
    ) -> None:  # fmt: skip
        self._rest, self._wall, self._chance, self._log = rest, wall, chance, observers.log
        self._leader = settings.leader
        self._may_watch = asyncio.Event()
        if not settings.delayed:
            self._may_watch.set()
        self._identity, self._reporter, self._aside = identity, settings.reporter, settings.aside
        self.election = None if settings.leader is None else Election(identity, settings.leader.timing)
        self._clock = _clock_of(asyncio.get_running_loop())
        inbox = Inbox(settings.limits.inbox)
        raw_objects = RawObjects(WRITTEN | (FOR_EXTENDERS if scheduler.cycle.extenders else frozenset()))
        groups = groups_of(scheduler.gates)
        cluster = self._cluster = ApiCluster(rest, settings.reporter, identity.partition("_")[0], groups, raw_objects)
        clocks = Clocks(self._clock, wall, lambda: datetime.fromisoformat(wall()).timestamp())
        self.loop = Loop(
            scheduler, inbox, cluster, clocks,
            observers=observers, may_act=self._may_act, extenders=settings.extenders, limits=settings.limits,
        )  # fmt: skip
        if scheduler.cycle.extenders:
            scheduler.cycle.whole = raw_objects.json_of
        named = scheduler.named_kinds
        for name in named.unusable:
            self._log.error(None, "Incorrect event registration", gvk=name)
        self.reflectors = [
            Reflector(
                resource,
                rest,
                settings.sink_of(inbox.source(resource.plural)),
                clock=self._clock,
                rng=chance,
                report=observers.report,
                raw_objects=raw_objects if resource.type in raw_objects.kinds else None,
                streams=True,
            )
            for resource in (*watched(scheduler.gates), *map(custom_resource, named.kinds))
        ]

    def _may_act(self, now: float) -> bool:
        return self.election is None or self.election.may_act(now)

    @property
    def not_synced(self) -> list[str]:
        """Kinds whose first list the engine has not processed yet."""
        return [source.name for source in self.loop.inbox.sources if not source.synced]

    @property
    def waits_for(self) -> list[str]:
        """The lists that are missing before scheduling can start, with the last error of each."""
        pairs = zip(self.reflectors, self.loop.inbox.sources, strict=True)
        left = [(source.name, one.last_error) for one, source in pairs if not source.synced]
        failed = [f"the list of {name}, which failed ({trouble})" for name, trouble in left if trouble]
        others = [name for name, trouble in left if not trouble]
        return [*failed, *([f"the list{'s' if len(others) > 1 else ''} of {', '.join(others)}"] if others else [])]

    @property
    def unserved(self) -> list[str]:
        """Kinds that the API server does not serve."""
        return [one.resource.kind for one in self.reflectors if one.unserved]

    @property
    def leads(self) -> bool:
        return self._may_act(self._clock())

    async def run(self) -> None:
        """Schedule until cancelled. Whether the API server answers for ``events.k8s.io/v1`` is asked once, at the start.

        Raises  LeadershipLostError; PartEndedError; the error that ended a part: the scheduler cannot run without it
        """
        if not await self._cluster.serves_events_api():
            self.loop.use_core_events()
        watching = [asyncio.create_task(self._follow(one), name=f"watch {one.resource.plural}") for one in self.reflectors]
        looping = asyncio.create_task(self.loop.run(), name="loop")
        syncing = asyncio.create_task(self._sync(), name="sync")
        acting = asyncio.create_task(self._act(), name="act")
        try:
            done, _ = await asyncio.wait({*watching, looping, acting}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await end_tasks(acting)
            await self.loop.flush(_FLUSH_S)
            raise
        finally:
            # The loop and the watches keep running while effects finish, because their outcomes are facts for the engine.
            await end_tasks(acting)
            await end_tasks(*watching, syncing, looping)
        for task in done:
            if task.cancelled():
                raise PartEndedError(f"{task.get_name()}: cancelled from within the process")
            await task

    async def _follow(self, reflector: Reflector[Any]) -> None:
        await self._may_watch.wait()
        await reflector.run()

    async def _sync(self) -> None:
        await self.loop.synced.wait()
        self._log.info(3, "Handlers synced")

    async def _act(self) -> None:
        if self._leader is None or self.election is None:
            self._may_watch.set()
            await self.loop.act()
            return
        if self._may_watch.is_set():  # a replica that cannot list the cluster must not take the lease
            await self.loop.synced.wait()
        if self._aside is None:
            await self._lead(self._rest, self._act_here)
        else:
            main = asyncio.get_running_loop()
            await self._aside.loop.run(lambda: self._lead_aside(main))

    async def _lead_aside(self, main: asyncio.AbstractEventLoop) -> None:
        assert self._aside is not None
        async with self._aside.rest() as rest:
            await self._lead(rest, lambda: across(main, self._act_here))

    async def _lead(self, rest: Rest, act_here: Callable[[], Awaitable[None]]) -> None:
        """Compete for the lease and keep it, on the running loop; ``act_here`` schedules while this replica leads."""
        assert self._leader is not None
        assert self.election is not None
        lock = lock_on(rest, self._leader.lock, self._leader.namespace, self._leader.name, self._identity)

        async def act() -> None:
            announcing = asyncio.create_task(self._announce_leading(lock), name="announce leading")
            try:
                await act_here()
            finally:
                await end_tasks(announcing)

        name = f"{self._leader.namespace}/{self._leader.name}"
        await lead(
            self.election, lock, act, clock=self._clock, wall=self._wall, rng=self._chance, log=self._log, name=name,
        )  # fmt: skip

    async def _act_here(self) -> None:
        self._may_watch.set()
        await self.loop.act()

    async def give_up(self, rest: Rest) -> None:
        """Release the lease because the loop does not answer. From then on this replica does not bind, even if it answers."""
        if self._leader is None or self.election is None:
            return
        record = self.election.released(self._wall())
        if record is not None:
            lock = lock_on(rest, self._leader.lock, self._leader.namespace, self._leader.name, self._identity)
            held = await lock.read()
            if held is not None and held.holder == self._identity:
                await lock.update(replace(record, version=held.version))

    async def _announce_leading(self, lock: AnyLock) -> None:
        try:
            await lock.write_event(f"{self._identity} became leader", self._wall(), self._reporter)
        except ClusterError as error:
            self._log.error(error, "Server rejected event (will not retry!)", reason="LeaderElection")


def _clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return the loop's clock, which is ``time.monotonic`` itself unless the loop has a clock of its own."""
    return time.monotonic if type(loop).time is asyncio.BaseEventLoop.time else loop.time
