"""A cluster for measuring a live scheduler: the embedded API server in this process, schedulers in other processes.

Load is created directly in the store, so that the schedulers are the only clients. They use TLS and a token, as on any
cluster. Binds are observed in the store.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec

from benchmarks import shapes
from benchmarks.workloads import WORKLOADS, Sizes
from moorage.api.core import Namespace, Node, Pod
from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import KINDS, Document, ServedKind, served
from moorage.basis.serving.certificate_authority import Authority, make_authority
from moorage.cluster.apiserver.access.authentication import make_authenticator
from moorage.cluster.apiserver.http.limits import ServerLimits
from moorage.cluster.apiserver.http.serve import open_store, serving
from moorage.rules.store.store import Store
from moorage.rules.store.watches import StoreChange

__all__ = ["EVENTS", "NODES", "PODS", "Follower", "Scheduler", "World", "world"]

PODS: Final = served("pods")
NODES: Final = served("nodes")
NAMESPACES: Final = served("namespaces")
EVENTS: Final = served("events")
#: Flags that disable the scheduler's client-side rate limit.
_UNTHROTTLED: Final = ("--kube-api-qps=1000000", "--kube-api-burst=1000000")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Follower:
    """Records when each pod was bound, and invariant violations: a pod bound twice, or an overcommitted node.

    ``bound``: pod's UID → time of the bind, on the monotonic clock. ``broken``: the violations.
    """

    def __init__(self, room: int) -> None:
        self.bound: dict[str, float] = {}
        self.broken: list[str] = []
        self._room, self._held = room, dict[str, int]()
        self._news = asyncio.Event()

    def __call__(self, kind: ServedKind, change: StoreChange) -> None:
        if kind is not PODS:
            return
        node, before = change.after.fields["spec.nodeName"], change.before
        was = "" if before is None else before.fields["spec.nodeName"]
        if change.gone and was:
            self._held[was] -= 1
        elif node != was:
            if was:
                self.broken.append(f"{change.after.key} went from {was} to {node}")
            self._held[node] = self._held.get(node, 0) + 1
            if self._held[node] > self._room:
                self.broken.append(f"{node} holds {self._held[node]} pods and has room for {self._room}")
            self.bound[change.after.document()["metadata"]["uid"]] = monotonic()
            self._news.set()

    async def until(self, met: Callable[[], bool], patience_s: float = 300.0) -> None:
        """Wait for a condition, which is checked after each bind.

        Raises  TimeoutError
        """
        async with asyncio.timeout(patience_s):
            while not met():
                self._news.clear()
                await self._news.wait()


class Scheduler:
    """A scheduler process and its resource usage."""

    def __init__(self, process: Process, log: Path) -> None:
        self.process, self.log = process, log

    @property
    def cpu_s(self) -> float:
        """CPU seconds used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_mib(self, which: str = "VmRSS") -> float:
        """Return the resident memory; with ``VmHWM`` its peak."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return round(next(int(line.split()[1]) for line in lines if line.startswith(which)) / 1024, 1)

    @property
    def files(self) -> int:
        """Open files and sockets."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    async def ask(self, *words: object) -> dict[str, Any]:
        """Send a query to a witness, and return its answer."""
        if self.process.stdin is None or self.process.stdout is None:
            raise ValueError("only a witness answers queries")
        self.process.stdin.write(f"{' '.join(map(str, words))}\n".encode())
        answer: dict[str, Any] = msgspec.json.decode(await self.process.stdout.readline())
        return answer

    async def end(self) -> None:
        """Terminate the process, and kill it if it does not end."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                async with asyncio.timeout(30.0):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()


class World:
    """A cluster of ``nodes`` nodes. ``follower`` observes its pods.

    ``coming``: the pods to create first; after them, plain ones are created.
    """

    def __init__(self, store: Store, home: Path, nodes: int, authority: Authority, coming: Iterable[Pod] = ()) -> None:
        self.store, self.home, self.nodes = store, home, nodes
        self._coming = iter(coming)
        self.port = 0
        self._authority, self._serving = authority, AsyncExitStack()
        self.follower = Follower(room=40)
        store.follow(self.follower)
        self._schedulers: list[Scheduler] = []
        self._made = 0

    # -- the server ---------------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Serve, on the same port as before."""
        guard, tls = make_authenticator(self.store, self._authority), self._authority.tls()
        server = serving(self.store, guard, port=self.port, tls=tls, limits=ServerLimits(client_s=300.0))
        self.port = await self._serving.enter_async_context(server)

    async def hang_up(self) -> None:
        """Stop serving; all connections close."""
        await self._serving.aclose()

    # -- objects -----------------------------------------------------------------------------------------------------------

    def create(self, count: int) -> Iterator[str]:
        """Create a pending pod for each step; yield its UID."""
        for _ in range(count):
            self._made += 1
            pod = next(self._coming, None) or shapes.pod(f"new-{self._made}")
            record = self.store.create(PODS, pod.metadata.namespace, _document(pod))
            yield str(record.document()["metadata"]["uid"])

    async def create_all(self, count: int) -> list[str]:
        """Create pending pods, and let the server run in between."""
        made = []
        for uid in self.create(count):
            made.append(uid)
            if len(made) % 20 == 0:
                await asyncio.sleep(0)
        return made

    # -- schedulers --------------------------------------------------------------------------------------------------------

    async def scheduler(self, *flags: str, before: tuple[str, ...] = ()) -> Scheduler:
        """Start ``moorage run``; ``before`` is inserted before ``-m moorage`` in the command line."""
        return await self._start([sys.executable, *before, "-m", "moorage", "run", *self._common, *flags], DEVNULL)

    async def peer(self, program: Path, *flags: str) -> Scheduler:
        """Start another scheduler: a program with kube-scheduler's flags."""
        return await self._start([str(program), *self._common, *flags], DEVNULL)

    @property
    def _common(self) -> tuple[str, ...]:
        return (f"--kubeconfig={self.home}/kubeconfig", "--secure-port=0", *_UNTHROTTLED)

    async def witness(self) -> Scheduler:
        """Start a scheduler that answers queries about what it has seen."""
        return await self._start([sys.executable, "-m", "benchmarks.live_witness", f"{self.home}/kubeconfig"], PIPE)

    async def _start(self, command: list[str], pipe: int) -> Scheduler:
        log = self.home / f"scheduler-{len(self._schedulers)}.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=file,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])},
            )  # fmt: skip
        self._schedulers.append(Scheduler(process, log))
        return self._schedulers[-1]

    async def ready(self) -> None:
        """Wait until a new pod is bound."""
        [uid] = self.create(1)
        await self.follower.until(lambda: uid in self.follower.bound)

    async def end(self) -> None:
        """End all schedulers."""
        for scheduler in self._schedulers:
            await scheduler.end()
        await self.hang_up()


@asynccontextmanager
async def world(nodes: int, pods: int = 0, workload: str = "basic", coming: int = 0) -> AsyncIterator[World]:
    """Serve a cluster of nodes with running plain pods; at the end, stop its schedulers first.

    Nodes have the labels of the ``workload``, and the first ``coming`` created pods are its measured ones.
    """
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        authority = make_authority(home / "pki")
        store = open_store(seed=0)
        asked = WORKLOADS[workload][0](Sizes(nodes, 0, coming), random.Random(0))
        _fill(store, [one for one in asked.objects if isinstance(one, Node)], pods)
        for space in asked.objects:
            if isinstance(space, Namespace) and space.metadata.name != "default":
                store.create(NAMESPACES, "", _document(space))
        there = World(store, home, nodes, authority, asked.measured)
        await there.serve()
        authority.write_kubeconfig(home / "kubeconfig", there.port)
        try:
            yield there
        finally:
            await there.end()


def _fill(store: Store, nodes: Sequence[Node], pods: int) -> None:
    """Store nodes and running pods: copies of one admitted object, because admitting each one would take minutes."""
    draw = random.Random(1)
    version = store.version + 1
    held = [(kind, record) for kind in KINDS for record in store.all(kind)]
    node = store.create(NODES, "", _document(shapes.node(0)), dry_run=True).document()
    for one in nodes:
        node["metadata"] |= {"name": one.metadata.name, "uid": _uid(draw), "labels": dict(one.metadata.labels)}
        held.append((NODES, Record.of(NODES, node, version)))
    pod = store.create(PODS, "default", _document(shapes.pod("template")), dry_run=True).document()
    pod["status"]["phase"] = "Running"
    for at in range(pods):
        pod["metadata"] |= {"name": f"old-{at}", "uid": _uid(draw)}
        pod["spec"]["nodeName"] = nodes[at % len(nodes)].metadata.name
        held.append((PODS, Record.of(PODS, pod, version)))
    store.restore(held, version)


def _document(obj: Any) -> Document:
    document: Document = msgspec.to_builtins(obj)
    document |= {"apiVersion": "v1", "kind": type(obj).__name__}
    document["metadata"] = {name: document["metadata"][name] for name in ("name", "labels") if name in document["metadata"]}
    return document


def _uid(draw: random.Random) -> str:
    text = f"{draw.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
