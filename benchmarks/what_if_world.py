"""A cluster that holds something for every plugin, for what-ifs: images, topology, affinity, budgets, volumes and devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from moorage.laboratory.cluster import Cluster

__all__ = ["HOLDERS", "WAITING", "holds_claims", "rich_cluster", "rich_node"]

_ZONE: Final = "topology.kubernetes.io/zone"
_HOST: Final = "kubernetes.io/hostname"
_DEVICES: Final = "resource.k8s.io/v1"
_DRIVER: Final = "gpu.example.com"
#: The apps of placed pods.
_APPS: Final = ("a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8")
#: One of so many placed pods has a volume and a device.
HOLDERS: Final = 20


def _matches(app: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}}


def _spread(key: str, skew: int, when: str) -> dict[str, Any]:
    constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, **_matches("a0")}
    return {"topologySpreadConstraints": [constraint]}


_APART: Final = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": _HOST, **_matches("db")}]}
_NEAR: Final = [{"weight": 10, "podAffinityTerm": {"topologyKey": _ZONE, **_matches("a1")}}]
#: The pods that are decided on, by name, and what differs in their specs.
WAITING: Final[Mapping[str, dict[str, Any]]] = {
    "plain": {},
    "of-a-service": {},
    "spread": _spread(_ZONE, 5, "DoNotSchedule"),
    "preferred-spread": _spread(_HOST, 1, "ScheduleAnyway"),
    "anti-affinity": {"affinity": {"podAntiAffinity": _APART}},
    "affinity": {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": _NEAR}}},
    "volume": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "mine"}}]},
    "unbound-volume": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "late"}}]},
    "device": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]},
}
_LATE: Final = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def rich_cluster(nodes: int, pods: int) -> Cluster:
    """Return a cluster of these nodes and placed pods, on which each pod of ``WAITING`` was decided once."""
    objects = [
        *_policies(),
        *(rich_node(f"n{at}", at) for at in range(nodes)),
        *(_slice(f"n{at}") for at in range(nodes)),
        *_placed(nodes, pods),
        *_claims("mine", "mine"),
        _object("v1", "PersistentVolumeClaim", "late", spec=_LATE),
        _pod("other", "a3", {}),
        *(_pod(name, "a8" if name == "of-a-service" else "a9", spec) for name, spec in WAITING.items()),
    ]
    cluster = Cluster.from_objects(objects)
    for name in WAITING:
        if not cluster.schedule([name], dry_run=True)[0]:
            raise AssertionError(f"pod {name} fits nowhere")
    return cluster


def rich_node(name: str, at: int) -> dict[str, Any]:
    """Return a node with images, in one of three zones; ``at`` numbers it."""
    images = [{"names": [f"x:{(at + i) % 5}"], "sizeBytes": (100 + 50 * i) << 20} for i in range(3)]
    taints = [{"key": "t", "effect": "NoSchedule"}] if at % 10 == 0 else []
    status = {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": 110}, "images": images}
    return {**_object("v1", "Node", name, {_HOST: name, _ZONE: "abc"[at % 3]}, spec={"taints": taints}), "status": status}


def _policies() -> Iterator[dict[str, Any]]:
    for app in _APPS:
        budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": app}}}
        yield _object("policy/v1", "PodDisruptionBudget", app, spec=budget)
    yield _object("v1", "Service", "s", spec={"selector": {"app": "a8"}})
    late = _object("storage.k8s.io/v1", "StorageClass", "late")
    yield {**late, "provisioner": "disks.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
    yield _object(_DEVICES, "DeviceClass", "gpu", spec={})


def _slice(node: str) -> dict[str, Any]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": _DRIVER, "nodeName": node, "pool": pool, "devices": [{"name": f"d{at}"} for at in range(4)]}
    return _object(_DEVICES, "ResourceSlice", f"s-{node}", spec=spec)


def holds_claims(at: int, nodes: int) -> bool:
    """Return whether the placed pod of this number has a volume and a device."""
    return (at + at // nodes) % HOLDERS == 0


def _placed(nodes: int, pods: int) -> Iterator[dict[str, Any]]:
    hostwise = WAITING["anti-affinity"]
    for at in range(pods):
        name, node, app = f"p{at}", f"n{at % nodes}", _APPS[at % len(_APPS)]
        spec: dict[str, Any] = {"nodeName": node}
        if holds_claims(at, nodes):
            yield from _claims(name, f"d-{name}", node, f"d{at // nodes % 4}")
            spec |= {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}
            spec |= {"resourceClaims": [{"name": "gpu", "resourceClaimName": f"d-{name}"}]}
        elif at % 3 == 0:
            spec |= WAITING["spread"]
        elif at % 50 == 1:
            spec, app = spec | hostwise, "db"
        yield _pod(name, app, spec)


def _claims(volume: str, device: str, node: str = "", taken: str = "") -> Iterator[dict[str, Any]]:
    """Yield a bound volume with its claim, and a claim of a device; with a node, the device is allocated there."""
    claim = {**_LATE, "volumeName": f"v-{volume}"}
    bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}, "name": volume}
    yield {**_object("v1", "PersistentVolumeClaim", volume, spec=claim), "metadata": bound, "status": {"phase": "Bound"}}
    csi = {"driver": "disks.example.com", "volumeHandle": volume}
    held = {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "late",
        "claimRef": {"namespace": "default", "name": volume}, "csi": csi,
    }  # fmt: skip
    yield {**_object("v1", "PersistentVolume", f"v-{volume}", spec=held), "status": {"phase": "Bound"}}
    asks = {"devices": {"requests": [{"name": "main", "exactly": {"deviceClassName": "gpu"}}]}}
    wanted = _object(_DEVICES, "ResourceClaim", device, spec=asks)
    if node:
        result = {"request": "main", "driver": _DRIVER, "pool": node, "device": taken}
        place = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        selector = {"nodeSelectorTerms": [place]}
        user = {"resource": "pods", "name": volume, "uid": f"default/{volume}"}
        wanted["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
        wanted["status"] = {"allocation": {"devices": {"results": [result]}, "nodeSelector": selector}, "reservedFor": [user]}
    yield wanted


def _pod(name: str, app: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    container = {"name": "c", "image": "x:1", "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}}}
    made = _object("v1", "Pod", name, {"app": app}, spec={"containers": [container], **spec})
    return {**made, "metadata": {**made["metadata"], "uid": f"default/{name}"}}


def _object(api: str, kind: str, name: str, labels: Mapping[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": dict(labels or {})}, **fields}
