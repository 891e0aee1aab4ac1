"""Leader election on a Lease: which of several schedulers may act.

``Election`` is the state of one replica. It gets the time as an argument, reads a lease record, and returns what to write and
until when the replica may act; ``lead`` does the waiting and the requests. Clocks of other machines are never compared with
ours: a lease counts as held until *this replica* has seen it unchanged for its whole duration. All times are seconds on a
monotonic clock; wall-clock times are only written into the lease for people to read.

A renewal counts from the moment its request was sent, not from the reply, so that a slow reply never extends our leadership
beyond what other replicas see.

Source  client-go/tools/leaderelection/leaderelection.go
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from moorage.errors import ClusterError, InputError, MoorageError
from moorage.live.runtime.attempt_metrics import SILENT, Log

#: The pause between two attempts to acquire the lease is the retry period times a factor from 1 to 1 + ``JITTER``.
JITTER = 1.2
_RELEASED_DURATION_S = 1


class LeadershipLostError(MoorageError):
    """The lease was not renewed in time, or another replica holds it, so this replica must not act."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Lease duration, renew deadline and retry period, in seconds."""

    lease_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0

    @property
    def spare_s(self) -> float:
        """The longest time that a request sent just before the deadline may take to end before another replica leads."""
        return self.lease_s - self.renew_s

    @property
    def fault(self) -> str:
        """Client-go's message for durations with which no replica can lead; "" for others."""
        if self.lease_s <= self.renew_s:
            return "leaseDuration must be greater than renewDeadline"
        if self.renew_s <= JITTER * self.retry_s:
            return "renewDeadline must be greater than retryPeriod*JitterFactor"
        return "" if self.retry_s > 0 else "retryPeriod must be greater than zero"


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The contents of a lease. ``version`` is the resourceVersion it was read at, "" if not read from the API server.

    ``beside`` is the record of a second lock object that is held together with the lease.
    """

    holder: str
    duration_s: int
    acquired: str
    renewed: str
    transitions: int = 0
    version: str = ""
    beside: str = ""

    @property
    def without_version(self) -> tuple[object, ...]:
        """All fields but the version, which also changes with labels and annotations; those renew nothing."""
        return (self.holder, self.duration_s, self.acquired, self.renewed, self.transitions, self.beside)


class LeaseLock(Protocol):
    """One Lease object on an API server. Each method raises ClusterError; a lost race is status 409."""

    async def read(self) -> LeaseRecord | None:
        """Return the lease, or None if there is none."""

    async def create(self, record: LeaseRecord) -> LeaseRecord: ...
    async def update(self, record: LeaseRecord) -> LeaseRecord:
        """Replace the lease if it is still at ``record.version``."""


class Election:
    """The election state of one replica."""

    def __init__(self, identity: str, timing: Timing = Timing()) -> None:
        if timing.fault:
            raise InputError(f"couldn't create leader elector: {timing.fault}")
        self.identity = identity
        self.timing = timing
        self.record: LeaseRecord | None = None
        self._seen_at = float("-inf")
        self._renewed_at: float | None = None
        #: When the API server last answered about the lease; None before it did.
        self.answered_at: float | None = None

    @property
    def is_leader(self) -> bool:
        return self.deadline > float("-inf")

    @property
    def deadline(self) -> float:
        """Until when this replica may act; minus infinity if it does not lead. Another thread may renew meanwhile."""
        record, renewed_at = self.record, self._renewed_at
        leads = record is not None and record.holder == self.identity and renewed_at is not None
        return renewed_at + self.timing.renew_s if leads and renewed_at is not None else float("-inf")

    def may_act(self, now: float) -> bool:
        """Return whether this replica leads and its last renewal is recent enough."""
        return now < self.deadline

    def is_overdue(self, now: float, grace_s: float) -> bool:
        """Return whether the lease expired more than ``grace_s`` ago while this replica still counts itself leader."""
        return self.is_leader and now > self._seen_at + self.timing.lease_s + grace_s

    def seen(self, record: LeaseRecord | None, now: float) -> None:
        """Record the lease as read from the API server. Reading an unchanged lease does not restart its duration."""
        self.answered_at = now
        if record is None or self.record is None or record.without_version != self.record.without_version:
            self._seen_at = now
        self.record = record
        if record is None or record.holder != self.identity:
            self._renewed_at = None

    def pause_s(self, now: float, rng: random.Random) -> float:
        """Return the pause before the next attempt to acquire: the usual pause, or less if the lease expires earlier.

        A standby sees a renewal up to one pause late. A second full pause after the lease expires, as in kube-scheduler, could
        leave the cluster without a leader for more than 20 s. A random part keeps several standbys apart.
        """
        usual = self.timing.retry_s * (1 + JITTER * rng.random())
        left = self._seen_at + self.timing.lease_s - now
        soon = left + rng.random() * self.timing.retry_s / 10
        return min(usual, soon) if self.record is not None and self.record.holder and left > 0 else usual

    def wants(self, now: float, wall: str) -> LeaseRecord | None:
        """Return the lease to write to become or stay leader; None while another replica holds it."""
        old = self.record
        if old is None:
            return LeaseRecord(self.identity, round(self.timing.lease_s), wall, wall)
        mine = old.holder == self.identity
        if old.holder and not mine and now < self._seen_at + self.timing.lease_s:
            return None
        if mine:
            return replace(old, duration_s=round(self.timing.lease_s), renewed=wall)
        return LeaseRecord(self.identity, round(self.timing.lease_s), wall, wall, old.transitions + 1, old.version)

    def wrote(self, record: LeaseRecord, sent_at: float) -> None:
        """Record that the API server accepted the lease, sent at ``sent_at``."""
        self.record = record
        self._seen_at = sent_at
        self._renewed_at = sent_at

    def released(self, wall: str) -> LeaseRecord | None:
        """Stop leading and return the lease record that releases the lease; None if this replica does not lead."""
        if not self.is_leader or self.record is None:
            return None
        self._renewed_at = None
        return replace(self.record, holder="", duration_s=_RELEASED_DURATION_S, acquired=wall, renewed=wall)


async def lead(
    election: Election, lock: LeaseLock, act: Callable[[], Awaitable[None]], *, clock: Callable[[], float],
    wall: Callable[[], str], rng: random.Random, log: Log = SILENT, name: str = "",
) -> None:  # fmt: skip
    """Become leader, then run ``act`` while the lease is renewed. ``name`` is the lease's name in the log.

    Releases the lease and returns when ``act`` returns. On cancellation, cancels ``act``, lets it drain, and only then
    releases the lease.

    Raises  LeadershipLostError; any exception of ``act``
    """
    trying = _Trying(election, lock, clock, wall, log, name)
    log.info(0, "Attempting to acquire leader lease...", lock=name)
    while not await trying.once():
        log.info(4, "Failed to acquire lease", lock=name)
        await asyncio.sleep(election.pause_s(clock(), rng))
    log.info(0, "Successfully acquired lease", lock=name)
    acting = asyncio.ensure_future(act())
    renewing = asyncio.ensure_future(trying.renew())
    try:
        await asyncio.wait({acting, renewing}, return_when=asyncio.FIRST_COMPLETED)
        lost = renewing.done() and not acting.done()
    finally:
        # The lease is kept until work in flight ends, so that no other replica acts meanwhile.
        await end_tasks(acting)
        await end_tasks(renewing)
        await trying.release()
    if lost:
        raise LeadershipLostError(f"{election.identity} {_why_lost(election)}")
    await acting


def _why_lost(election: Election) -> str:
    holder = election.record.holder if election.record is not None else election.identity
    if holder == election.identity:
        return f"did not renew its lease within {election.timing.renew_s:g}s"
    return f"lost its lease to {holder}" if holder else "found its lease released by another client"


async def end_tasks(*tasks: asyncio.Future[None]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Trying:
    """One replica's requests about the lease."""

    election: Election
    lock: LeaseLock
    clock: Callable[[], float]
    wall: Callable[[], str]
    log: Log
    name: str

    async def renew(self) -> None:
        """Renew until the deadline passes without success, or another replica holds the lease."""
        election, clock = self.election, self.clock
        while True:
            await asyncio.sleep(min(election.timing.retry_s, max(0.0, election.deadline - clock())))
            if not election.may_act(clock()):
                break
            try:
                async with asyncio.timeout(election.deadline - clock()):
                    if await self.once():
                        self.log.info(5, "Successfully renewed lease", lock=self.name)
            except TimeoutError:
                break
        self.log.info(0, "Failed to renew lease", lock=self.name)

    async def once(self) -> bool:
        """Read the lease and write it if it is free or ours. Return whether it was written."""
        election = self.election
        doing = "Error retrieving lease lock"
        try:
            async with asyncio.timeout(max(1.0, election.timing.renew_s / 2)):
                election.seen(await self.lock.read(), self.clock())
                wanted = election.wants(sent_at := self.clock(), self.wall())
                if wanted is None:
                    held = election.record.holder if election.record is not None else ""
                    self.log.info(4, "Lease is held by and has not yet expired", lock=self.name, holder=held)
                    return False
                new = election.record is None
                doing = "Error initially creating lease lock" if new else "Failed to update lease"
                election.wrote(await (self.lock.create if new else self.lock.update)(wanted), sent_at)
        except (ClusterError, TimeoutError) as error:
            self.log.error(str(error) or "the API server did not answer in time", doing, lock=self.name)
            return False
        return True

    async def release(self) -> None:
        """Release the lease if it is still ours, so that another replica can lead at once."""
        election = self.election
        in_time = election.may_act(self.clock())
        record = election.released(self.wall())
        if record is None or not in_time:
            return
        try:
            async with asyncio.timeout(max(1.0, election.timing.renew_s / 2)):
                await self.lock.update(record)
        except (ClusterError, TimeoutError) as error:
            self.log.error(str(error) or "the API server did not answer in time", "Failed to release lease", lock=self.name)
