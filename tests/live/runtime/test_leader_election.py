"""Who may act: the machine by tables, and replicas against one lease in virtual time."""

import asyncio
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.errors import ClusterError, InputError
from moorage.live.runtime.leader_election import Election, LeadershipLostError, LeaseRecord, Timing, lead
from moorage.testing.virtual_time import run_virtually

HELD = LeaseRecord("other", 15, "then", "then", 3, "7")


def test_a_missing_lease_has_no_holder():
    election = Election("me")
    election.seen(None, 0.0)
    assert election.wants(0.0, "now") == LeaseRecord("me", 15, "now", "now")
    assert not election.may_act(0.0)


HOLDS = {  # seconds since we first saw the lease, holder, may we take it?
    "just seen": (0.0, "other", False),
    "nearly run out": (14.9, "other", False),
    "run out": (15.0, "other", True),
    "released": (0.0, "", True),
    "ours from a life before": (0.0, "me", True),
}


@pytest.mark.parametrize(("later", "holder", "takes"), HOLDS.values(), ids=HOLDS)
def test_a_lease_expires_relative_to_its_local_observation(later, holder, takes):
    election = Election("me")
    election.seen(replace(HELD, holder=holder), 100.0)
    election.seen(replace(HELD, holder=holder), 100.0 + later / 2)
    wanted = election.wants(100.0 + later, "now")
    assert (wanted is not None) is takes
    if wanted is not None:
        assert (wanted.holder, wanted.renewed, wanted.version) == ("me", "now", "7")
        assert wanted.transitions == (3 if holder == "me" else 4)


def test_a_changed_lease_restarts_the_expiry():
    election = Election("me")
    election.seen(HELD, 0.0)
    election.seen(replace(HELD, renewed="later", version="8"), 14.0)
    assert election.wants(20.0, "now") is None
    assert election.wants(29.0, "now") is not None


def test_the_renew_deadline_counts_from_the_send_time():
    election = Election("me")
    election.seen(None, 0.0)
    election.wrote(election.wants(1.0, "now"), 1.0)
    assert election.deadline == 11.0
    assert election.may_act(10.9)
    assert not election.may_act(11.0)
    election.seen(HELD, 5.0)
    assert not election.may_act(5.0)


@pytest.mark.parametrize(
    ("timing", "why"),
    [
        (Timing(10, 10, 2), "leaseDuration must be greater than renewDeadline"),
        (Timing(15, 2, 2), r"renewDeadline must be greater than retryPeriod\*JitterFactor"),
        (Timing(15, 10, 0), "retryPeriod must be greater than zero"),
    ],
)
def test_inconsistent_durations_are_rejected(timing, why):
    with pytest.raises(InputError, match=f"^couldn't create leader elector: {why}$"):
        Election("me", timing)


# -- replicas -----------------------------------------------------------------------------------------------------------


class Server:
    """One lease, with optimistic concurrency. ``down`` names replicas whose requests fail; ``mute`` those that get no reply."""

    def __init__(self):
        self.lease = None
        self.version = 0
        self.down = set()
        self.mute = set()

    def lock(self, name):
        return Lock(self, name)


class Lock:
    def __init__(self, server, name):
        self.server, self.name = server, name

    async def _reach(self):
        await asyncio.sleep(0.01)
        if self.name in self.server.mute:
            await asyncio.sleep(3600)
        if self.name in self.server.down:
            raise ClusterError("connection refused")

    async def read(self):
        await self._reach()
        return self.server.lease

    async def create(self, record):
        await self._reach()
        if self.server.lease is not None:
            raise ClusterError("exists", 409, "AlreadyExists")
        return self._store(record)

    async def update(self, record):
        await self._reach()
        if self.server.lease is None or self.server.lease.version != record.version:
            raise ClusterError("conflict", 409, "Conflict")
        return self._store(record)

    def _store(self, record):
        self.server.version += 1
        self.server.lease = replace(record, version=str(self.server.version))
        return self.server.lease


class Replica:
    """``rate``: how fast its clock runs."""

    def __init__(self, server, name, log, rate=1.0):
        self.election = Election(name)
        self.server, self.name, self.log, self.rate = server, name, log, rate

    def clock(self):
        return asyncio.get_running_loop().time() * self.rate

    async def run(self):
        clock = self.clock
        lock = self.server.lock(self.name)
        await lead(self.election, lock, self._act, clock=clock, wall=lambda: f"{clock()}", rng=random.Random(self.name))

    async def _act(self):
        clock = asyncio.get_running_loop().time
        self.log.append((clock(), self.name, "leads"))
        try:
            while True:
                if self.election.may_act(self.clock()):
                    self.log.append((clock(), self.name, "acts"))
                await asyncio.sleep(0.25)
        finally:
            await asyncio.sleep(0.5)  # draining
            self.log.append((clock(), self.name, "stops"))


def overlaps(log):
    """Pairs of neighbouring deeds of different replicas that a change of leader does not stand between."""
    last, found = None, []
    for _, name, deed in log:
        if deed == "leads":
            last = name
        elif deed == "acts" and name != last:
            found.append(name)
    return found


def test_a_standby_takes_over_soon_after_a_release():
    async def main():
        log, server = [], Server()
        first, second = (asyncio.create_task(Replica(server, name, log).run()) for name in ("a", "b"))
        await asyncio.sleep(60)
        leader = next(name for _, name, deed in log if deed == "leads")
        ending, staying = (first, second) if leader == "a" else (second, first)
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        await asyncio.sleep(30)
        staying.cancel()
        await asyncio.gather(staying, return_exceptions=True)
        return log, server

    log, server = run_virtually(main())
    led = [(at, name) for at, name, deed in log if deed == "leads"]
    assert len({name for _, name in led}) == len(led) == 2
    stopped = next(at for at, _, deed in log if deed == "stops")
    assert stopped < led[1][0] <= stopped + 5
    assert overlaps(log) == []
    assert server.lease.holder == ""


@pytest.mark.parametrize("fault", ["down", "mute"])
def test_a_partitioned_leader_stops_before_another_starts(fault):
    async def main():
        log, server = [], Server()
        names = ("a", "b")
        tasks = {name: asyncio.create_task(Replica(server, name, log).run()) for name in names}
        await asyncio.sleep(60)
        leader = next(name for _, name, deed in log if deed == "leads")
        getattr(server, fault).add(leader)
        cut = asyncio.get_running_loop().time()
        with pytest.raises(LeadershipLostError, match="did not renew its lease within 10s"):
            await tasks.pop(leader)
        gone = asyncio.get_running_loop().time()
        await asyncio.sleep(30)
        (other,) = tasks.values()
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
        return log, cut, gone

    log, cut, gone = run_virtually(main())
    led = [at for at, _, deed in log if deed == "leads"]
    assert gone <= cut + 10.6
    assert cut < led[1] <= cut + 20
    assert overlaps(log) == []


def test_a_standby_leads_within_twenty_seconds_of_a_kill_at_any_time():
    """It sees the last renewal up to a pause late, so it must not be a pause late again when the lease has run out."""

    async def waited(seed):
        log, server = [], Server()
        names = (f"a{seed}", f"b{seed}")
        tasks = [asyncio.create_task(Replica(server, name, log).run()) for name in names]
        await asyncio.sleep(30 + seed / 7)
        server.mute.add(next(name for _, name, deed in log if deed == "leads"))
        cut = asyncio.get_running_loop().time()
        await asyncio.sleep(30)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert overlaps(log) == []
        return [at for at, _, deed in log if deed == "leads"][1] - cut

    assert max(run_virtually(waited(seed)) for seed in range(60)) <= 20


def test_a_leader_that_lost_its_lease_names_the_new_holder():
    async def main():
        server = Server()
        task = asyncio.create_task(Replica(server, "a", []).run())
        await asyncio.sleep(5)
        server.lease = replace(server.lease, holder="thief", version="99")
        await task

    with pytest.raises(LeadershipLostError, match=r"^a lost its lease to thief$"):
        run_virtually(main())


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 30.0)), max_size=8),
    st.integers(0, 9),
    st.lists(st.sampled_from([0.8, 1.0, 1.2]), min_size=3, max_size=3),
)
def test_two_replicas_never_lead_at_once_under_network_faults(cuts, seed, rates):
    async def main():
        log, server = [], Server()

        async def forever(name):
            while True:
                try:
                    await Replica(server, name, log, rates["abc".index(name)]).run()
                except LeadershipLostError:
                    await asyncio.sleep(1)

        tasks = [asyncio.create_task(forever(name)) for name in "abc"]
        for name, seconds in cuts:
            server.down ^= {name}
            await asyncio.sleep(seconds + seed / 10)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return log

    assert overlaps(run_virtually(main())) == []


def test_an_exception_of_the_leader_propagates_and_releases_the_lease():
    async def main():
        server = Server()

        async def act():
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await lead(
                Election("a"), server.lock("a"), act,
                clock=asyncio.get_running_loop().time, wall=lambda: "now", rng=random.Random(0),
            )  # fmt: skip
        return server.lease

    assert run_virtually(main()).holder == ""


def test_a_bind_may_take_the_rest_of_the_lease_after_the_deadline():
    assert Timing().spare_s == 5.0
    assert Timing(lease_s=8.0, renew_s=6.5, retry_s=1.0).spare_s == 1.5


@pytest.mark.parametrize(("rate", "both"), [(0.5, False), (1.0, False), (1.45, False), (15.0, True)])
def test_clock_rates_may_differ_by_the_margin_of_lease_over_deadline(rate, both):
    async def main():
        log, server = [], Server()
        first = asyncio.create_task(Replica(server, "a", log).run())
        await asyncio.sleep(10)
        second = asyncio.create_task(Replica(server, "b", log, rate).run())
        await asyncio.sleep(30)
        server.down.add("a")
        await asyncio.sleep(60)
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        return log

    log = run_virtually(main())
    assert [name for _, name, deed in log if deed == "leads"] == ["a", "b"]
    assert bool(overlaps(log)) is both
