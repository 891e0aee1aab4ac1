"""Measure ``moorage simulate`` of a very large cluster as a user runs it: reading and report included.

The file is what ``kubectl get nodes,pods -o json`` prints, without spaces: nodes in ten zones, and pending replicas of
Deployments, of one app after the other or in random order.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.what_ifs import loop_us

__all__ = ["million"]

#: Scaled CPU seconds for each pod: a minute for a million of them.
_BOUND_S: Final = 60 / 1_000_000
#: The most memory of a pod, which includes its part of the report.
_BOUND_BYTES: Final = 2500
#: The CPU microseconds of ``sum(range(1000))`` on the machine that the bound is for.
_LOOP_US: Final = 9.0
_CREATED: Final = "2026-01-01T00:00:00Z"
_REPLICA_SET: Final = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True, "blockOwnerDeletion": True}
_OF_EVERY_POD: Final = {
    "restartPolicy": "Always", "schedulerName": "default-scheduler", "serviceAccountName": "default", "priority": 0,
    "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority",
}  # fmt: skip


def million(pods: int, nodes: int, apps: int, output: str, *, shuffled: bool = False, pending: bool = False) -> dict[str, Any]:
    """Simulate pending pods of apps on empty nodes in a new process, and print a table or a document.

    ``pending``: pods ask for a label that no node has, so that none is placed. ``bytes_a_pod`` is the peak memory beyond that
    of the same run with one pod.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        _write(path, _items(1, nodes, 1, shuffled=False, pending=pending))
        _, empty_mib = _run(path, output)
        _write(path, _items(pods, nodes, apps, shuffled=shuffled, pending=pending))
        size = path.stat().st_size
        before = loop_us()
        took, peak_mib = _run(path, output)
        speed = (before + loop_us()) / 2
    scaled, bound = took * _LOOP_US / speed, _BOUND_S * pods
    each = round((peak_mib - empty_mib) * (1 << 20) / pods)
    return {
        "name": "million", "pods": pods, "nodes": nodes, "apps": apps, "shuffled": shuffled, "pending": pending,
        "output": output, "file_mb": round(size / 1e6), "cpu_s": round(took, 1), "scaled_s": round(scaled, 1),
        "bound_s": bound, "peak_mib": round(peak_mib), "bytes_a_pod": each, "bound_bytes": _BOUND_BYTES,
        "within": scaled <= bound and each <= _BOUND_BYTES, "loop_us": speed,
    }  # fmt: skip


def _write(path: Path, items: Iterable[dict[str, Any]]) -> None:
    with path.open("wb") as file:
        file.write(b'{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[')
        for number, item in enumerate(items):
            file.write((b"," if number else b"") + msgspec.json.encode(item))
        file.write(b"]}\n")


def _run(path: Path, output: str) -> tuple[float, float]:
    """Run ``moorage simulate``; return its CPU seconds and its peak memory in MiB."""
    arguments = [sys.executable, "-m", "moorage", "simulate", "-f", str(path), "-o", output]
    started = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode not in {0, 2}:  # 2: some pods stay pending
        raise subprocess.CalledProcessError(started.returncode, arguments)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def _items(pods: int, nodes: int, apps: int, *, shuffled: bool, pending: bool) -> Iterator[dict[str, Any]]:
    for at in range(nodes):
        yield _node(at)
    numbers = list(range(pods))
    if shuffled:
        random.Random(5).shuffle(numbers)
    for at in numbers:
        yield _pod(at, at * apps // pods, pending)


def _node(at: int) -> dict[str, Any]:
    name = f"node-{at:06d}"
    labels = {
        "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{at % 10}",
        "topology.kubernetes.io/region": "region", "node.kubernetes.io/instance-type": "standard-16",
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
    }  # fmt: skip
    offered = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"}
    status = {"allocatable": offered, "capacity": offered, "conditions": [{"type": "Ready", "status": "True"}]}
    metadata = {"name": name, "uid": f"node-uid-{at:06d}", "creationTimestamp": _CREATED, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status}


def _pod(at: int, app: int, pending: bool) -> dict[str, Any]:
    pick = random.Random(app)
    requests = {
        "cpu": f"{pick.choice((100, 200, 250, 500, 750, 1000))}m",
        "memory": f"{pick.choice((128, 256, 512, 1024, 2048))}Mi",
    }
    owner = f"app-{app:04d}-{pick.getrandbits(40):010x}"
    metadata = {
        "name": f"{owner}-{at:07x}", "generateName": f"{owner}-", "namespace": f"team-{app % 20}",
        "uid": f"8d6e2f0a-5c1b-4e7d-9a3f-{at:012x}", "resourceVersion": str(1000 + at), "creationTimestamp": _CREATED,
        "labels": {"app": f"app-{app:04d}", "pod-template-hash": owner[-10:]},
        "ownerReferences": [{**_REPLICA_SET, "name": owner, "uid": f"1f9c4b7e-2d3a-4c5b-8e6f-{app:012x}"}],
    }  # fmt: skip
    container = {
        "name": "main", "image": f"registry.example.com/app-{app:04d}:1.0", "resources": {"requests": requests},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
    }  # fmt: skip
    spec = {"containers": [container], **_OF_EVERY_POD, **({"nodeSelector": {"disk": "none"}} if pending else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
