"""How long does it take to explain a pending pod? In the library, and with the command from a file.

A third of the nodes have the label that the pod selects, and none of them has enough cpu free. Times are CPU time; ``loop_us``
is the CPU time of ``sum(range(1000))`` in the same minute: the speed of the machine under its load.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import process_time
from typing import Any

import msgspec

from benchmarks.what_ifs import loop_us
from moorage.laboratory.cluster import Cluster

__all__ = ["measure_explanations"]

_CREATED = "2026-01-01T00:00:00Z"


def measure_explanations(nodes: int = 5000, pods: int = 50_000, rounds: int = 3) -> Iterator[dict[str, Any]]:
    """Yield the milliseconds of ``Cluster.explain``, with and without changes, and the seconds of the command."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        items = [*_nodes(nodes), *_pods(pods, nodes), _pending()]
        path.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))
        yield {"name": "moorage explain FILE", "nodes": nodes, "pods": pods, "cpu_s": _command(path), "loop_us": loop_us()}
        cluster = Cluster.read(path)
    cluster.schedule()
    gc.freeze()
    for name, probes in {"explain, the first time": 2000, "explain": 2000, "explain without changes": 0}.items():
        times = []
        for _ in range(1 if "first" in name else rounds):
            began = process_time()
            found = cluster.explain("pending", probes=probes)
            times.append(process_time() - began)
        ms = round(min(times) * 1e3, 1)
        yield {"name": name, "nodes": nodes, "pods": pods, "ms": ms, "runs": found.proof.runs, "loop_us": loop_us()}


def _command(path: Path) -> float:
    """Run the command twice, because the first run also writes the bytecode. Return the CPU seconds of the second."""
    for _ in range(2):
        before = getrusage(RUSAGE_CHILDREN)
        arguments = ["-m", "moorage", "explain", "pending", "-f", str(path), "-q"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, env=environment, check=False)
        after = getrusage(RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)


def _nodes(count: int) -> Iterator[dict[str, Any]]:
    offered = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    for at in range(count):
        name = f"n{at}"
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "abc"[at % 3], "pool": f"pool-{at % 8}"}
        labels |= {"disk": "ssd"} if at % 3 == 0 else {}
        taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}] if at % 40 == 1 else []
        spec = {"unschedulable": at % 50 == 0, "taints": taints}
        yield {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "labels": labels}, "spec": spec,
            "status": {"allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]},
        }  # fmt: skip


def _pods(count: int, nodes: int) -> Iterator[dict[str, Any]]:
    for at in range(count):
        yield _pod(f"app-{at % 200}-{at}", f"{1200 + 100 * (at % 5)}m", {"app": f"app-{at % 200}"}, nodeName=f"n{at % nodes}")


def _pending() -> dict[str, Any]:
    return _pod("pending", "6", {"app": "search"}, nodeSelector={"disk": "ssd"})


def _pod(name: str, cpu: str, labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "example.com/x:1", "resources": {"requests": {"cpu": cpu, "memory": "2Gi"}}}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels, "creationTimestamp": _CREATED}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], "priority": 0, **spec}}
