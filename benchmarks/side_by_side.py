"""kube-scheduler and ``moorage run`` in turn, on one real API server of this machine.

The pods of a workload are created while the scheduler is stopped; it goes on, and a watch sees each pod bound. Both have the
same cluster and no limit of requests unless one is set. etcd, kube-apiserver, the scheduler and the watch share the
machine's cores, as on a small control plane.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import ssl
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

import aiohttp
import msgspec

from benchmarks.workloads import WORKLOADS, Sizes
from moorage.api.core import Node, Pod
from tools.real_cluster import ClusterError, ControlPlane, Wanted, real_cluster

__all__ = ["NO_LIMIT", "ON_A_SERVER", "Setting", "measure_on_a_server", "table"]

#: The workloads that are compared by default.
ON_A_SERVER: Final = (
    "basic",
    "node-affinity",
    "spread-zone-required",
    "anti-affinity-host",
    "preferred-affinity-host",
    "unique-classes",
)
NO_LIMIT: Final = 1_000_000
SCHEDULERS: Final = ("kube-scheduler", "moorage run")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
#: Admission that a controller would have to follow up.
_ADMISSION: Final = "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"
_PATIENCE_S: Final = 600.0

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Setting:
    """The sizes, the number of runs of each scheduler, and how many requests a second it may send."""

    nodes: int
    pods: int
    runs: int
    qps: int = NO_LIMIT


class _Client:
    """Requests to the API server, many at a time."""

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self.session, self.server = session, server
        self.bound: dict[str, float] = {}
        self._reading: asyncio.Future[None] | None = None

    async def send(self, method: str, path: str, body: object = None) -> Any:
        async with self.session.request(method, self.server + path, json=body) as answer:
            said = await answer.read()
            if answer.status >= 300:
                raise ClusterError(f"{method} {path}: {answer.status} {said[:300].decode(errors='replace')}")
            return json.loads(said)

    async def make(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Create objects, sixteen at a time."""
        waiting = iter(documents)

        async def one_after_another() -> None:
            for document in waiting:
                await self.send("POST", _path_of(document), document)

        await asyncio.gather(*(one_after_another() for _ in range(16)))

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Note in ``bound`` when each pod is seen on a node for the first time."""
        self._reading = asyncio.ensure_future(self._read())
        try:
            yield
        finally:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        """Watch, and watch again where the server ends it: it does so if a client does not keep up."""
        timeout, version = aiohttp.ClientTimeout(total=None), ""
        while True:
            if not version:
                found = await self.send("GET", "/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName!%3D")
                version = found["metadata"]["resourceVersion"]
                for pod in found["items"]:
                    self.bound.setdefault(pod["metadata"]["name"], monotonic())
            query = {"watch": "true", "resourceVersion": version, "fieldSelector": "spec.nodeName!="}
            async with self.session.get(f"{self.server}/api/v1/pods", params=query, timeout=timeout) as answer:
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "DELETED":
                        self.bound.setdefault(event["object"]["metadata"]["name"], monotonic())

    async def until(self, names: set[str]) -> None:
        """Wait until all these pods are bound.

        Raises  ClusterError
        """
        ends = monotonic() + _PATIENCE_S
        while len(names & self.bound.keys()) < len(names):
            if self._reading is not None and self._reading.done():
                raise ClusterError(f"the watch of pods has ended: {self._reading.exception()}")
            if monotonic() > ends:
                raise ClusterError(
                    f"{len(names - self.bound.keys())} of {len(names)} pods are not bound after {_PATIENCE_S:.0f} s"
                )
            await asyncio.sleep(0.02)


def _path_of(document: Mapping[str, Any]) -> str:
    space = document["metadata"].get("namespace", "default")
    plural = {"Node": "nodes", "Namespace": "namespaces"}.get(document["kind"])
    return f"/api/v1/{plural}" if plural else f"/api/v1/namespaces/{space}/pods"


def _document(obj: Any) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(obj)
    kept = ("name", "namespace", "labels") if isinstance(obj, Pod) else ("name", "labels")
    metadata = {name: document["metadata"][name] for name in kept if document["metadata"].get(name)}
    return {**document, "apiVersion": "v1", "kind": type(obj).__name__, "metadata": metadata}


def _ready(obj: Node) -> dict[str, Any]:
    document = _document(obj)
    document["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    return document


def _command(name: str, plane: ControlPlane, qps: int) -> list[str]:
    program = [str(plane.folder / "bin" / "kube-scheduler")]
    if name != "kube-scheduler":
        program = [sys.executable, "-m", "moorage", "run", "--emulate", "1.37"]
    flags = [f"--kubeconfig={plane.scheduler_kubeconfig}", "--secure-port=0", "--leader-elect=false"]
    return [*program, *flags, f"--kube-api-qps={qps}", f"--kube-api-burst={qps if qps == NO_LIMIT else qps * 2}"]


async def _measure(name: str, plane: ControlPlane, client: _Client, pods: Sequence[Pod], qps: int) -> Figures:
    """Run a scheduler on pods that wait for it, and return its figures; the pods are gone afterwards."""
    log = plane.folder / f"{name.replace(' ', '-')}.log"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    with log.open("wb") as into:
        process = subprocess.Popen(_command(name, plane, qps), stdout=into, stderr=into, env=environment)
    client.bound.clear()
    try:
        async with client.watching():
            first = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "first"},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            }
            await client.make([first])
            await client.until({"first"})
            process.send_signal(signal.SIGSTOP)
            await client.make(map(_document, pods))
            cpu = _cpu_s(process.pid)
            begin = monotonic()
            process.send_signal(signal.SIGCONT)
            names = {pod.metadata.name for pod in pods}
            await client.until(names)
            times = sorted(client.bound[one] - begin for one in names)
            used, memory = _cpu_s(process.pid) - cpu, _peak_mb(process.pid)
    finally:
        process.kill()
        process.wait()
    for space in {pod.metadata.namespace or "default" for pod in pods} | {"default"}:
        await client.send("DELETE", f"/api/v1/namespaces/{space}/pods?gracePeriodSeconds=0")
    almost = times[int(len(times) * 0.99) - 1]
    return {
        "pods_per_s": len(times) / times[-1], "pods_per_s_99": len(times) * 0.99 / almost, "first_s": times[0],
        "last_s": times[-1], "cpu_s": used, "peak_mb": memory,
    }  # fmt: skip


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _peak_mb(pid: int) -> float:
    line = next(one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def measure_on_a_server(name: str, given: Setting) -> list[dict[str, Any]]:
    """Measure both schedulers on a workload, and write a line for each run.

    Raises  ClusterError, tools.oracles.OracleMissingError, tools.oracles.BuildError
    """
    return asyncio.run(_measure_in_turn(name, given))


async def _measure_in_turn(name: str, given: Setting) -> list[dict[str, Any]]:
    asked = WORKLOADS[name][0](Sizes(given.nodes, 0, given.pods), random.Random(0))
    nodes = [_ready(one) for one in asked.objects if isinstance(one, Node)]
    pods = list(asked.measured)
    spaces = {pod.metadata.namespace or "default" for pod in pods} - {"default"}
    wanted = Wanted(nodes=0, controllers=False, arguments={"kube-apiserver": (_ADMISSION,)})
    with real_cluster(wanted) as plane:
        tls = ssl.create_default_context(cafile=plane.ca)
        headers = {"Authorization": f"Bearer {plane.token}"}
        connector = aiohttp.TCPConnector(ssl=tls, limit=64)
        async with aiohttp.ClientSession(connector=connector, headers=headers, read_bufsize=1 << 22) as session:
            client = _Client(session, plane.server)
            await client.make([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": one}} for one in spaces])
            await client.make(nodes)
            found: list[dict[str, Any]] = []
            for run in range(given.runs):
                for scheduler in SCHEDULERS if run % 2 == 0 else SCHEDULERS[::-1]:
                    figures = await _measure(scheduler, plane, client, pods, given.qps)
                    found.append({"workload": name, "scheduler": scheduler, **figures})
                    shown = ", ".join(f"{what} {value:.1f}" for what, value in figures.items())
                    sys.stdout.write(f"{name} by {scheduler}: {shown}\n")
                    sys.stdout.flush()
    return found


def table(results: Sequence[Mapping[str, Any]], given: Setting) -> str:
    """Return the results as a table: medians, with the least and the most pods a second."""
    limit = "no limit of requests" if given.qps == NO_LIMIT else f"{given.qps} requests a second at most"
    head = (
        f"{given.nodes} nodes, {given.pods:,} pods, {limit}, {given.runs} runs of each in turn. etcd, kube-apiserver and the\n"
        f"scheduler share {os.cpu_count()} cores, at a load of {os.getloadavg()[2]:.0f} by all that ran."
    )
    lines = [
        head, "",
        "| workload | pods a second: kube-scheduler 1.37.2 | Moorage | CPU s | | peak MB | | first binding, s | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for workload in dict.fromkeys(one["workload"] for one in results):
        cells = []
        of = {name: [one for one in results if (one["workload"], one["scheduler"]) == (workload, name)] for name in SCHEDULERS}
        for name in SCHEDULERS:
            rates = sorted(one["pods_per_s"] for one in of[name])
            cells.append(f"{statistics.median(rates):.0f} ({rates[0]:.0f}-{rates[-1]:.0f})")
        for what, form in (("cpu_s", ".1f"), ("peak_mb", ".0f"), ("first_s", ".1f")):
            cells += [format(statistics.median(one[what] for one in of[name]), form) for name in SCHEDULERS]
        lines.append(f"| {workload} | {' | '.join(cells)} |")
    return "\n".join(lines)
