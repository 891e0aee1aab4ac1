"""A dump like one of a production cluster, as ``kubectl get … -o json`` prints it: everything real clusters have, good and bad.

Node groups in three zones with a provider's labels and long names; cordoned, full and dead nodes; Deployments, StatefulSets,
DaemonSets and Jobs with owners, images, probes, volumes, spreading, affinity, disruption budgets, quotas, gates; pending pods
of a dozen causes, some of them typing errors; and what scheduling does not read, which is most of the bytes: Secrets,
ConfigMaps, Events, environments. Equal arguments make equal bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import NAMESPACE_URL, uuid5
from zlib import crc32

import msgspec

__all__ = ["production_objects", "write_production_dump"]

_Object: TypeAlias = dict[str, Any]

_CREATED: Final = "2026-03-01T08:00:00Z"
_RENEWED: Final = "2026-03-01T08:00:00.000000Z"
_HOST: Final = "kubernetes.io/hostname"
_ZONE: Final = "topology.kubernetes.io/zone"
_POOL: Final = "example.com/pool"
_ZONES: Final = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_TEAMS: Final = (
    "checkout", "payments", "search-and-discovery", "recommendations", "identity-and-access", "fulfilment", "data-platform",
    "machine-learning", "observability", "edge", "internal-tools", "customer-notifications",
)  # fmt: skip
_NOUNS: Final = (
    "api", "worker", "gateway", "consumer", "indexer", "cache-warmer", "event-processor", "reconciliation-controller",
    "frontend", "session-store", "pricing-engine", "feature-flag-evaluation-service",
)  # fmt: skip


class _Group(NamedTuple):
    """A node group: what its nodes offer, its part of all nodes, and the taint that keeps others off."""

    name: str
    machine: str
    share: float
    cpu_milli: int
    memory_mi: int
    gpus: int = 0
    taint: str = ""


_GROUPS: Final = (
    _Group("general", "m6i.4xlarge", 0.55, 15_890, 60_200),
    _Group("compute", "c6i.12xlarge", 0.2, 47_810, 91_400),
    _Group("memory", "r6i.8xlarge", 0.1, 31_850, 251_000),
    _Group("spot", "m5.2xlarge", 0.1, 7_910, 29_700, taint="spot"),
    _Group("gpu", "p4d.24xlarge", 0.05, 95_690, 1_126_000, gpus=8, taint="nvidia.com/gpu"),
)


class _Node(NamedTuple):
    name: str
    zone: str
    group: _Group
    free: list[int]


class _App(NamedTuple):
    """A workload: ``kind`` of its controller, its pods' requests, and the group whose nodes it selects."""

    kind: str
    name: str
    namespace: str
    replicas: int
    cpu_milli: int
    memory_mi: int
    group: _Group
    gpus: int
    spec: _Object


def write_production_dump(path: Path, nodes: int, pods: int, seed: int = 0, *, lean: bool = False) -> None:
    """Write a List in JSON. ``lean`` leaves out Secrets, ConfigMaps, Events and environments."""
    encode = msgspec.json.Encoder(order="sorted").encode
    with path.open("wb") as file:
        file.write(b'{\n    "apiVersion": "v1",\n    "items": [\n')
        for at, item in enumerate(production_objects(nodes, pods, seed, lean=lean)):
            text = msgspec.json.format(encode(item), indent=4).replace(b"\n", b"\n        ")
            file.write((b",\n        " if at else b"        ") + text)
        file.write(b'\n    ],\n    "kind": "List",\n    "metadata": {\n        "resourceVersion": ""\n    }\n}\n')


def production_objects(nodes: int, pods: int, seed: int = 0, *, lean: bool = False) -> Iterator[_Object]:
    """Yield the objects of a cluster of so many nodes and pods, pending ones included."""
    draw = random.Random(seed)
    table = list(_nodes(nodes))
    yield from _cluster_objects()
    for at, node in enumerate(table):
        yield _node_object(at, node)
        yield {**_head("storage.k8s.io/v1", "CSINode", node.name), "spec": {"drivers": [_csi_driver(node)]}}
    daemons = list(_daemons())
    apps = list(_apps(draw, pods - len(table) * len(daemons) - len(_PENDING)))
    yield from (_controller(app) for app in (*daemons, *apps))
    yield from (_replica_set(app) for app in apps if app.kind == "Deployment")
    yield from (_budget(app) for at, app in enumerate(apps) if app.kind == "Deployment" and app.replicas > 2 and at % 2)
    placed = _Placer(table, draw)
    for app in daemons:
        for node in table:
            yield _pod_object(app, node.name.partition(".")[0][-6:], node.name, draw, lean)
            node.free[0] -= app.cpu_milli
            node.free[1] -= app.memory_mi
            node.free[3] -= 1
    for app in apps:
        for at in range(app.replicas):
            yield from _pod_with_claim(app, at, placed.node_for(app), draw, lean)
    for name, spec in _PENDING.items():
        yield _pending_pod(name, spec)
    if not lean:
        yield from _unread_objects(nodes, pods, draw)


# -- nodes -------------------------------------------------------------------------------------------------------------


def _nodes(count: int) -> Iterator[_Node]:
    groups = [group for group in _GROUPS for _ in range(max(1, round(group.share * count)))]
    groups = (groups + [_GROUPS[0]] * count)[:count]
    for at, group in enumerate(groups):
        name = f"ip-10-{at // 65_536 + 4}-{at // 256 % 256}-{at % 256}.eu-west-1.compute.internal"
        yield _Node(name, _ZONES[at % 3], group, [group.cpu_milli, group.memory_mi, group.gpus, 110])


def _node_object(at: int, node: _Node) -> _Object:
    group = node.group
    labels = {
        _HOST: node.name, _ZONE: node.zone, "topology.kubernetes.io/region": "eu-west-1", _POOL: group.name,
        "node.kubernetes.io/instance-type": group.machine, "beta.kubernetes.io/instance-type": group.machine,
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "eks.amazonaws.com/nodegroup": f"{group.name}-2026-02",
        "eks.amazonaws.com/capacityType": "SPOT" if group.name == "spot" else "ON_DEMAND",
    }  # fmt: skip
    taints = [{"key": group.taint, "value": "true", "effect": "NoSchedule"}] if group.taint else []
    dead, cordoned = at % 97 == 41, at % 61 == 17
    if dead:
        taints += [{"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    if cordoned:
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    amounts = {
        "cpu": f"{group.cpu_milli}m",
        "memory": f"{group.memory_mi * 1024 - 37}Ki",
        "pods": "110",
        "ephemeral-storage": "95551679124",
    }
    if group.gpus:
        amounts["nvidia.com/gpu"] = str(group.gpus)
    ready = {
        "type": "Ready",
        "status": "Unknown" if dead else "True",
        "reason": "NodeStatusUnknown" if dead else "KubeletReady",
    }
    calm = [{"type": f"{what}Pressure", "status": "False"} for what in ("Memory", "Disk", "PID")]
    images = [
        {
            "names": [f"registry.example.com/{team}/{noun}{tag}" for tag in (f"@sha256:{at * 7919 + n:064x}", f":v1.{n}")],
            "sizeBytes": 10**8 + n * 10**6,
        }
        for n, (team, noun) in enumerate(zip(_TEAMS * 2, _NOUNS * 2, strict=True))
        if (at + n) % 3
    ]  # fmt: skip
    made = _head("v1", "Node", node.name, labels=labels)
    made["spec"] = {
        "providerID": f"aws:///{node.zone}/i-{at:017x}",
        "taints": taints,
        **({"unschedulable": True} if cordoned else {}),
    }
    made["status"] = {
        "capacity": {**amounts, "cpu": str(group.cpu_milli // 1000 + 1)}, "allocatable": amounts,
        "conditions": [*calm, ready], "images": images,
        "addresses": [{"type": "InternalIP", "address": node.name.partition(".")[0][3:].replace("-", ".")},
                      {"type": "Hostname", "address": node.name}],
        "nodeInfo": {"kubeletVersion": "v1.37.2-eks-3abbec1", "osImage": "Amazon Linux 2023",
                     "architecture": "amd64", "operatingSystem": "linux"},
    }  # fmt: skip
    return made


def _csi_driver(node: _Node) -> _Object:
    return {"name": "ebs.csi.aws.com", "nodeID": node.name, "topologyKeys": [_ZONE], "allocatable": {"count": 25}}


class _Placer:
    """Choose nodes for pods: the freest of a few drawn ones, so that the cluster is unevenly full, as real ones are."""

    def __init__(self, nodes: list[_Node], draw: random.Random) -> None:
        self._draw = draw
        self._by_group: dict[str, list[_Node]] = {}
        for node in nodes:
            self._by_group.setdefault(node.group.name, []).append(node)

    def node_for(self, app: _App) -> _Node | None:
        wanted = (app.cpu_milli, app.memory_mi, app.gpus, 1)
        for _ in range(3):
            some = self._draw.choices(self._by_group[app.group.name], k=4)
            fitting = [node for node in some if all(free >= want for free, want in zip(node.free, wanted, strict=True))]
            if fitting:
                found = max(fitting, key=lambda node: node.free[0])
                for at, want in enumerate(wanted):
                    found.free[at] -= want
                return found
        return None


# -- workloads ---------------------------------------------------------------------------------------------------------


def _daemons() -> Iterator[_App]:
    everywhere = {"tolerations": [{"operator": "Exists"}], "priorityClassName": "system-node-critical", "hostNetwork": True}
    for name, cpu_milli, memory_mi in (
        ("aws-node", 50, 64),
        ("kube-proxy", 100, 64),
        ("node-exporter", 50, 90),
        ("log-forwarder", 100, 200),
    ):
        yield _App("DaemonSet", name, "kube-system", 0, cpu_milli, memory_mi, _GROUPS[0], 0, everywhere)


def _apps(draw: random.Random, pods: int) -> Iterator[_App]:
    at = 0
    while pods > 0:
        team, noun = _TEAMS[at % len(_TEAMS)], _NOUNS[at // len(_TEAMS) % len(_NOUNS)]
        name = f"{team}-{noun}" + (f"-{at // 144}" if at >= 144 else "")
        kind = ("Deployment", "Deployment", "Deployment", "StatefulSet", "Job")[at % 5]
        group = draw.choices(_GROUPS, weights=(60, 22, 8, 7, 3))[0]
        replicas = min(pods, max(1, round(draw.paretovariate(0.9) * 3)), 400)
        cpu_milli = draw.choice((50, 100, 120, 250, 300, 500, 750, 1000, 1500)) * (4 if group.name == "compute" else 1)
        memory_mi = draw.choice((128, 256, 400, 512, 1024, 1536, 2048, 3000)) * (6 if group.name == "memory" else 1)
        if group.gpus:
            replicas = min(replicas, 6)
        yield _App(
            kind, name, team, replicas, cpu_milli, memory_mi, group, min(1 + at % 2, group.gpus), _rules(at, name, group)
        )
        pods -= replicas
        at += 1


def _rules(at: int, name: str, group: _Group) -> _Object:
    """Return the scheduling rules of an app: its group's selector and toleration, and one of seven kinds of rules."""
    alike = {"matchLabels": {"app.kubernetes.io/name": name}}
    spec: _Object = {"nodeSelector": {_POOL: group.name}}
    if group.taint:
        spec["tolerations"] = [{"key": group.taint, "operator": "Exists", "effect": "NoSchedule"}]
    term = {"topologyKey": _HOST, "labelSelector": alike}
    match at % 7:
        case 1:
            spread = {"maxSkew": 1, "topologyKey": _ZONE, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": alike}
            spec["topologySpreadConstraints"] = [spread]
        case 2:
            spread = {"maxSkew": 3, "topologyKey": _ZONE, "whenUnsatisfiable": _HARD, "labelSelector": alike}
            spec["topologySpreadConstraints"] = [spread]
        case 3:
            spec["affinity"] = {"podAntiAffinity": {_PREFERRED: [{"weight": 100, "podAffinityTerm": term}]}}
        case 4:
            zones = {"matchExpressions": [{"key": _ZONE, "operator": "In", "values": list(_ZONES)}]}
            spec["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [zones]}}}
        case 5:
            spec["priorityClassName"] = "business-critical" if at % 2 else "batch"
    return spec


def _template(app: _App) -> _Object:
    return {"metadata": {"labels": _labels(app)}, "spec": _pod_spec(app, lean=True)}


def _controller(app: _App) -> _Object:
    version = "batch/v1" if app.kind == "Job" else "apps/v1"
    made = _head(version, app.kind, app.name, app.namespace, labels=_labels(app))
    spec: _Object = {"template": _template(app)}
    if app.kind == "Job":
        spec |= {"parallelism": app.replicas, "completions": app.replicas, "suspend": False}
        spec["template"]["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"matchLabels": _labels(app)}
        if app.kind != "DaemonSet":
            spec["replicas"] = app.replicas
        if app.kind == "StatefulSet":
            claim = {"metadata": {"name": "data"}, "spec": _claim_spec("gp3")}
            spec |= {"serviceName": app.name, "volumeClaimTemplates": [claim]}
    made["spec"] = spec
    return made


def _replica_set(app: _App) -> _Object:
    made = _head("apps/v1", "ReplicaSet", f"{app.name}-7d9f8b6c5d", app.namespace, labels=_labels(app))
    made["metadata"]["ownerReferences"] = [_owner("Deployment", app.name, "apps/v1", app.namespace)]
    made["spec"] = {"replicas": app.replicas, "selector": {"matchLabels": _labels(app)}, "template": _template(app)}
    return made


def _budget(app: _App) -> _Object:
    made = _head("policy/v1", "PodDisruptionBudget", app.name, app.namespace)
    made["spec"] = {"maxUnavailable": 1, "selector": {"matchLabels": _labels(app)}}
    made["status"] = {
        "disruptionsAllowed": 1,
        "currentHealthy": app.replicas,
        "desiredHealthy": app.replicas - 1,
        "expectedPods": app.replicas,
    }
    return made


def _alike(app: str) -> _Object:
    return {"matchLabels": {"app": app}}


# -- pods --------------------------------------------------------------------------------------------------------------


def _labels(app: _App) -> dict[str, str]:
    return {"app.kubernetes.io/name": app.name, "app.kubernetes.io/part-of": app.namespace, "team": app.namespace}


def _pod_spec(app: _App, *, lean: bool) -> _Object:
    amounts = {"cpu": f"{app.cpu_milli}m", "memory": f"{app.memory_mi}Mi"}
    limits = {"memory": f"{app.memory_mi * 2}Mi"}
    if app.gpus:
        amounts["nvidia.com/gpu"] = limits["nvidia.com/gpu"] = str(app.gpus)
    noun = app.name.rpartition("-")[2]
    container: _Object = {
        "name": noun, "image": f"registry.example.com/{app.namespace}/{noun}:v1.{len(app.name) % 12}",
        "imagePullPolicy": "IfNotPresent", "resources": {"requests": amounts, "limits": limits},
        "ports": [{"containerPort": 8000 + crc32(app.name.encode()) % 2000, "name": "http", "protocol": "TCP"}],
    }  # fmt: skip
    if not lean:
        container |= {
            "env": [{"name": f"SETTING_{n}", "value": f"https://{app.name}.example.com/{n:x}"} for n in range(24)],
            "livenessProbe": {
                "httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"},
                "periodSeconds": 10,
                "timeoutSeconds": 1,
            },
            "readinessProbe": {
                "httpGet": {"path": "/readyz", "port": "http", "scheme": "HTTP"},
                "periodSeconds": 10,
                "timeoutSeconds": 1,
            },
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True},
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}],
        }
    return {
        "containers": [container],
        "serviceAccountName": app.name,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        **app.spec,
    }


def _pod_with_claim(app: _App, at: int, node: _Node | None, draw: random.Random, lean: bool) -> Iterator[_Object]:
    """Yield a pod; before it the claim and the volume of a StatefulSet's pod, which is in the zone of its node."""
    # The multiplier is odd, so no two of an app's pods get the same name.
    suffix = str(at) if app.kind == "StatefulSet" else f"{(at + 7) * 700_001 % 16**5:05x}"
    pod = _pod_object(app, suffix, node.name if node else "", draw, lean)
    if app.kind == "StatefulSet":
        claim = f"data-{app.name}-{at}"
        pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        yield from _claim(claim, app.namespace, node.zone if node else _ZONES[at % 3])
    yield pod


def _pod_object(app: _App, suffix: str, node: str, draw: random.Random, lean: bool) -> _Object:
    hashed = {"pod-template-hash": "7d9f8b6c5d"} if app.kind == "Deployment" else {}
    stem = "-".join([app.name, *hashed.values()])
    made = _head("v1", "Pod", f"{stem}-{suffix}", app.namespace, labels=_labels(app) | hashed)
    kind = "ReplicaSet" if app.kind == "Deployment" else app.kind
    made["metadata"]["ownerReferences"] = [_owner(kind, stem, "batch/v1" if kind == "Job" else "apps/v1", app.namespace)]
    spec = _pod_spec(app, lean=lean)
    if app.kind == "DaemonSet":
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        spec["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}
    made["spec"] = spec | ({"nodeName": node} if node else {})
    made["status"] = _running(app, draw, lean) if node else {"phase": "Pending"}
    return made


def _running(app: _App, draw: random.Random, lean: bool) -> _Object:
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _CREATED}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    status: _Object = {"phase": "Running", "conditions": conditions, "startTime": _CREATED, "qosClass": "Burstable"}
    if not lean:
        digest = f"{draw.getrandbits(256):064x}"
        state = {"running": {"startedAt": _CREATED}}
        held = {
            "name": app.name,
            "ready": True,
            "restartCount": 0,
            "state": state,
            "containerID": f"containerd://{digest}",
            "imageID": digest,
        }
        status |= {"containerStatuses": [held], "podIP": "10.4.8.15", "podIPs": [{"ip": "10.4.8.15"}], "hostIP": "10.4.0.16"}
    return status


_HARD: Final = "DoNotSchedule"
_FOR_GPUS: Final = {"key": "nvidia.com/gpu", "operator": "Exists"}
#: What is different about each pending pod of the list below; ``group``, ``cpu`` and ``memory`` are ours, the rest is its spec.
_PENDING: Final[dict[str, _Object]] = {
    "checkout-api-typo": {"nodeSelector": {_POOL: "genral"}},
    "search-reindex-too-large": {"nodeSelector": {_POOL: "compute"}, "cpu": "144380m", "memory": "2000000Mi"},
    "payments-ledger-no-claim": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "ledger-data-0"}}]},
    "payments-ledger-unbound": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "ledger-without-class"}}]},
    "training-run-17": {"nodeSelector": {_POOL: "gpu"}, "gpus": "8", "tolerations": [_FOR_GPUS]},
    "training-run-18": {"nodeSelector": {_POOL: "gpu"}, "gpus": "8", "tolerations": [_FOR_GPUS]},
    "training-run-not-tolerating": {"nodeSelector": {_POOL: "gpu"}, "gpus": "1"},
    "training-run-misspelt-resource": {"nodeSelector": {_POOL: "gpu"}, "extra": {"nvidia.com/gpus": "1"}},
    "release-waits-for-approval": {"schedulingGates": [{"name": "example.com/approval"}]},
    "edge-proxy-in-one-zone": {"nodeSelector": {_ZONE: "eu-west-1d"}},
    "identity-migration": {"priorityClassName": "business-critical", "cpu": "15", "nodeSelector": {_POOL: "general"}},
    "search-leader": {
        "affinity": {"podAffinity": {_REQUIRED: [{"topologyKey": _ZONE, "labelSelector": _alike("zookeper")}]}},
    },
    "fulfilment-spread": {
        "nodeSelector": {_POOL: "memory"}, "cpu": "31", "memory": "200Gi",
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": _ZONE, "whenUnsatisfiable": _HARD, "labelSelector": _alike("fulfilment-spread")}
        ],
    },
    **{f"edge-burst-{at}": {"nodeSelector": {_POOL: "general"}, "cpu": "15500m", "memory": "4Gi"} for at in range(13)},
    "data-nightly-export": {"cpu": "120", "memory": "64Gi"},
    "legacy-host-port": {"hostPort": 9100, "nodeSelector": {_POOL: "memory"}},
    "tools-on-one-node": {"nodeSelector": {_HOST: "ip-10-4-0-999.eu-west-1.compute.internal"}},
}  # fmt: skip


def _pending_pod(name: str, given: _Object) -> _Object:
    spec = dict(given)
    amounts = {"cpu": spec.pop("cpu", "500m"), "memory": spec.pop("memory", "512Mi"), **spec.pop("extra", {})}
    if gpus := spec.pop("gpus", ""):
        amounts["nvidia.com/gpu"] = gpus
    port = spec.pop("hostPort", 0)
    limits = {resource: amount for resource, amount in amounts.items() if "/" in resource}
    container: _Object = {
        "name": "main", "image": "registry.example.com/platform/main:v2", "resources": {"requests": amounts, "limits": limits},
    }  # fmt: skip
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    made = _head("v1", "Pod", name, "platform", labels={"app": name})
    made["spec"] = {"containers": [container], "schedulerName": "default-scheduler", **spec}
    made["status"] = {"phase": "Pending"}
    return made


# -- volumes and the rest ----------------------------------------------------------------------------------------------


def _claim_spec(storage_class: str) -> _Object:
    return {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "resources": {"requests": {"storage": "20Gi"}}}


def _claim(name: str, namespace: str, zone: str) -> Iterator[_Object]:
    volume = f"pvc-{namespace}-{name}"
    claim = _head("v1", "PersistentVolumeClaim", name, namespace)
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
    yield claim | {"spec": {**_claim_spec("gp3"), "volumeName": volume}, "status": {"phase": "Bound"}}
    term = {"matchExpressions": [{"key": _ZONE, "operator": "In", "values": [zone]}]}
    spec = {
        "capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "gp3",
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": claim["metadata"]["uid"]},
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{name}", "fsType": "ext4"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}, "persistentVolumeReclaimPolicy": "Delete",
    }  # fmt: skip
    yield _head("v1", "PersistentVolume", volume) | {"spec": spec, "status": {"phase": "Bound"}}


def _cluster_objects() -> Iterator[_Object]:
    for name in ("kube-system", "platform", *_TEAMS):
        yield _head("v1", "Namespace", name, labels={"kubernetes.io/metadata.name": name, "team": name}) | {
            "status": {"phase": "Active"}
        }
        if name not in {"kube-system", "platform"}:
            quota = {"hard": {"requests.cpu": "4k", "requests.memory": "16Ti", "pods": "5k"}}
            yield _head("v1", "ResourceQuota", "compute", name) | {"spec": quota}
            limit = {"type": "Container", "defaultRequest": {"cpu": "100m", "memory": "128Mi"}}
            yield _head("v1", "LimitRange", "defaults", name) | {"spec": {"limits": [limit]}}
    for name, value in (("business-critical", 100_000), ("batch", -100), ("system-node-critical", 2_000_001_000)):
        yield _head("scheduling.k8s.io/v1", "PriorityClass", name) | {"value": value}
    gp3 = {"provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete"}
    yield _head("storage.k8s.io/v1", "StorageClass", "gp3") | gp3
    unbound = _head("v1", "PersistentVolumeClaim", "ledger-without-class", "platform")
    yield unbound | {"spec": _claim_spec("gp4-does-not-exist"), "status": {"phase": "Pending"}}


def _unread_objects(nodes: int, pods: int, draw: random.Random) -> Iterator[_Object]:
    """Yield what scheduling does not read: Secrets, ConfigMaps, Events, Leases."""
    for at in range(pods // 8):
        team = _TEAMS[at % len(_TEAMS)]
        data = {f"key-{n}": f"{draw.getrandbits(2048):0512x}" for n in range(4)}
        yield _head("v1", "Secret", f"{team}-{at}", team) | {"type": "Opaque", "data": data}
        yield _head("v1", "ConfigMap", f"{team}-{at}", team) | {"data": {"settings.yaml": "retries: 3\n" * 120}}
    for at in range(pods):
        team = _TEAMS[at % len(_TEAMS)]
        involved = {"kind": "Pod", "namespace": team, "name": f"{team}-api-7d9f8b6c5d-{at:05x}", "apiVersion": "v1"}
        event = _head("v1", "Event", f"{team}-api-{at:016x}", team)
        yield event | {
            "involvedObject": involved,
            "reason": "Pulled",
            "message": "Container image already present on machine",
            "type": "Normal",
            "count": at % 9,
        }
    for at in range(nodes):
        lease = _head("coordination.k8s.io/v1", "Lease", f"lease-{at}", "kube-node-lease")
        yield lease | {"spec": {"holderIdentity": f"lease-{at}", "leaseDurationSeconds": 40, "renewTime": _RENEWED}}


def _head(version: str, kind: str, name: str, namespace: str = "", *, labels: dict[str, str] | None = None) -> _Object:
    uid = _uid(kind, name, namespace)
    metadata: _Object = {"name": name, "uid": uid, "resourceVersion": "912345678", "creationTimestamp": _CREATED}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _owner(kind: str, name: str, version: str, namespace: str) -> _Object:
    uid = _uid(kind, name, namespace)
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True, "blockOwnerDeletion": True}


def _uid(kind: str, name: str, namespace: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"{kind}/{namespace}/{name}"))
