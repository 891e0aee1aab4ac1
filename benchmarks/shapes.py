"""Nodes, pods and other objects of workloads, in the shapes of kube-scheduler's own benchmark.

A node has 4 CPUs, 32 GiB and room for 110 pods; a pod requests 100m of CPU and 500 MiB.

Source  kubernetes v1.36, test/integration/scheduler_perf/templates
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from moorage.api.core import Namespace, Node, Pod
from moorage.api.defaults import PodDefaults, default_node
from moorage.api.pod_decoding import PodDecoder

__all__ = ["HOSTNAME", "ZONE", "namespace", "node", "pod", "requests", "term"]

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
_completed: Final = PodDefaults()
_decoder: Final = PodDecoder()
_NODE = {"cpu": "4", "memory": "32Gi", "pods": "110"}


def node(index: int, labels: Mapping[str, str] | None = None, allocatable: Mapping[str, str] | None = None) -> Node:
    """Return node number ``index``, with its host name and ``labels`` as labels."""
    name = f"node-{index}"
    offered = dict(allocatable or _NODE)
    made = {
        "metadata": {"name": name, "uid": name, "labels": {HOSTNAME: name, **(labels or {})}},
        "status": {"allocatable": offered, "capacity": offered},
    }
    return default_node(msgspec.convert(made, Node))


def requests(cpu: str = "100m", memory: str = "500Mi") -> dict[str, Any]:
    """Return a container's ``resources``."""
    return {"requests": {"cpu": cpu, "memory": memory}}


def pod(
    name: str, labels: Mapping[str, str] | None = None, *, space: str = "default", resources: Any = None, **spec: Any
) -> Pod:
    """Return a pending pod with one container. Copies share their parts, as pods that a file or a list holds do."""
    container = {
        "name": "pause",
        "image": "registry.k8s.io/pause:3.10.1",
        "ports": [{"containerPort": 80}],
        "resources": requests() if resources is None else resources,
    }
    made = {
        "metadata": {"name": name, "namespace": space, "uid": f"{space}/{name}", "labels": dict(labels or {})},
        "spec": {"containers": [container], **spec},
    }
    return _completed(_decoder.decode(msgspec.json.encode(made)))


def namespace(name: str, labels: Mapping[str, str] | None = None) -> Namespace:
    """Return a namespace."""
    return msgspec.convert({"metadata": {"name": name, "uid": name, "labels": dict(labels or {})}}, Namespace)


def term(key: str, color: str, namespaces: Sequence[str] = ()) -> dict[str, Any]:
    """Return an affinity term that matches pods of a colour."""
    return {"labelSelector": {"matchLabels": {"color": color}}, "topologyKey": key, "namespaces": list(namespaces)}
