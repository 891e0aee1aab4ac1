"""``moorage run`` as processes, on an embedded API server over real sockets, and a way between them that can be cut.

Leases are scaled down so that a test takes seconds. When a test is over the server's history is gone through: no pod ever
moved, and no node was ever overfull.
"""

import asyncio
import os
import random
import signal
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.serve import serving
from tests.kubeconfigs import write_kubeconfig
from tools.simtest import oracle_rules
from tools.simtest.recording import WriteRecord
from tools.simtest.virtual_api import VirtualApi
from tools.simtest.world import World

SOURCES = Path(__file__).resolve().parents[2] / "src"
#: A busy machine may keep a leader from its processor for three seconds, and it still leads.
LEASE_S, RENEW_S, RETRY_S = 5.0, 3.5, 0.4


def leases(lease_s, renew_s, retry_s=RETRY_S):
    """Return flags for leader election with these times."""
    return (
        f"--leader-elect-lease-duration={lease_s:g}s", f"--leader-elect-renew-deadline={renew_s:g}s",
        f"--leader-elect-retry-period={retry_s * 1000:g}ms",
    )  # fmt: skip


FAST = leases(LEASE_S, RENEW_S)
#: With these a busy machine ends leaders, too.
FASTER = leases(3.0, 2.0)
#: A standby waits for longer than any test before it takes this lease from a leader that has not released it.
RELEASED_ONLY = leases(60.0, 40.0)
#: How much longer things may take on a busy machine.
SLACK_S = 8.0
#: How long a process may take to start on such a machine.
START_S = 60.0


_BIND = b"/binding HTTP/1.1"


class Proxy:
    """A way to the server that can be cut: connections break, and new ones are refused. ``binds``: when some went through."""

    def __init__(self, port):
        self.target, self.open, self.writers, self.binds = port, True, set(), []
        self._tasks = set()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.cut()
        await asyncio.sleep(0.01)  # a server that is closed while it accepts loses the socket
        self.server.close()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)  # the aborted transports close their sockets

    def cut(self):
        self.open = False
        self.reset()

    def reset(self):
        """Break what is open, in the middle of whatever it says."""
        for writer in list(self.writers):
            writer.transport.abort()

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with self._closing(writer), suppress(OSError, asyncio.CancelledError):
            if self.open:
                await self._join(reader, writer)

    async def _join(self, reader, writer):
        """Carry both ways what the client and the server send."""
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target)
        with self._closing(there_writer):
            if self.open:
                async with asyncio.TaskGroup() as ways:
                    ways.create_task(self._pump(reader, there_writer, self.binds))
                    ways.create_task(self._pump(there_reader, writer, []))

    @contextmanager
    def _closing(self, writer):
        self.writers.add(writer)
        try:
            yield
        finally:
            self.writers.discard(writer)
            writer.transport.abort()

    @staticmethod
    async def _pump(reader, writer, binds):
        tail = b""
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                tail = tail[-len(_BIND) + 1 :] + chunk
                binds += [time.monotonic()] * tail.count(_BIND)
                writer.write(chunk)
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


class Place:
    """A server, a world, and schedulers as processes."""

    def __init__(self, api, port, folder, token="t"):
        self.api, self.port, self.folder, self.token = api, port, folder, token
        self.world = World(api, random.Random(1), end_after_s=0.5)
        self.processes = []

    def kubeconfig(self, port=None, token=""):
        """Return a file that leads to the server, or to this port."""
        path = self.folder / f"config-{port or self.port}{'-' if token else ''}"
        write_kubeconfig(path, port or self.port, token or self.token)
        return path

    async def scheduler(self, *flags, port=None, env=(), log=None, token="", **options):
        """Start one with these flags; ``env`` is added to its environment, and ``log`` takes what it says."""
        kubeconfig = self.kubeconfig(port, token)
        name = len(self.processes)
        (self.folder / f"log-{name}").touch()
        with (log or self.folder / f"log-{name}").open("w") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "moorage", "run", "--kubeconfig", str(kubeconfig), "--secure-port=0", *flags,
                env={**os.environ, "PYTHONPATH": str(SOURCES), **dict(env)}, stderr=log, stdout=log, **options,
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

    async def bound(self, *names, within_s=START_S):
        return await self.until(lambda: all(self.node_of(name) for name in names), within_s)

    def check_history(self):
        """No pod moved, and no node was overfull, at any revision."""
        nodes, pods, where = {}, {}, {}
        for entry in self.api.recording.entries:
            if not isinstance(entry, WriteRecord) or entry.kind not in {"Node", "Pod"}:
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
                assert oracle_rules.crowds(entry.document, node, others) == ""


def in_place(main, folder, token="t"):
    async def play():
        api = VirtualApi(1)
        guard = Authenticator({token: User("admin", ("system:masters",))})
        async with serving(api.store, guard) as port:
            place = Place(api, port, folder, token)
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
    await place.until(place.holder, START_S)
    standby = await place.scheduler(*flags)
    await place.until(lambda: "kube-scheduler" in standby.log.read_text(), START_S)
    return leader, standby
