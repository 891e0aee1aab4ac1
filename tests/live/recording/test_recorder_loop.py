"""The recorder beside a scheduler on the embedded API server: its log is what the server had, whatever happens in between.

``MOORAGE_LONG_TESTS=1`` compares 10,000 bindings.
"""

import asyncio
import os
import random
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from moorage.api.decode import decode
from moorage.api.kinds import KINDS
from moorage.api.pod_decoding import without_token_name
from moorage.basis.change_recorder import ChangeRecorder, LogClock, ObjectEncoder
from moorage.basis.recording.log_reader import ClusterLog
from moorage.basis.recording.log_writer import LogLimits, LogWriter
from moorage.errors import ClusterError
from moorage.live.recording.decision_comparison import Shadow
from moorage.live.recording.recorder_loop import RecorderLoop
from moorage.rules.store.store import Store
from tests.live.server.test_on_embedded_server import a_scheduler, live_on, make_node, make_pod, until

LONG = bool(os.environ.get("MOORAGE_LONG_TESTS"))
#: How many bindings are compared at least, how many pods are made, and moments rebuilt; how often a watch breaks.
BINDINGS, PODS, MOMENTS, BREAKS = (10_000, 11_500, 1000, 0.01) if LONG else (40, 120, 200, 0.03)
#: The share of pods that fit nowhere; each deletion lets the scheduler try them again.
TOO_LARGE = 0.06 if LONG else 0.2
#: Kinds whose history is compared with the server's.
TYPES = {kind.name: kind.type for kind in KINDS if kind.name in {"Node", "Pod"}}


class Shaky:
    """A connection that is refused now and then, breaks, and whose watches expire."""

    def __init__(self, rest, chance):
        self.rest, self.chance, self.broken = rest, chance, 0

    def fails(self, share):
        fails = self.chance.random() < share
        self.broken += fails
        return fails

    async def get(self, path, params):
        if self.fails(0.05):
            raise ClusterError("cannot connect: refused")
        return await self.rest.get(path, params)

    @asynccontextmanager
    async def watch(self, path, params, idle_s):
        if self.fails(0.2):
            raise ClusterError("too old resource version", 410, "Expired", retry_after_s=0.01)
        async with self.rest.watch(path, params, idle_s) as stream:
            yield self._cut(stream)

    async def _cut(self, stream):
        async for lines in stream:
            yield lines
            if self.fails(BREAKS):
                raise ClusterError("connection reset", retry_after_s=0.01)


class Truth:
    """The digest of all objects of a kind after each change that the server made."""

    def __init__(self, store):
        self.digests, self.at, self.held = defaultdict(lambda: [0]), defaultdict(lambda: {0: [0]}), {}
        self.encoder = ObjectEncoder()
        store.follow(self.changed)

    def changed(self, kind, change):
        found = TYPES.get(kind.kind)
        if found is None:
            return
        obj = decode(change.after.body, found, "the store")
        if kind.kind == "Pod":
            obj = replace(obj, spec=without_token_name(obj.spec))  # as watches read it
        key = kind.kind, obj.key
        over = change.gone or (kind.kind == "Pod" and obj.status.phase in {"Succeeded", "Failed"})
        now = 0 if over else hash((obj.key, obj.metadata.resource_version, self.encoder.json(obj)))
        digest = self.digests[kind.kind][-1] ^ self.held.get(key, 0) ^ now
        self.held[key] = now
        self.at[kind.kind].setdefault(digest, []).append(len(self.digests[kind.kind]))
        self.digests[kind.kind].append(digest)

    def follow(self, name, state, since):
        """Return after which change from ``since`` on the server had these objects; None if it never had them."""
        digest = 0
        for (kind, key), (version, body) in state.objects.items():
            if kind == name:
                digest ^= hash((key, version, body))
        indexes = self.at[name].get(digest, [])
        found = bisect_left(indexes, since)
        return indexes[found] if found < len(indexes) else None


class Jumping:
    """A time of day that is set to and fro, and the clock beside it that never goes back."""

    def __init__(self, chance):
        self.chance, self.offset = chance, 0

    def __call__(self):
        if self.chance.random() < 0.005:
            self.offset = self.chance.randrange(-3600, 3600) * 10**9
        return time.time_ns() + self.offset


class Recording:
    """A recorder that is killed and started again."""

    def __init__(self, rest, directory, chance):
        self.rest, self.directory, self.chance = rest, directory, chance
        self.clock, self.quiet, self.loop, self.kills = Jumping(chance), [], None, 0
        self.agreements = []

    def start(self):
        writer = LogWriter(self.directory, LogLimits(file_bytes=200_000 if LONG else 20_000))
        # A kill loses the last changes, and the next recorder may write others at their times.
        self.quiet = [at for at in self.quiet if at <= writer.last_at]
        recorder = ChangeRecorder(writer, LogClock(self.clock, time.monotonic, writer.last_at), ObjectEncoder())
        self.loop = RecorderLoop(recorder, Shadow(a_scheduler(), {}), self.rest, {"server": "here"})
        self.agreements.append(self.loop.shadow.agreement)
        self.task = asyncio.create_task(self.loop.run())

    async def kill(self):
        """End the recorder as a kill does: what is not written is lost."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        writer = self.loop.recorder.writer
        if writer._file is not None:
            writer._file.close()
            if self.chance.random() < 0.5:  # in the middle of a write
                last = max(self.directory.glob("*.changes"))
                with open(last, "r+b") as file:
                    file.truncate(max(0, last.stat().st_size - self.chance.randrange(60)))
        os.close(writer._lock)
        self.kills += 1

    @property
    def is_quiet(self):
        loop = self.loop
        return loop.recorder.has_started and not loop.inbox and loop.inbox.is_whole

    async def look(self):
        """Note the times at which no change waits to be recorded."""
        while True:
            await asyncio.sleep(0.003)
            if self.is_quiet:
                self.quiet.append(self.loop.recorder.clock.last)


@pytest.mark.slow
@pytest.mark.timeout(7200 if LONG else 300)  # a timeout ends one task of the loop, such as the scheduler
def test_the_log_is_what_the_server_had_and_decisions_agree(tmp_path, monkeypatch):
    monkeypatch.setattr("moorage.basis.client.reflector.Backoff.pause", lambda self, at_least_s=None: 0.02)

    async def main():
        chance = random.Random(11)
        store = Store(time.time, random.Random(5), b"k")
        truth = Truth(store)
        reports = []
        async with live_on(store, reports=reports, leads=False) as rest:  # a busy machine loses leases
            shaky = Shaky(rest, chance)
            recording = Recording(shaky, tmp_path / "log", chance)
            recording.start()
            looking = asyncio.create_task(recording.look())
            nodes = 100 if LONG else 8

            async def has_started():
                return recording.loop.recorder.has_started

            await until(has_started, reports)
            await make_pod(rest, "first", cpu="1")

            async def is_scheduling():
                return b"Unschedulable" in await rest.get("/api/v1/namespaces/default/pods/first")

            await until(is_scheduling, reports)
            for number in range(nodes):
                await make_node(rest, f"n{number}", cpu="16")
            kill_at = [round(PODS * share) for share in (0.3, 0.5, 0.8)]
            alive = []
            for number in range(PODS):
                await make_pod(
                    rest, f"p{number}", cpu="40" if chance.random() < TOO_LARGE else chance.choice(("100m", "300m", "1", "1"))
                )
                alive.append(f"p{number}")
                if len(alive) > 7 * nodes or (chance.random() < 0.5 and len(alive) > 20):
                    gone = alive.pop(chance.randrange(len(alive)))
                    await rest.send("DELETE", f"/api/v1/namespaces/default/pods/{gone}", b'{"gracePeriodSeconds":0}')
                if chance.random() < 0.05:
                    body = b'{"metadata":{"labels":{"x":"%d"}}}' % number
                    path = f"/api/v1/nodes/n{chance.randrange(nodes)}"
                    await rest.send("PATCH", path, body, content_type="application/merge-patch+json")
                if number in kill_at:
                    await until(has_started, reports)
                    await recording.kill()
                    recording.start()
                assert not rest.running.done(), rest.running
                await asyncio.sleep(0.01)

            async def caught_up():
                await asyncio.sleep(0.2)
                recorder = recording.loop.recorder
                held = sum(1 for digest in truth.held.values() if digest)
                return recording.is_quiet and sum(name in TYPES for name, _ in recorder._known) == held

            await until(caught_up, reports, 300)
            looking.cancel()
            recording.task.cancel()
            await asyncio.gather(recording.task, return_exceptions=True)
            recording.loop.close()
        return truth, recording, shaky

    truth, recording, shaky = asyncio.run(main())
    log = ClusterLog(tmp_path / "log")
    assert all(fault.torn for fault in log.faults())
    first, last = log.span()
    moments = sorted({at for at in recording.quiet if first <= at <= last})
    chance = random.Random(3)
    chosen = sorted(chance.choice(moments) for _ in range(MOMENTS))
    began = time.perf_counter()
    since = dict.fromkeys(TYPES, 0)
    for at in chosen:
        state = log.state_at(at)
        for name, start in since.items():
            found = truth.follow(name, state, start)
            assert found is not None, (name, at, [len(state.objects), chosen.index(at)])
            since[name] = found
    end = log.state_at(last)
    for name in TYPES:
        assert truth.follow(name, end, len(truth.digests[name]) - 1) is not None
    took_s = time.perf_counter() - began
    found = {
        name: sum((getattr(one, name) for one in recording.agreements), Counter())
        for name in ("bindings", "failures", "uncompared")
    }
    bindings, failures = found["bindings"], found["failures"]
    print(f"\n{found}; {shaky.broken} faults, {took_s:.1f} s for {MOMENTS} moments of {len(moments)}")
    assert shaky.broken
    assert recording.kills == 3
    assert len(moments) > PODS / 5
    assert bindings.total() >= BINDINGS
    assert failures["same"]
    assert not bindings["different"]
    assert not failures["different"]
