"""How long does reading YAML take, of what kubectl prints?

Times are CPU time, the best of several rounds; ``loop_us`` is the CPU time of ``sum(range(1000))``: the speed of the machine
under its load. ``s_at_9_us`` scales the time to a machine on which that loop takes 9 µs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from time import thread_time
from typing import Any

import yaml

from benchmarks.what_ifs import loop_us
from moorage.api.reading.yaml_tree import read_tree

__all__ = ["measure_yaml"]

#: Marks in the printed pod that each pod replaces by its own values.
_APP, _POD, _HASH, _NODE, _TIME = "app-mark", "pod-mark", "hash-mark", "node-mark", "time-mark"
_LABELS = {"app.kubernetes.io/name": _APP, "app.kubernetes.io/version": "1.4.2", "pod-template-hash": _HASH}
_CONTAINER: dict[str, Any] = {
    "args": ["--config=/etc/app/config.yaml", "--log-level=info"],
    "env": [{"name": "POD", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
    "image": f"registry.example.com/team/{_APP}:1.4.2",
    "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10},
    "name": "main",
    "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
    "resources": {"limits": {"memory": "2Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}},
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    "terminationMessagePath": "/dev/termination-log",
    "volumeMounts": [{"mountPath": "/etc/app", "name": "config", "readOnly": True}],
}
_TOLERATIONS = [
    {"effect": "NoExecute", "key": f"node.kubernetes.io/{why}", "operator": "Exists", "tolerationSeconds": 300}
    for why in ("not-ready", "unreachable")
]
_POD_OBJECT: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "annotations": {"prometheus.io/port": "9090", "example.com/script": f"#!/bin/sh\nexec /bin/{_APP}\n"},
        "creationTimestamp": _TIME,
        "labels": _LABELS,
        "name": _POD,
        "namespace": "default",
        "ownerReferences": [{"apiVersion": "apps/v1", "controller": True, "kind": "ReplicaSet", "name": _APP, "uid": _HASH}],
        "uid": f"{_HASH}-{_POD}",
    },
    "spec": {
        "containers": [_CONTAINER],
        "nodeName": _NODE,
        "priority": 0,
        "securityContext": {},
        "tolerations": _TOLERATIONS,
        "volumes": [{"configMap": {"defaultMode": 420, "name": f"{_APP}-config"}, "name": "config"}],
    },
    "status": {
        "conditions": [
            {"lastProbeTime": None, "lastTransitionTime": _TIME, "status": "True", "type": kind}
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [{"containerID": f"containerd://{_HASH}{_POD}", "lastState": {}, "name": "main", "ready": True}],
        "phase": "Running",
        "startTime": _TIME,
    },
}


def pods_as_yaml(size: int, *, as_list: bool) -> bytes:
    """Return at least ``size`` bytes of pods as kubectl prints them: in one list, or as a document each."""
    pod = yaml.dump(_POD_OBJECT, width=4096)
    one = "- " + pod.rstrip("\n").replace("\n", "\n  ") + "\n" if as_list else f"---\n{pod}"
    pods = [_filled(one, number) for number in range(size // len(one) + 1)]
    return ("".join(["apiVersion: v1\nitems:\n", *pods, "kind: List\n"] if as_list else pods)).encode()


def _filled(text: str, number: int) -> str:
    app = number // 7
    digest = f"x{hashlib.sha256(str(app).encode()).hexdigest()[:9]}"
    time = f"2026-03-{number % 28 + 1:02}T{number % 24:02}:{number % 60:02}:00Z"
    for mark, value in ((_APP, f"app-{app}"), (_POD, f"pod-{number}"), (_HASH, digest), (_NODE, f"ip-10-0-{number % 250}")):
        text = text.replace(mark, value)
    return text.replace(_TIME, f"'{time}'")


def measure_yaml(megabytes: float, rounds: int = 3) -> Iterator[dict[str, Any]]:
    """Yield the time of reading a list and of reading documents."""
    for name, as_list in (("list", True), ("documents", False)):
        data = pods_as_yaml(int(megabytes * 1e6), as_list=as_list)
        took, loop = _best(lambda data=data: _read(data), rounds)  # type: ignore[misc]
        yield {
            "name": name, "megabytes": round(len(data) / 1e6, 1), "s": round(took, 2), "loop_us": loop,
            "s_at_9_us": round(took * 9 / loop, 2),
        }  # fmt: skip


def _read(data: bytes) -> None:
    for _ in read_tree(data, "pods.yaml", strict=True):
        pass


def _best(step: Callable[[], None], rounds: int) -> tuple[float, float]:
    """Return the least seconds of CPU time of a step, and the best speed of the machine around it."""
    took, loop = float("inf"), loop_us()
    for _ in range(rounds):
        began = thread_time()
        step()
        took, loop = min(took, thread_time() - began), min(loop, loop_us())
    return took, loop
