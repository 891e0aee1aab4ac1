"""``moorage run`` as processes that are killed, stopped, cut off and starved, on the embedded API server over real sockets.

Leases are scaled down so that a test takes seconds; one test with kube-scheduler's own times runs where MOORAGE_LONG_TESTS is
set.
After each test the server's history is gone through: no pod ever moved, and no node was ever overfull.
"""

import asyncio
import os
import random
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from moorage.apiserver.guarding import Guard, User
from moorage.apiserver.serving import serving, write_kubeconfig
from moorage.testing.simtest import rules
from moorage.testing.simtest.recording import Written
from moorage.testing.simtest.virtual_api import VirtualApi
from moorage.testing.simtest.world import World

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).resolve().parents[2] / "src"
LEASE_S, RENEW_S, RETRY_S = 3.0, 2.0, 0.4
FAST = (
    f"--leader-elect-lease-duration={LEASE_S:g}s", f"--leader-elect-renew-deadline={RENEW_S:g}s",
    f"--leader-elect-retry-period={RETRY_S * 1000:g}ms",
)  # fmt: skip
#: How much longer things may take on a busy machine.
SLACK_S = 8.0


class Proxy:
    """A way to the server that can be cut: connections break, and new ones are refused."""

    def __init__(self, port):
        self.target, self.open, self.writers = port, True, set()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.cut()
        self.server.close()

    def cut(self):
        self.open = False
        self.reset()

    def reset(self):
        """Break what is open, in the middle of whatever it says."""
        for writer in list(self.writers):
            writer.transport.abort()

    async def _serve(self, reader, writer):
        if not self.open:
            writer.transport.abort()
            return
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target)
        both = {writer, there_writer}
        self.writers |= both
        with suppress(ConnectionError, OSError):
            await asyncio.gather(self._pump(reader, there_writer), self._pump(there_reader, writer))
        self.writers -= both
        for one in both:
            one.close()

    @staticmethod
    async def _pump(reader, writer):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
        writer.close()


class Place:
    """A server, a world, and schedulers as processes."""

    def __init__(self, api, port, folder):
        self.api, self.port, self.folder = api, port, folder
        self.world = World(api, random.Random(1), end_after_s=0.5)
        self.processes = []

    async def scheduler(self, *flags, port=None, **options):
        kubeconfig = self.folder / f"config-{port or self.port}"
        write_kubeconfig(kubeconfig, port or self.port, "t")
        name = len(self.processes)
        with (self.folder / f"log-{name}").open("w") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "moorage", "run", "--kubeconfig", str(kubeconfig), "--secure-port=0", *flags,
                env={**os.environ, "PYTHONPATH": str(SOURCES)}, stderr=log, stdout=log, **options,
            )  # fmt: skip
        process.log = self.folder / f"log-{name}"
        self.processes.append(process)
        return process

    def node_of(self, name):
        held = self.api.do("GET", f"/api/v1/namespaces/default/pods/{name}")
        return held["spec"].get("nodeName", "") if held else ""

    def holder(self):
        lease = self.api.do("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler")
        return lease["spec"].get("holderIdentity", "") if lease else ""

    async def until(self, condition, within_s):
        begin = time.monotonic()
        while not condition():
            if time.monotonic() - begin > within_s:
                logs = [f"{one.log}:\n{one.log.read_text()[-1500:]}" for one in self.processes]
                raise AssertionError(f"not within {within_s:g}s\n" + "\n".join(logs))
            await asyncio.sleep(0.02)
        return time.monotonic() - begin

    async def bound(self, *names, within_s=20.0):
        return await self.until(lambda: all(self.node_of(name) for name in names), within_s)

    def check_history(self):
        """No pod moved, and no node was overfull, at any revision."""
        nodes, pods, where = {}, {}, {}
        for entry in self.api.recording.entries:
            if not isinstance(entry, Written) or entry.kind not in {"Node", "Pod"}:
                continue
            held = nodes if entry.kind == "Node" else pods
            if entry.change == "DELETED":
                held.pop(entry.uid, None)
                continue
            held[entry.uid] = entry.document
            on = entry.document["spec"].get("nodeName") if entry.kind == "Pod" else None
            if on:
                assert where.setdefault(entry.uid, on) == on
                node = next(one for one in nodes.values() if one["metadata"]["name"] == on)
                others = [pod for uid, pod in pods.items() if pod["spec"].get("nodeName") == on and uid != entry.uid]
                assert rules.crowds(entry.document, node, others) == ""


def in_place(main, folder):
    async def play():
        api = VirtualApi(1)
        guard = Guard({"t": User("admin", ("system:masters",))})
        async with serving(api.store, guard) as port:
            place = Place(api, port, folder)
            try:
                await main(place)
            finally:
                for process in place.processes:
                    if process.returncode is None:
                        with suppress(ProcessLookupError):
                            process.send_signal(signal.SIGCONT)
                            process.kill()
                    await process.wait()
            place.check_history()

    asyncio.run(play())


async def two(place, *flags):
    """Start a leader and then a standby."""
    leader = await place.scheduler(*flags)
    await place.until(place.holder, 20)
    standby = await place.scheduler(*flags)
    await place.until(lambda: "kube-scheduler" in standby.log.read_text(), 20)
    return leader, standby


@pytest.mark.parametrize(
    ("number", "within_s"),
    [(signal.SIGKILL, LEASE_S + 2.2 * RETRY_S), (signal.SIGTERM, 2.2 * RETRY_S + 0.5)],
    ids=["F32 kill", "F33 term"],
)
def test_a_standby_takes_over(number, within_s, tmp_path):
    async def main(place):
        place.world.node("n1", cpu=4)
        leader, _ = await two(place, *FAST)
        place.world.pod("first")
        await place.bound("first")
        await asyncio.sleep(2.0)  # the standby has listed everything by now
        leader.send_signal(number)
        place.world.pod("second")
        await place.bound("second", within_s=within_s + SLACK_S)
        if number == signal.SIGTERM:
            assert await asyncio.wait_for(leader.wait(), 10) == 0

    in_place(main, tmp_path)


@pytest.mark.skipif("MOORAGE_LONG_TESTS" not in os.environ, reason="takes a minute; set MOORAGE_LONG_TESTS to run it")
@pytest.mark.parametrize(("number", "within_s"), [(signal.SIGKILL, 20.0), (signal.SIGTERM, 5.0)], ids=["kill", "term"])
def test_a_standby_takes_over_in_the_times_that_are_promised(number, within_s, tmp_path):
    async def main(place):
        place.world.node("n1", cpu=4)
        leader, _ = await two(place)
        place.world.pod("first")
        await place.bound("first", within_s=30)
        await asyncio.sleep(5)
        leader.send_signal(number)
        place.world.pod("second")
        await place.bound("second", within_s=within_s)

    in_place(main, tmp_path)


def test_f32_killed_again_and_again(tmp_path):
    """MOORAGE_KILLS says how often; 500 by hand."""
    kills = int(os.environ.get("MOORAGE_KILLS", "2"))

    async def main(place):
        rng = random.Random(7)
        for name in ("n1", "n2", "n3"):
            place.world.node(name, cpu=40, pods=2000)
        names = []
        for _ in range(kills):
            for _ in range(8):
                names.append(f"p{len(names)}")
                place.world.pod(names[-1], cpu="50m")
            process = await place.scheduler("--leader-elect=false")
            await place.until(lambda log=process.log: '"Scheduling"' in log.read_text(), 20)
            await asyncio.sleep(rng.uniform(0, 0.5))
            process.kill()
            await process.wait()
        await place.scheduler("--leader-elect=false")
        await place.bound(*names, within_s=30)

    in_place(main, tmp_path)


def test_f34_a_leader_that_is_cut_off_ends_and_another_takes_over(tmp_path):
    async def main(place):
        place.world.node("n1", cpu=4)
        async with Proxy(place.port) as proxy:
            leader = await place.scheduler(*FAST, port=proxy.port)
            await place.until(place.holder, 20)
            first = place.holder()
            await place.scheduler(*FAST)
            await asyncio.sleep(2.5)
            proxy.cut()
            place.world.pod("p")
            assert await asyncio.wait_for(leader.wait(), RENEW_S + SLACK_S) == 1
            await place.bound("p", within_s=LEASE_S + SLACK_S)
            assert place.holder() not in {"", first}

    in_place(main, tmp_path)


def test_f35_a_leader_that_was_stopped_longer_than_its_lease_does_no_harm(tmp_path):
    async def main(place):
        place.world.node("n1", cpu=1)
        leader, _ = await two(place, *FAST)
        await asyncio.sleep(2.0)
        leader.send_signal(signal.SIGSTOP)
        place.world.pod("p")
        await place.bound("p", within_s=LEASE_S + SLACK_S)
        place.world.pod("q")
        first = place.holder()
        leader.send_signal(signal.SIGCONT)
        assert await asyncio.wait_for(leader.wait(), SLACK_S) == 1
        assert place.holder() == first
        assert place.node_of("q") == ""

    in_place(main, tmp_path)


def test_f02_f11_connections_that_break_and_a_server_that_is_not_there_yet(tmp_path):
    async def main(place):
        async with Proxy(place.port) as proxy:
            proxy.open = False
            process = await place.scheduler("--leader-elect=false", port=proxy.port)
            await asyncio.sleep(2)
            assert process.returncode is None
            place.world.node("n1", cpu=40, pods=110)
            proxy.open = True
            names = [f"p{number}" for number in range(30)]
            for name in names:
                place.world.pod(name)
                proxy.reset()
                await asyncio.sleep(0.05)
            await place.bound(*names, within_s=60)
            assert process.returncode is None

    in_place(main, tmp_path)


def test_f33_work_under_way_ends_before_the_process_does(tmp_path):
    async def main(place):
        place.world.node("n1", cpu=40, pods=110)
        process = await place.scheduler(*FAST)
        await place.until(place.holder, 20)
        await asyncio.sleep(1.5)
        names = [f"p{number}" for number in range(40)]
        for name in names:
            place.world.pod(name)
        await place.until(lambda: any(place.node_of(name) for name in names), 10)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 10) == 0
        assert place.holder() == ""
        await place.scheduler(*FAST)
        await place.bound(*names, within_s=20)

    in_place(main, tmp_path)


def test_f40_too_few_file_descriptors_end_nothing(tmp_path):
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (14, 14))

    async def main(place):
        place.world.node("n1", cpu=4)
        process = await place.scheduler("--leader-elect=false", preexec_fn=few)
        await asyncio.sleep(4)
        assert process.returncode in {None, 1}
        log = process.log.read_text()
        assert "Too many open files" in log
        assert "Traceback" not in log
        await place.scheduler("--leader-elect=false")
        place.world.pod("p")
        await place.bound("p")

    in_place(main, tmp_path)
