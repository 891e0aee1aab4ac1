"""Clusters as people run them: pools of unlike nodes, teams, and apps that differ.

Apps differ in requests, labels, selectors, tolerations and images.
All is drawn from a seeded generator: equal arguments give equal objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from benchmarks.mix_events import Manifest, Mix, arrivals, creations, key_of
from benchmarks.shapes import HOSTNAME, ZONE

__all__ = ["classes_in_turn", "rollouts", "unlike", "week"]

_GIB: Final = 1 << 30
_TYPE: Final = "node.kubernetes.io/instance-type"
_POOL: Final = "example.com/pool"
_ARCH: Final = "kubernetes.io/arch"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_TEAMS: Final = 40
#: Cores and GiB of each instance type.
_TYPES: Final = ((4, 16), (8, 32), (16, 64), (32, 128), (48, 192), (64, 256), (16, 128), (96, 384))
_POOLS: Final = 24
#: Every fourth pool is kept for those that tolerate its taint.
_DEDICATED_EVERY: Final = 4
_IMAGES: Final = 300


def _pool(number: int) -> str:
    return f"pool-{number}"


def _is_dedicated(number: int) -> bool:
    return number % _DEDICATED_EVERY == _DEDICATED_EVERY - 1


def _image(number: int) -> str:
    return f"registry.example.com/team-{number % _TEAMS}/app-{number}:1.{number % 17}.{number % 5}"


def _nodes(count: int, random: Random) -> list[dict[str, Any]]:
    """Return nodes of some pools in three zones, each with images that its pods pulled; a few are cordoned or tainted."""
    return [_node(at, random) for at in range(count)]


def _node(at: int, random: Random) -> dict[str, Any]:
    pool = random.randrange(_POOLS)
    cores, gib = _TYPES[pool % len(_TYPES)]
    name = f"node-{at}"
    labels = {
        HOSTNAME: name, ZONE: f"zone-{at % 3}", "topology.kubernetes.io/region": "region-1", _POOL: _pool(pool),
        _TYPE: f"type-{cores}x{gib}", _ARCH: "arm64" if pool % 6 == 5 else "amd64", "kubernetes.io/os": "linux",
    }  # fmt: skip
    taints = [{"key": "example.com/dedicated", "value": _pool(pool), "effect": "NoSchedule"}] if _is_dedicated(pool) else []
    if random.random() < 0.02:
        taints.append({"key": "example.com/spot", "value": "true", "effect": "PreferNoSchedule"})
    unschedulable = {"unschedulable": True} if random.random() < 0.01 else {}
    offered = {
        "cpu": f"{1000 * cores - 80}m",
        "memory": f"{gib * 1024 * 1024 - 700_000 - 4 * random.randrange(2000)}Ki",
        "pods": "110",
    }
    images = [
        {"names": [_image(number)], "sizeBytes": (20 + number * 37 % 900) << 20}
        for number in sorted(random.sample(range(_IMAGES), 12))
    ]
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {"providerID": f"example://{name}", **({"taints": taints} if taints else {}), **unschedulable},
        "status": {
            "allocatable": offered, "capacity": offered, "images": images,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _App:
    """What the pods of an app share."""

    name: str
    team: str
    labels: dict[str, str]
    spec: dict[str, Any]


def _app(number: int, random: Random, *, most_milli: int = 4000) -> _App:
    """Return an app: three in ten select a pool, a zone or an architecture, a quarter tolerate a dedicated pool."""
    milli = random.choice((50, 100, 100, 200, 250, 500, 500, 1000, 2000, most_milli)) + 5 * random.randrange(10)
    mebi = random.choice((64, 128, 256, 256, 512, 1024, 2048, 4096)) + random.randrange(64)
    container = {
        "name": "main", "image": _image(number % (2 * _IMAGES)), "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": f"{milli}m", "memory": f"{mebi}Mi"}, "limits": {"memory": f"{2 * mebi}Mi"}},
    }  # fmt: skip
    spec: dict[str, Any] = {"containers": [container], "serviceAccountName": f"app-{number}", **_placement(random)}
    if random.random() < 0.2:
        spec["containers"].append(
            {"name": "proxy", "image": _image(7), "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}
        )
    labels = {
        "app.kubernetes.io/name": f"app-{number}", "app.kubernetes.io/version": f"1.{number % 17}",
        "team": f"team-{number % _TEAMS}", "pod-template-hash": f"{random.getrandbits(40):010x}",
    }  # fmt: skip
    return _App(f"app-{number}", f"team-{number % _TEAMS}", labels, spec)


def _placement(random: Random) -> dict[str, Any]:
    """Return the tolerations, the node selector and the node affinity of an app."""
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    placement: dict[str, Any] = {"tolerations": tolerations}
    pool = random.randrange(_POOLS)
    if _is_dedicated(pool):
        tolerations.append({"key": "example.com/dedicated", "operator": "Equal", "value": _pool(pool), "effect": "NoSchedule"})
    drawn = random.random()
    if drawn < 0.1:
        placement["nodeSelector"] = {_POOL: _pool(pool)} if _is_dedicated(pool) else {_ARCH: "amd64"}
    elif drawn < 0.2:
        placement["nodeSelector"] = {ZONE: f"zone-{random.randrange(3)}"}
    elif drawn < 0.3:
        types = [f"type-{cores}x{gib}" for cores, gib in random.sample(_TYPES, 3)]
        wanted = [{"matchExpressions": [{"key": _TYPE, "operator": "In", "values": types}]}]
        placement["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wanted}}
        }
    elif drawn < 0.4:
        preferred = [
            {"weight": 50, "preference": {"matchExpressions": [{"key": _ARCH, "operator": "In", "values": ["arm64"]}]}}
        ]
        placement["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    return placement


def _pod(app: _App, name: str, node: str = "") -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app.name, "uid": f"rs-{app.name}", "controller": True}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": app.team, "uid": f"{app.team}-{name}", "labels": app.labels, "ownerReferences": [owner],
        },
        "spec": {**app.spec, **({"nodeName": node} if node else {})},
        "status": {"phase": "Running" if node else "Pending"},
    }  # fmt: skip


def _namespaces() -> list[Manifest]:
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{at}", "uid": f"team-{at}"}}
        for at in range(_TEAMS)
    ]


def _running(count: int, nodes: Sequence[Manifest], random: Random) -> Iterator[dict[str, Any]]:
    """Yield pods of 200 small apps that run already, spread over the nodes."""
    apps = [_app(1_000_000 + at, random, most_milli=500) for at in range(200)]
    for at in range(count):
        yield _pod(apps[at % len(apps)], f"old-{at}", nodes[at % len(nodes)]["metadata"]["name"])


def unlike(nodes: int, pods: int, keys: int, seed: int = 0) -> Mix:
    """Pods of so many apps in random order, none of them like those of another app, on nodes that run as many pods."""
    random = Random(seed)
    machines = _nodes(nodes, random)
    start: list[Manifest] = [*_namespaces(), *machines, *_running(nodes, machines, random)]
    apps = [_app(at, random) for at in range(keys)]
    order = [apps[at % keys] for at in range(pods)]
    random.shuffle(order)
    later: list[Manifest] = [_pod(app, f"{app.name}-{at}") for at, app in enumerate(order)]
    return Mix(start, later, [creations(later)])


def classes_in_turn(nodes: int, pods: int, classes: int, seed: int = 0) -> Mix:
    """Pods of so many apps in turn."""
    mix = unlike(nodes, 0, 1, seed)
    random = Random(seed + 1)
    apps = [_app(at, random) for at in range(classes)]
    mix.later = [_pod(apps[at % classes], f"pod-{at}") for at in range(pods)]
    mix.events = [creations(mix.later)]
    return mix


# -- rollouts ----------------------------------------------------------------------------------------------------------------


def _replicas(apps: int, most: int) -> list[int]:
    """Return the numbers of replicas, from 1 to ``most``: half of the apps have fewer than a tenth of it."""
    return [max(1, round(most * (at / (apps - 1)) ** 3)) for at in range(apps)]


def _constraint(app: _App, number: int) -> dict[str, Any]:
    """Return what the app asks of its other pods: half of the apps ask nothing, and are spread by default."""
    selector = {"labelSelector": {"matchLabels": {"app.kubernetes.io/name": app.name}}}
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    match number % 8:
        case 0:
            return {
                "topologySpreadConstraints": [
                    {"maxSkew": 2, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", **selector}
                ]
            }
        case 1:
            keys = (ZONE, HOSTNAME)
            return {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", **selector} for key in keys
                ]
            }
        case 2:
            term = {"topologyKey": HOSTNAME, **selector}
            return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
        case 3:
            return {
                "affinity": {
                    "podAntiAffinity": {preferred: [{"weight": 100, "podAffinityTerm": {"topologyKey": HOSTNAME, **selector}}]}
                }
            }
    return {}


def _service(app: _App) -> Manifest:
    metadata = {"name": app.name, "namespace": app.team, "uid": f"service-{app.name}"}
    selector = {"app.kubernetes.io/name": app.name}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": selector}}


def rollouts(nodes: int, apps: int, most: int, seed: int = 0) -> Mix:
    """Deployments with services roll out in turn, a quarter of their pods at a time.

    Each turn, two in a hundred pods of the others are replaced by equal ones.
    """
    random = Random(seed)
    machines = _nodes(nodes, random)
    every, services = [], []
    for number in range(apps):
        app = _app(number, random, most_milli=500)
        app.spec.pop("nodeSelector", None)
        app.spec.pop("affinity", None)
        app.spec.update(_constraint(app, number))
        every.append(app)
        services.append(_service(app))
    open_nodes = [
        one["metadata"]["name"] for one in machines if not one["spec"].get("taints") and not one["spec"].get("unschedulable")
    ]
    held: list[list[Manifest]] = []
    for app, count in zip(every, _replicas(apps, most), strict=True):
        where = random.sample(open_nodes, min(count, len(open_nodes)))
        held.append([_pod(app, f"{app.name}-{at}", where[at % len(where)]) for at in range(count)])
    start: list[Manifest] = [*_namespaces(), *services, *machines, *(pod for pods in held for pod in pods)]
    later, events = _turns(every, held, random)
    return Mix(start, later, events)


def _turns(apps: Sequence[_App], held: list[list[Manifest]], random: Random) -> tuple[list[Manifest], list[Manifest]]:
    later: list[Manifest] = []
    events: list[Manifest] = []
    at = 0.0

    def replace(number: int, places: Sequence[int], app: _App) -> None:
        """Create pods, and delete the ones in whose place they come a second later."""
        nonlocal at
        at += 1.0
        new = [_pod(app, f"{app.name}-n{len(later) + extra}") for extra in range(len(places))]
        old = [held[number][place] for place in places]
        for place, pod in zip(places, new, strict=True):
            held[number][place] = pod
        later.extend(new)
        events.append(creations(new, at))
        events.append({"at": at + 0.5, "do": "delete", "pods": [key_of(pod) for pod in old]})

    for number, app in enumerate(apps):
        hashed = {**app.labels, "pod-template-hash": f"{random.getrandbits(40):010x}"}
        new = _App(app.name, app.team, hashed, app.spec)
        order = list(range(len(held[number])))
        step = max(1, len(order) // 4)
        for first in range(0, len(order), step):
            replace(number, order[first : first + step], new)
        for other in range(len(apps)):
            lost = [place for place in range(len(held[other])) if random.random() < 0.02]
            if lost and other != number:
                replace(other, lost, apps[other])
    return later, events


# -- a week ------------------------------------------------------------------------------------------------------------------


def week(nodes: int, jobs: int, failures: int, seed: int = 0) -> Mix:
    """A week: services that stay, jobs that come by day more than by night and end, nodes that fail and come back."""
    random = Random(seed)
    machines = _nodes(nodes, random)
    start: list[Manifest] = [*_namespaces(), *machines, *_running(8 * nodes, machines, random)]
    apps = [_app(at, random) for at in range(60)]
    seconds = 7 * 86_400.0
    later: list[Manifest] = []
    timed: list[tuple[float, Manifest, float | None]] = []
    for at in sorted(_by_day(jobs, seconds, random)):
        app = random.choice(apps)
        pod = _pod(app, f"{app.name}-{len(later)}")
        later.append(pod)
        timed.append((at, pod, random.lognormvariate(8.2, 1.2)))
    events = [*arrivals(timed), *_failing(machines, failures, seconds, random)]
    events.sort(key=lambda event: event["at"])
    return Mix(start, later, events)


def _by_day(count: int, seconds: float, random: Random) -> Iterator[float]:
    """Yield times: by day four times as many as by night, at the weekend half as many."""
    while count:
        at = random.uniform(0.0, seconds)
        share = (1.0 if 7 <= at % 86_400 / 3600 < 20 else 0.25) * (0.5 if at >= 5 * 86_400 else 1.0)
        if random.random() < share:
            count -= 1
            yield at


def _failing(machines: Sequence[Manifest], count: int, seconds: float, random: Random) -> Iterator[Manifest]:
    """Yield what happens when nodes fail: they are tainted, their pods are replaced after 300 s, later they are back."""
    for node in random.sample(list(machines), count):
        at = random.uniform(0.0, seconds - 10_000.0)
        taints = [
            *node["spec"].get("taints", ()),
            *({"key": _UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")),
        ]
        yield {"at": at, "do": "update", "node": {**node, "spec": {**node["spec"], "taints": taints}}}
        yield {"at": at + 300.0, "do": "evict", "on": node["metadata"]["name"]}
        yield {"at": at + random.uniform(600.0, 9000.0), "do": "update", "node": node}
