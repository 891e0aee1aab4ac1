"""``moorage run`` as a process whose surroundings misbehave: extenders, its own plugins, its memory, its disk."""

import asyncio
import json
import os
import resource
import sys
import time
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest

from moorage.api.documents.served_kinds import find_kind
from tests.ports import reserve_port
from tests.regressions.processes import FAST, FASTER, LEASE_S, SLACK_S, START_S, Proxy, in_place

pytestmark = pytest.mark.slow

MIB = 1 << 20
NODE = find_kind("nodes")


def configured(place, **fields):
    """Return the flag for a configuration that says these fields."""
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    path = place.folder / "configuration.yaml"
    path.write_text(json.dumps({**head, "clientConnection": {"kubeconfig": str(place.kubeconfig())}, **fields}))
    return f"--config={path}"


# -- extenders ---------------------------------------------------------------------------------------------------------

TIMEOUT_S = 1.0
#: What the extender does to a question, by the name of the pod that it is about.
ANSWERS = ("drips", "gibibyte", "html", "half", "silent", "unknown")


class Extender:
    """Answers about each pod in the way that its name says; ``asked``: the names, and how long each took."""

    def __init__(self):
        self.asked = []

    @asynccontextmanager
    async def serving(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 22)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    async def _serve(self, reader, writer):
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode()
                    (size,) = (line.split(":")[1] for line in head.lower().split("\r\n") if line.startswith("content-length"))
                    question = json.loads(await reader.readexactly(int(size)))
                    name, begin = question["Pod"]["metadata"]["name"], time.monotonic()
                    try:
                        await asyncio.wait_for(self._answer(name, question, reader, writer), 30)
                    finally:
                        self.asked.append((name, time.monotonic() - begin))
        finally:
            writer.transport.abort()

    async def _answer(self, name, question, reader, writer):
        def head(size):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size)

        fine = json.dumps({"NodeNames": question["NodeNames"]}).encode()
        if name == "drips":
            head(10_000)
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        elif name == "gibibyte":
            head(1 << 30)
            for _ in range(1024):
                writer.write(bytes(MIB))
                await writer.drain()
        elif name == "html":
            head(21)
            writer.write(b"<html>not json</html>")
        elif name == "half":
            head(len(fine))
            writer.write(fine[:9])
            await writer.drain()
            raise ConnectionError
        elif name == "silent":
            await reader.read(1)  # until the other side hangs up
            raise ConnectionError
        else:
            fine = b'{"NodeNames": ["nowhere"]}' if name == "unknown" else fine
            head(len(fine))
            writer.write(fine)
        await writer.drain()


def peak_memory(process):
    """Return the most memory that a process ever held, in bytes."""
    with open(f"/proc/{process.pid}/status") as file:
        (line,) = (line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


@pytest.mark.fresh_process
@pytest.mark.parametrize("ignorable", [True, False], ids=["ignorable", "not ignorable"])
def test_f30_a_malicious_extender_costs_bounded_memory_and_time(ignorable, tmp_path):
    async def main(place):
        place.world.node("n1", cpu=40, pods=110)
        extender = Extender()
        async with extender.serving() as port:
            extenders = [
                {
                    "urlPrefix": f"http://127.0.0.1:{port}", "filterVerb": "filter", "nodeCacheCapable": True,
                    "ignorable": ignorable, "httpTimeout": f"{TIMEOUT_S:g}s",
                }
            ]  # fmt: skip
            process = await place.scheduler("--leader-elect=false", configured(place, extenders=extenders))
            place.world.pod("fine")
            await place.bound("fine")
            before = peak_memory(process)
            for name in ANSWERS:
                place.world.pod(name)
            place.world.pod("other")
            await place.bound("other", within_s=2 * len(ANSWERS) * TIMEOUT_S)
            await place.until(lambda: set(ANSWERS) <= {name for name, _ in extender.asked}, 2 * len(ANSWERS) * TIMEOUT_S)
            if ignorable:
                await place.bound(*ANSWERS, within_s=SLACK_S)
            assert process.returncode is None
            assert peak_memory(process) - before < 64 * MIB
            assert max(seconds for _, seconds in extender.asked) < TIMEOUT_S + 1
            if not ignorable:
                assert not any(place.node_of(name) for name in ANSWERS)
            assert "Traceback" not in process.log.read_text()

    in_place(main, tmp_path)


#: A plugin that keeps one pod in flight.
HOLDS = """
from moorage.framework.verdicts import Wait

class Holds:
    name = "Holds"

    def permit(self, state, pod, node):
        return Wait(600.0) if pod.name == "held" else None
"""


@pytest.mark.fresh_process
def test_f41_a_storm_of_updates_while_a_pod_is_in_flight_costs_little_memory(tmp_path):
    async def main(place):
        (tmp_path / "holds.py").write_text(HOLDS)
        profile = {"plugins": {"multiPoint": {"enabled": [{"name": "Holds"}]}}}
        for number in range(10):
            place.world.node(f"n{number}")
        process = await place.scheduler(
            "--leader-elect=false", "--plugins=holds:Holds", configured(place, profiles=[profile]), cwd=tmp_path
        )
        place.world.pod("held")
        place.world.pod("first")
        await place.bound("first", within_s=START_S)
        before = peak_memory(process)
        for number in range(10_000):
            place.api.store.change(NODE, "", f"n{number % 10}", beat(number))
            if number % 500 == 0:
                await asyncio.sleep(0.05)
        place.world.pod("last")
        await place.bound("last")
        assert place.node_of("held") == ""
        assert process.returncode is None
        assert peak_memory(process) - before < 64 * MIB

    in_place(main, tmp_path)


def beat(number):
    def edit(document):
        document["metadata"].setdefault("annotations", {})["beat"] = str(number)

    return edit


# -- the loop ----------------------------------------------------------------------------------------------------------

#: Plugins that are the death of what runs them, once a pod comes that is called so; SECONDS is how long one of them blocks.
DEADLY = """
import asyncio, os, time

class Deadly:
    name = "Deadly"

    def pre_filter(self, pod, snapshot):
        if pod.name == "cancels":
            (loop,) = (task for task in asyncio.all_tasks() if task.get_name() == "loop")
            loop.cancel()
        if pod.name == "blocks":
            time.sleep(float(os.environ["SECONDS"]))
"""


async def deadly(place, folder, seconds, *flags):
    """Return a leader whose plugin kills it, and a standby without that plugin."""
    (folder / "deadly.py").write_text(DEADLY)
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "Deadly"}]}}}
    leader = await place.scheduler(
        *FAST, "--plugins=deadly:Deadly", configured(place, profiles=[profile]), *flags, cwd=folder,
        env={"SECONDS": str(seconds)},
    )  # fmt: skip
    await place.until(place.holder, START_S)
    standby = await place.scheduler(*FAST)
    await place.until(lambda: "kube-scheduler" in standby.log.read_text(), START_S)
    return leader, place.holder()


def test_f37_a_scheduler_with_a_dead_loop_exits_and_releases_its_lease(tmp_path):
    async def main(place):
        place.world.node("n1")
        leader, first = await deadly(place, tmp_path, 0)
        place.world.pod("cancels")
        assert await asyncio.wait_for(leader.wait(), 10) == 1
        await place.bound("cancels", within_s=20)  # perhaps by the leader, with its last request
        await place.until(lambda: place.holder() not in {"", first}, within_s=LEASE_S + SLACK_S)
        log = leader.log.read_text()
        assert "loop: cancelled from within the process" in log
        assert "lost lease" not in log
        assert "Traceback" not in log

    in_place(main, tmp_path)


async def livez(port, patience_s):
    """Probe as a kubelet does: the code that is answered, or 0 where nothing is in time."""
    try:
        timeout = aiohttp.ClientTimeout(total=patience_s)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            return (await session.get(f"https://127.0.0.1:{port}/livez", ssl=False)).status
    except (TimeoutError, aiohttp.ClientError):
        return 0


def test_f37_f26_a_loop_that_is_blocked_keeps_its_lease_answers_probes_and_goes_on(tmp_path):
    """The lease and the probes are on a loop of their own; test_hung_plugins.py has plugins that never return."""

    async def main(place):
        place.world.node("n1", cpu=1)
        port = reserve_port()
        leader, first = await deadly(place, tmp_path, LEASE_S + 5, f"--secure-port={port}", "--bind-address=127.0.0.1")
        assert await livez(port, SLACK_S) == 200
        place.world.pod("blocks")
        await place.until(lambda: "A plugin does not return" in leader.log.read_text(), SLACK_S)
        assert 'plugin="Deadly" extensionPoint="preFilter" pod="default/blocks"' in leader.log.read_text()
        assert await livez(port, SLACK_S) == 200
        await place.bound("blocks", within_s=LEASE_S + 5 + SLACK_S)
        assert (place.holder(), leader.returncode) == (first, None)

    in_place(main, tmp_path)


# -- the processor -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def busy_neighbours():
    """Two programs for each processor that do nothing but take all of it."""
    spinning = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass") for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for one in spinning:
            one.kill()
            await one.wait()


def transitions(place):
    """Return how often the lease changed hands."""
    lease = place.api.do("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler")
    return lease["spec"].get("leaseTransitions", 0)


def contenders(place):
    """Return the running schedulers that have asked for the lease."""
    return [one for one in place.processes if one.returncode is None and "kube-scheduler" in one.log.read_text()]


async def always(place, port):
    """Keep a scheduler running: it may give up its lease, as it must when it cannot renew it, and is then restarted."""
    while True:
        process = await place.scheduler(*FASTER, port=port)
        await process.wait()
        assert (process.returncode, "Leaderelection lost" in process.log.read_text()) == (1, True)


@pytest.mark.parametrize("niceness", [0, 10], ids=["as dear as we are", "dearer than we are"])
def test_f40_under_cpu_contention_only_the_leader_binds(niceness, tmp_path):
    async def main(place):
        for name in ("n1", "n2"):
            place.world.node(name, cpu=40, pods=500)
        async with Proxy(place.port) as one, Proxy(place.port) as other, asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(always(place, one.port))]
            await place.until(place.holder, START_S)
            running.append(tasks.create_task(always(place, other.port)))
            # On a busy machine the leader may give up its lease before the other has started.
            await place.until(lambda: len(contenders(place)) == 2, START_S)
            for process in contenders(place):
                os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
            names = []
            async with busy_neighbours():
                begin = time.monotonic()
                while time.monotonic() - begin < 3.0:
                    names.append(f"p{len(names)}")
                    place.world.pod(names[-1], cpu="10m")
                    await asyncio.sleep(0.05)
            await place.bound(*names)
            sent = sorted((at, number) for number, proxy in enumerate((one, other)) for at in proxy.binds)
            senders = [number for _, number in sent]
            assert len(senders) >= len(names)
            assert sum(before != after for before, after in pairwise(senders)) <= transitions(place)
            for task in running:
                task.cancel()

    in_place(main, tmp_path)


# -- memory and disks --------------------------------------------------------------------------------------------------


def limit_memory(process, more):
    """Let a process have so much address space beyond what it has now; None lifts the limit."""
    with open(f"/proc/{process.pid}/status") as file:
        (line,) = (line for line in file if line.startswith("VmSize"))
    soft = resource.RLIM_INFINITY if more is None else (int(line.split()[1]) << 10) + more
    resource.prlimit(process.pid, resource.RLIMIT_AS, (soft, resource.RLIM_INFINITY))


@pytest.mark.fresh_process
def test_f40_too_little_memory_ends_the_process_cleanly_or_not_at_all(tmp_path):
    async def main(place):
        place.world.node("n1", cpu=40, pods=110)
        process = await place.scheduler("--leader-elect=false")
        place.world.pod("first")
        await place.bound("first")
        limit_memory(process, 1 * MIB)
        for number in range(60):
            place.world.pod(f"big-{number}", cpu="10m", container={"env": [{"name": "A", "value": "a" * 1_000_000}]})
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert process.returncode in {None, 1}
        if process.returncode is None:
            limit_memory(process, None)
        else:
            assert '"Out of memory' in process.log.read_text()
            await place.scheduler("--leader-elect=false")
        assert "Traceback" not in process.log.read_text()
        place.world.pod("last")
        await place.bound("last", *(f"big-{number}" for number in range(60)), within_s=45)

    in_place(main, tmp_path)


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="this machine has no disk that is always full")
def test_f40_a_log_on_a_full_disk_blocks_no_pod(tmp_path):
    async def main(place):
        place.world.node("n1")
        process = await place.scheduler("--leader-elect=false", "--v=5", log=FULL)
        place.world.pod("p")
        place.world.pod("huge", cpu="1000")
        await place.bound("p")
        place.world.pod("q")
        await place.bound("q")
        assert process.returncode is None

    in_place(main, tmp_path)


@pytest.mark.skipif(not FULL.exists(), reason="this machine has no disk that is always full")
@pytest.mark.parametrize("target", [FULL, Path("/proc/written.yaml")], ids=["full", "read only"])
def test_f40_an_unwritable_configuration_is_reported_in_one_line(target, tmp_path):
    async def main(place):
        process = await place.scheduler(f"--write-config-to={target}")
        assert await asyncio.wait_for(process.wait(), 20) == 1
        (line,) = process.log.read_text().splitlines()
        assert f"--write-config-to {target}: " in line

    in_place(main, tmp_path)
