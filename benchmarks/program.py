"""Measure the whole program as a user runs it: a process, a file, a report.

Each measurement is repeated; the minimum counts, because other load on the machine can only add time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter, process_time
from typing import Any, Final

import msgspec

from moorage.simulator.cluster_reader import read

__all__ = ["help_text", "library_import", "reading", "whole_run"]

_APPS: Final = 200


def help_text(times: int = 7) -> dict[str, Any]:
    """``moorage --help``."""
    return _least("help", ["-m", "moorage", "--help"], times)


def library_import(times: int = 7) -> dict[str, Any]:
    """Import the library and everything that ``moorage.simulate`` needs."""
    return _least("library-import", ["-c", "import moorage; moorage.simulate"], times)


def reading(pods: int = 100_000, nodes: int = 5000) -> dict[str, Any]:
    """Read a cluster with many pods from one JSON file."""
    with tempfile.TemporaryDirectory() as folder:
        path = _written(Path(folder) / "cluster.json", nodes, pods)
        wall, cpu = perf_counter(), process_time()
        read([path])
        took = {"wall_s": round(perf_counter() - wall, 3), "cpu_s": round(process_time() - cpu, 3)}
        return {"name": "reading", "pods": pods, **took, "pods_per_cpu_s": round(pods / took["cpu_s"])}


def whole_run(pods: int = 100_000, nodes: int = 5000, *, in_turn: bool = False) -> dict[str, Any]:
    """``moorage simulate``: read a file, schedule every pod of 200 apps, write the report as JSON.

    Pods are sorted by app, as kubectl lists them, or alternate between apps (``in_turn``). Alternating is the hardest order:
    when a class recurs, as many nodes have changed as there are classes.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = _written(Path(folder) / "cluster.json", nodes, pods, in_turn=in_turn)
        arguments = ["-m", "moorage", "simulate", "-f", str(path), "-o", "json"]
        name = "simulate-in-turn" if in_turn else "simulate"
        return {**_least(name, arguments, 1), "pods": pods, "nodes": nodes}


def _least(name: str, arguments: list[str], times: int) -> dict[str, Any]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    walls, cpus = [], []
    with tempfile.TemporaryDirectory() as compiled:
        for _ in range(times + (times > 1)):  # the first run also writes the bytecode
            before, wall = getrusage(RUSAGE_CHILDREN), perf_counter()
            subprocess.run(
                [sys.executable, *arguments],
                check=True,
                stdout=subprocess.DEVNULL,
                env={**environment, "PYTHONPYCACHEPREFIX": compiled, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            after = getrusage(RUSAGE_CHILDREN)
            walls.append(perf_counter() - wall)
            cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"name": name, "wall_s": round(min(walls), 3), "cpu_s": round(min(cpus), 3)}


def _written(path: Path, nodes: int, pods: int, *, in_turn: bool = False) -> Path:
    items = [*_nodes(nodes), *_pods(pods, in_turn)]
    path.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


def _nodes(count: int) -> Iterator[dict[str, Any]]:
    offered = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    for at in range(count):
        labels = {"kubernetes.io/hostname": f"node-{at}", "topology.kubernetes.io/zone": f"zone-{at % 3}"}
        status = {"allocatable": offered, "capacity": offered, "conditions": [{"type": "Ready", "status": "True"}]}
        yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{at}", "labels": labels}, "status": status}


def _pods(count: int, in_turn: bool) -> Iterator[dict[str, Any]]:
    for at in range(count):
        app = at % _APPS if in_turn else at * _APPS // count
        requests = {"cpu": f"{100 + app}m", "memory": f"{200 + app}Mi"}
        container = {"name": "c", "image": f"example.com/app-{app}:1", "resources": {"requests": requests}}
        labels, name = {"app": f"app-{app}"}, f"app-{app}-{at}"
        metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
