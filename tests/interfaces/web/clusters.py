"""Snapshots for the tests of the page."""

from typing import Any


def snapshot(nodes: list[dict[str, Any]], pods: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Return a snapshot with these nodes and pods; what they leave out has a default."""
    resources = ["cpu", "memory", "pods", "nvidia.com/gpu"]
    nodes = [node_fields(**node) for node in nodes]
    index = {node["name"]: at for at, node in enumerate(nodes)}
    pods = [pod_fields(**pod) for pod in pods]
    columns = ("name", "zone", "labels", "group", "ready", "cordoned", "taints", "stranded", "unready", "since")
    return {
        "apiVersion": "moorage.dev/v1",
        "kind": "Snapshot",
        "release": "1.36",
        "id": "s.0",
        "at": "2026-01-01T00:00:00Z",
        "live": True,
        "writable": False,
        "user": "admin",
        "notes": [],
        "resources": resources,
        "unit": {"cpu": "milli", "memory": "bytes", "pods": "count", "nvidia.com/gpu": "count"},
        "nodes": {name: [node[name] for node in nodes] for name in columns}
        | {
            side: {one: [node[side].get(one, 0) for node in nodes] for one in resources}
            for side in ("allocatable", "requested")
        },
        "pods": {
            name: [pod[name] for pod in pods] for name in ("key", "owner", "state", "priority", "cause", "arrived", "attempts")
        }
        | {
            "node": [index.get(pod["node"], -1) for pod in pods],
            "requests": {one: [pod["requests"].get(one, 0) for pod in pods] for one in ("cpu", "memory")},
        },
        "causes": [],
        **more,
    }


def node_fields(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "zone": "a",
        "labels": {},
        "group": "general",
        "ready": True,
        "cordoned": False,
        "taints": [],
        "allocatable": {"cpu": 4000, "memory": 16 << 30, "pods": 110},
        "requested": {"cpu": 1000, "memory": 8 << 30, "pods": 2},
        "stranded": 0.0,
        "unready": "",
        "since": 0.0,
        **more,
    }


def pod_fields(key: str, node: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "key": key,
        "owner": "",
        "node": node,
        "state": "bound" if node else "pending",
        "priority": 0,
        "requests": {"cpu": 500, "memory": 1 << 30},
        "cause": "",
        "arrived": 0.0,
        "attempts": 1,
        **more,
    }


def large(nodes: int = 5000, pods_per_node: int = 10, pending: int = 200) -> dict[str, Any]:
    """Return a snapshot of many nodes in three zones, evenly filled, some cordoned or not ready."""
    return snapshot(
        [
            {
                "name": f"node-{at:04}",
                "zone": f"zone-{'abc'[at % 3]}",
                "labels": {"pool": f"pool-{at % 7}", "kubernetes.io/hostname": f"node-{at:04}"},
                "cordoned": at % 97 == 0,
                "ready": at % 211 != 5,
                "allocatable": {"cpu": 16000, "memory": 64 << 30, "pods": 110},
                "requested": {"cpu": (at * 37) % 16000, "memory": ((at * 53) % 64) << 30, "pods": pods_per_node},
            }
            for at in range(nodes)
        ],
        [
            {"key": f"load/app-{at}", "node": f"node-{at % nodes:04}", "owner": f"Deployment/app-{at % 50}"}
            for at in range(nodes * pods_per_node)
        ]
        + [
            {
                "key": f"load/wait-{at}",
                "cause": f"0/{nodes} nodes are available: {nodes} Insufficient cpu. preemption: none",
                "attempts": 3,
            }
            for at in range(pending)
        ],
    )
