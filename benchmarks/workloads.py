"""The workloads, each a function from sizes and a seeded generator to objects. Equal arguments give equal objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import msgspec

from benchmarks.shapes import HOSTNAME, ZONE, namespace, node, pod, requests, term
from moorage.api.core import Pod, Service
from moorage.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from moorage.api.meta import Object
from moorage.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass

__all__ = ["WORKLOADS", "ZONES", "Sizes", "Workload"]

#: Measured pods per disturbing one: kube-scheduler schedules some 500 pods/s, with 5 disturbing ones a second.
CHURN_EVERY: Final = 100
ZONES: Final = ("zone1", "zone2", "zone3")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The number of nodes, of pods placed before the measurement, and of measured pods."""

    nodes: int
    init: int
    pods: int


@dataclass(slots=True)
class Workload:
    """The objects of a run. ``churn`` pods are added between the measured ones and are not counted."""

    objects: list[Object]
    init: list[Pod]
    measured: list[Pod]
    churn: list[Pod] = field(default_factory=list)


Shape = Callable[[str], Pod]


def _pods(prefix: str, count: int, shape: Shape) -> list[Pod]:
    return [shape(f"{prefix}-{i}") for i in range(count)]


def _workload(
    sizes: Sizes, measured: Shape, init: Shape = pod, *, zones: Iterable[str] = (), spaces: Iterable[str] = ("default",)
) -> Workload:
    """Return nodes that alternate between zones, then pods of two shapes."""
    named = list(zones)
    nodes = [node(i, {ZONE: named[i % len(named)]} if named else None) for i in range(sizes.nodes)]
    objects: list[Object] = [*map(namespace, spaces), *nodes]
    return Workload(objects, _pods("init", sizes.init, init), _pods("pod", sizes.pods, measured))


def basic(sizes: Sizes, random: Random) -> Workload:
    """Plain pods."""
    return _workload(sizes, pod)


def node_affinity(sizes: Sizes, random: Random) -> Workload:
    """Pods that must be in one of two zones; all nodes are in the first."""
    wanted = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone1", "zone2"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wanted}}
    shape = lambda name: pod(name, affinity={"nodeAffinity": required})  # noqa: E731
    return _workload(sizes, shape, shape, zones=ZONES[:1])


def _spread(when: str) -> Shape:
    constraint = {
        "maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": when, "labelSelector": {"matchLabels": {"color": "blue"}},
    }  # fmt: skip
    return lambda name: pod(name, {"color": "blue"}, topologySpreadConstraints=[constraint])


def spread_zone_required(sizes: Sizes, random: Random) -> Workload:
    """Pods with a required spread over three zones."""
    return _workload(sizes, _spread("DoNotSchedule"), zones=ZONES)


def spread_zone_preferred(sizes: Sizes, random: Random) -> Workload:
    """Pods with a preferred spread over three zones."""
    return _workload(sizes, _spread("ScheduleAnyway"), zones=ZONES)


def anti_affinity_host(sizes: Sizes, random: Random) -> Workload:
    """Pods with anti-affinity to each other per host, in two namespaces."""
    spaces = ("sched-0", "sched-1")
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [term(HOSTNAME, "green", spaces)]}
    affinity = {"podAntiAffinity": apart}
    return _workload(
        sizes,
        lambda name: pod(name, {"color": "green"}, space="sched-1", affinity=affinity),
        lambda name: pod(name, {"color": "green"}, space="sched-0", affinity=affinity),
        spaces=spaces,
    )


def affinity_zone(sizes: Sizes, random: Random) -> Workload:
    """Pods with required affinity to each other per zone; there is one zone."""
    spaces = ("sched-0", "sched-1")
    near = {"requiredDuringSchedulingIgnoredDuringExecution": [term(ZONE, "blue", spaces)]}
    affinity = {"podAffinity": near}
    return _workload(
        sizes,
        lambda name: pod(name, {"color": "blue"}, space="sched-1", affinity=affinity),
        lambda name: pod(name, {"color": "blue"}, space="sched-0", affinity=affinity),
        zones=ZONES[:1],
        spaces=spaces,
    )


def preferred_affinity_host(sizes: Sizes, random: Random) -> Workload:
    """Pods with preferred affinity to each other per host."""
    spaces = ("sched-0", "sched-1")
    preferred = [{"weight": 1, "podAffinityTerm": term(HOSTNAME, "red", spaces)}]
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    return _workload(
        sizes,
        lambda name: pod(name, {"color": "red"}, space="sched-1", affinity=affinity),
        lambda name: pod(name, {"color": "red"}, space="sched-0", affinity=affinity),
        spaces=spaces,
    )


def mixed_base(sizes: Sizes, random: Random) -> Workload:
    """Plain pods on nodes with pods of five kinds, with and without affinity."""
    kinds: list[Shape] = []
    spaces = ("sched-0",)
    required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
    for color, affinity in (
        ("", None),
        ("blue", {"podAffinity": {required: [term(ZONE, "blue", spaces)]}}),
        ("green", {"podAntiAffinity": {required: [term(HOSTNAME, "green", spaces)]}}),
        ("red", {"podAffinity": {preferred: [{"weight": 1, "podAffinityTerm": term(HOSTNAME, "red", spaces)}]}}),
        ("yellow", {"podAntiAffinity": {preferred: [{"weight": 1, "podAffinityTerm": term(HOSTNAME, "yellow", spaces)}]}}),
    ):
        kinds.append(_colored(color, affinity))
    base = _workload(sizes, pod, zones=ZONES[:1], spaces=("default", *spaces))
    base.init = [kinds[i * len(kinds) // sizes.init](f"init-{i}") for i in range(sizes.init)]
    return base


def _colored(color: str, affinity: Any) -> Shape:
    spec = {"affinity": affinity} if affinity else {}
    return lambda name: pod(name, {"color": color} if color else None, space="sched-0", **spec)


def daemonset_pinned(sizes: Sizes, random: Random) -> Workload:
    """Pods that each select one node, as a DaemonSet's do; they request nothing."""

    def pinned(name: str) -> Pod:
        at = int(name.rpartition("-")[2]) % sizes.nodes
        field_term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"node-{at}"]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [field_term]}}
        return pod(name, resources={}, affinity={"nodeAffinity": required})

    return _workload(sizes, pinned)


def unique_classes(sizes: Sizes, random: Random) -> Workload:
    """Pods that all differ, so that no cached result of one helps another."""

    def unlike(name: str) -> Pod:
        at = int(name.rpartition("-")[2])
        return pod(name, {"app": f"{name}-app"}, resources=requests(f"{50 + at % 97}m", f"{300 * 1024 + at * 16}Ki"))

    return _workload(sizes, unlike, unlike)


def _in_turn(sizes: Sizes, least_milli: int, memory: str) -> Workload:
    """Return pods of 200 classes in turn, which request from ``least_milli`` up to 199 millicores more."""
    of_class = lambda name: pod(name, resources=requests(f"{least_milli + int(name.rpartition('-')[2]) % 200}m", memory))  # noqa: E731
    return _workload(sizes, of_class, of_class)


def classes_in_turn(sizes: Sizes, random: Random) -> Workload:
    """Pods of 200 classes in turn, which differ in the CPU that they request."""
    return _in_turn(sizes, 100, "200Mi")


def tied_classes_in_turn(sizes: Sizes, random: Random) -> Workload:
    """Pods of 200 classes in turn that request so little that many nodes tie."""
    return _in_turn(sizes, 1, "1Mi")


def services(sizes: Sizes, random: Random) -> Workload:
    """Pods of fifty alternating services without constraints, so that default spreading over hosts and zones applies."""
    apps = [f"app-{at}" for at in range(50)]
    of_app = lambda name: pod(name, {"app": apps[int(name.rpartition("-")[2]) % len(apps)]})  # noqa: E731
    base = _workload(sizes, of_app, of_app, zones=ZONES)
    base.objects += [_convert(Service, app, "default", spec={"selector": {"app": app}}) for app in apps]
    return base


def preemption_churn(sizes: Sizes, random: Random) -> Workload:
    """Plain pods on nodes full of big ones, and now and then a bigger one that preempts some."""
    base = _workload(sizes, pod, lambda name: pod(name, resources=requests("900m", "500Mi")))
    big = lambda name: pod(name, resources=requests("3", "500Mi"), priority=10)  # noqa: E731
    base.churn = _pods("high", -(-sizes.pods // CHURN_EVERY), big)
    return base


def unschedulable_churn(sizes: Sizes, random: Random) -> Workload:
    """Plain pods, and now and then one that fits on no node."""
    base = _workload(sizes, pod)
    huge = lambda name: pod(name, resources=requests("9", "500Mi"), priority=10)  # noqa: E731
    base.churn = _pods("huge", -(-sizes.pods // CHURN_EVERY), huge)
    return base


def gated_noise(sizes: Sizes, random: Random) -> Workload:
    """Plain pods among gated ones with preferred affinity. The ``init`` pods are gated."""
    near = {"requiredDuringSchedulingIgnoredDuringExecution": [term(ZONE, "blue")]}
    gated = lambda name: pod(  # noqa: E731
        name, {"color": "blue"}, affinity={"podAffinity": near}, schedulingGates=[{"name": "example.com/hold"}]
    )
    base = _workload(sizes, pod, gated)
    roomy = {"cpu": "90000", "memory": "100Ti", "pods": "90000"}
    base.objects = [namespace("default"), *(node(i, {ZONE: "zone1"}, roomy) for i in range(sizes.nodes))]
    return base


def csi_volumes(sizes: Sizes, random: Random) -> Workload:
    """Pods that each mount a claim bound to a volume of a CSI driver with a limit of 39 volumes per node."""

    def mounting(name: str) -> Pod:
        return pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}])

    base = _workload(sizes, mounting, mounting)
    for at in range(sizes.nodes):
        drivers = [{"name": "ebs.csi.aws.com", "nodeID": f"node-{at}", "topologyKeys": [], "allocatable": {"count": 39}}]
        base.objects.append(_convert(CSINode, f"node-{at}", spec={"drivers": drivers}))
    for one in (*base.init, *base.measured):
        base.objects.extend(_bound_claim(one.metadata.name))
    return base


def _bound_claim(name: str) -> Iterator[Object]:
    common = {"accessModes": ["ReadOnlyMany"]}
    size = {"storage": "1Gi"}
    claim_ref = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": f"claim-{name}"}
    yield _convert(
        PersistentVolume, f"pv-{name}",
        spec={**common, "capacity": size, "claimRef": claim_ref, "storageClassName": "",
              "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{name}"}},
        status={"phase": "Bound"},
    )  # fmt: skip
    yield _convert(
        PersistentVolumeClaim, name, "default", f"claim-{name}",
        {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        spec={**common, "volumeName": f"pv-{name}", "storageClassName": "", "resources": {"requests": size}},
        status={"phase": "Bound", "capacity": size},
    )  # fmt: skip


def local_volumes(sizes: Sizes, random: Random) -> Workload:
    """Pods that each need one of the preprovisioned local volumes, of which every node has five."""

    def mounting(name: str) -> Pod:
        return pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}])

    base = _workload(sizes, mounting, mounting)
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
    none = "kubernetes.io/no-provisioner"
    base.objects.append(
        msgspec.convert(
            {"metadata": {"name": "local"}, "provisioner": none, "volumeBindingMode": "WaitForFirstConsumer"}, StorageClass
        )
    )
    for at in range(5 * sizes.nodes):
        host = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [f"node-{at % sizes.nodes}"]}]}
        where = {"required": {"nodeSelectorTerms": [host]}}
        spec = {**common, "capacity": {"storage": f"{random.randrange(1, 4)}00Gi"}, "nodeAffinity": where}
        base.objects.append(_convert(PersistentVolume, f"pv-{at}", spec=spec, status={"phase": "Available"}))
    for one in (*base.init, *base.measured):
        asked = {**common, "resources": {"requests": {"storage": f"{random.randrange(10, 250)}Gi"}}}
        base.objects.append(_convert(PersistentVolumeClaim, one.metadata.name, "default", spec=asked))
    return base


def dra_claims(sizes: Sizes, random: Random) -> Workload:
    """Pods that each claim one of the ten devices that every node has."""

    def claiming(name: str) -> Pod:
        named = {"name": "device", "resourceClaimName": name}
        resources = {**requests(), "claims": [{"name": "device"}]}
        return pod(name, resources=resources, resourceClaims=[named])

    base = _workload(sizes, claiming, claiming)
    base.objects.append(_convert(DeviceClass, "device.example.com", spec={}))
    for at in range(sizes.nodes):
        devices = [{"name": f"d{i}"} for i in range(10)]
        pool = {"name": f"node-{at}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "driver.example.com", "nodeName": f"node-{at}", "pool": pool, "devices": devices}
        base.objects.append(_convert(ResourceSlice, f"slice-{at}", spec=spec))
    for one in (*base.init, *base.measured):
        exactly = {"deviceClassName": "device.example.com", "allocationMode": "ExactCount", "count": 1}
        asked = {"devices": {"requests": [{"name": "one", "exactly": exactly}]}}
        base.objects.append(_convert(ResourceClaim, one.metadata.name, "default", spec=asked))
    return base


def _convert(
    kind: type[Object], name: str, space: str = "", uid: str = "", metadata: Mapping[str, Any] | None = None, **parts: Any
) -> Object:
    named = {"name": name, "uid": uid or f"{kind.__name__}/{name}", **({"namespace": space} if space else {})}
    return msgspec.convert({"metadata": {**named, **(metadata or {})}, **parts}, kind)


#: Name → its function, and its default sizes.
WORKLOADS: Final[Mapping[str, tuple[Callable[[Sizes, Random], Workload], Sizes]]] = {
    "basic": (basic, Sizes(5000, 1000, 10000)),
    "node-affinity": (node_affinity, Sizes(5000, 5000, 10000)),
    "spread-zone-required": (spread_zone_required, Sizes(5000, 5000, 5000)),
    "spread-zone-preferred": (spread_zone_preferred, Sizes(5000, 5000, 5000)),
    "anti-affinity-host": (anti_affinity_host, Sizes(5000, 1000, 2000)),
    "affinity-zone": (affinity_zone, Sizes(5000, 5000, 5000)),
    "preferred-affinity-host": (preferred_affinity_host, Sizes(5000, 5000, 5000)),
    "mixed-base": (mixed_base, Sizes(5000, 10000, 5000)),
    "daemonset-pinned": (daemonset_pinned, Sizes(5000, 0, 10000)),
    "unique-classes": (unique_classes, Sizes(5000, 1000, 10000)),
    "classes-in-turn": (classes_in_turn, Sizes(5000, 1000, 10000)),
    "tied-classes-in-turn": (tied_classes_in_turn, Sizes(5000, 1000, 10000)),
    "services": (services, Sizes(5000, 5000, 5000)),
    "preemption-churn": (preemption_churn, Sizes(5000, 20000, 5000)),
    "unschedulable-churn": (unschedulable_churn, Sizes(5000, 20000, 10000)),
    "csi-volumes": (csi_volumes, Sizes(5000, 5000, 5000)),
    "local-volumes": (local_volumes, Sizes(1000, 500, 1000)),
    "dra-claims": (dra_claims, Sizes(500, 2500, 2500)),
    "gated-noise": (gated_noise, Sizes(1, 10000, 20000)),
}
