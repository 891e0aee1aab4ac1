"""How long does it take to explain a pending pod? In the library, and with the command from a file.

Times are CPU time; ``loop_us`` is the CPU time of ``sum(range(1000))`` in the same minute: the speed of the machine under its
load. The first explanation of a cluster also computes what all later ones share.
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

from benchmarks.explained_clusters import CLUSTERS
from benchmarks.what_ifs import loop_us
from moorage.laboratory.cluster import Cluster

__all__ = ["measure_explanations"]


def measure_explanations(nodes: int = 5000, pods: int = 50_000, rounds: int = 3) -> Iterator[dict[str, Any]]:
    """Yield the milliseconds of ``Cluster.explain``, with and without changes, and the seconds of the command."""
    for kind, (manifests, pending) in CLUSTERS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "cluster.json"
            path.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": list(manifests(nodes, pods))}))
            size = {"cluster": kind, "nodes": nodes, "pods": pods}
            yield {"name": "moorage explain FILE", **size, "cpu_s": _command(path, pending[0]), "loop_us": loop_us()}
            cluster = Cluster.read(path)
        cluster.schedule()
        gc.freeze()
        for pod in pending:
            for row in _explained(cluster, pod, rounds):
                yield {**row, **size}


def _explained(cluster: Cluster, pod: str, rounds: int) -> Iterator[dict[str, Any]]:
    for name, probes in {"explain, the first time": 2000, "explain": 2000, "explain without changes": 0}.items():
        times = []
        for _ in range(1 if "first" in name else rounds):
            began = process_time()
            found = cluster.explain(pod, probes=probes)
            times.append(process_time() - began)
        yield {"name": name, "pod": pod, "ms": round(min(times) * 1e3, 1), "runs": found.proof.runs, "loop_us": loop_us()}


def _command(path: Path, pod: str) -> float:
    """Run the command twice, because the first run also writes the bytecode. Return the CPU seconds of the second."""
    for _ in range(2):
        before = getrusage(RUSAGE_CHILDREN)
        arguments = ["-m", "moorage", "explain", pod, "-f", str(path), "-q"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, env=environment, check=False)
        after = getrusage(RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)
