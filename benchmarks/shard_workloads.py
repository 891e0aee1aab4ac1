"""What the schedulers of ``benchmarks shards`` place: nodes, the pods on them, and the pods to create, by size and seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from benchmarks.shapes import HOSTNAME, ZONE, node, pod, requests, term
from benchmarks.shard_world import Ask, Room
from moorage.api.core import Node, Pod

__all__ = ["COLOR", "MAX_SKEW", "NODE", "WORKLOADS", "Problem", "make"]

#: Free room of an empty node of ``shapes.node``.
NODE: Final = Room(4000, 32 << 10, 110)
COLOR: Final = "blue"
MAX_SKEW: Final = 1
_ZONES: Final = ("zone1", "zone2", "zone3")
_MEMORY_MIB: Final = 500
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(slots=True)
class Problem:
    """``zones``: node → zone; ``room``: node → what is free on it beside the placed pods."""

    nodes: list[Node]
    asks: list[Ask]
    room: dict[str, Room]
    zones: dict[str, str]
    placed: list[Pod] = field(default_factory=list)


def _ask(made: Pod, cpu_milli: int) -> Ask:
    document: dict[str, Any] = msgspec.to_builtins(made)
    document |= {"apiVersion": "v1", "kind": "Pod"}
    document["metadata"] = {name: document["metadata"][name] for name in ("name", "labels") if document["metadata"].get(name)}
    return Ask(document, cpu_milli, _MEMORY_MIB)


def _asks(count: int, cpu_milli: int, labels: Mapping[str, str] | None = None, **spec: Any) -> list[Ask]:
    one = _ask(pod("pod", labels, resources=requests(f"{cpu_milli}m"), **spec), cpu_milli)
    return [_named(one, f"pod-{at}") for at in range(count)]


def _named(ask: Ask, name: str) -> Ask:
    return ask._replace(document={**ask.document, "metadata": {**ask.document["metadata"], "name": name}})


def plain(nodes: int, draw: Random) -> list[Ask]:
    """Small pods in an empty cluster, one for each node."""
    return _asks(nodes, 100)


def spread(nodes: int, draw: Random) -> list[Ask]:
    """Pods that must spread over three zones with a skew of at most one, half as many as nodes."""
    constraint = {"maxSkew": MAX_SKEW, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    constraint["labelSelector"] = {"matchLabels": {"color": COLOR}}
    return _asks(nodes // 2, 100, {"color": COLOR}, topologySpreadConstraints=[constraint])


def apart(nodes: int, draw: Random) -> list[Ask]:
    """Pods with required anti-affinity to each other per host, for nine tenths of the nodes."""
    affinity = {"podAntiAffinity": {_REQUIRED: [term(HOSTNAME, COLOR)]}}
    return _asks(nodes * 9 // 10, 100, {"color": COLOR}, affinity=affinity)


def together(nodes: int, draw: Random) -> list[Ask]:
    """Pods with required affinity to each other per zone, a fifth as many as nodes."""
    affinity = {"podAffinity": {_REQUIRED: [term(ZONE, COLOR)]}}
    return _asks(nodes // 5, 100, {"color": COLOR}, affinity=affinity)


def big(nodes: int, draw: Random) -> list[Ask]:
    """Pods of three quarters of a node, for eight tenths of the nodes, and half as many of an eighth, in random order."""
    large = nodes * 8 // 10
    asks = [*_asks(large, 3000), *(_named(one, f"small-{at}") for at, one in enumerate(_asks(large // 2, 500)))]
    draw.shuffle(asks)
    return asks


def tight(nodes: int, draw: Random) -> list[Ask]:
    """Pods for 95 % of the places that are left in a cluster whose CPU is requested to 95 % on average."""
    return []  # see ``_fill``


def unlike(nodes: int, draw: Random) -> list[Ask]:
    """Pods that all differ, so that no cached result of one helps another; a tenth as many as nodes."""
    made = (
        pod("pod", {"app": f"app-{at}"}, resources=requests(f"{50 + at % 97}m", f"{300 * 1024 + at * 16}Ki"))
        for at in range(nodes // 10)
    )
    return [_named(_ask(one, 50 + at % 97), f"pod-{at}") for at, one in enumerate(made)]


WORKLOADS: Final[Mapping[str, Callable[[int, Random], list[Ask]]]] = {
    "plain": plain, "spread": spread, "apart": apart, "together": together, "tight": tight, "big": big, "unlike": unlike,
}  # fmt: skip


def make(name: str, nodes: int, seed: int, *, most_pods: int | None = None, pools: int = 0) -> Problem:
    """Return a workload of a size. ``pools``: divide nodes and pods among so many pools; the first pools get more pods."""
    draw = Random(f"{name}/{seed}")
    machines = [_node(at, pools) for at in range(nodes)]
    room = {one.name: Room(NODE.cpu_milli, NODE.memory_mib, NODE.pods) for one in machines}
    problem = Problem(machines, WORKLOADS[name](nodes, draw), room, {one.name: one.metadata.labels[ZONE] for one in machines})
    if name == "tight":
        _fill(problem, draw)
    problem.asks = problem.asks[:most_pods]
    if pools:
        problem.asks = list(_pooled(problem.asks, pools, draw))
    return problem


def _node(at: int, pools: int) -> Node:
    # Zones do not alternate with the pools.
    labels = {ZONE: _ZONES[at // max(pools, 1) % len(_ZONES)]}
    return node(at, {**labels, "pool": f"{at % pools}"} if pools else labels)


def _fill(problem: Problem, draw: Random) -> None:
    """Leave 0 to 400 millicores free on each node, and ask for 95 % of the places for pods of 300."""
    shapes = {free: pod("old", resources=requests(f"{NODE.cpu_milli - free}m")) for free in range(0, 401, 50)}
    places = 0
    for at, one in enumerate(problem.nodes):
        free = draw.choice(list(shapes))
        problem.placed.append(_on(shapes[free], f"old-{at}", one.name))
        problem.room[one.name].take(Ask({}, NODE.cpu_milli - free, _MEMORY_MIB))
        places += free >= 300
    problem.asks = _asks(places * 95 // 100, 300)


def _on(made: Pod, name: str, node_name: str) -> Pod:
    metadata = replace(made.metadata, name=name, uid=name)
    return replace(made, metadata=metadata, spec=replace(made.spec, node_name=node_name))


def _pooled(asks: list[Ask], pools: int, draw: Random) -> Iterator[Ask]:
    """Yield the pods with a pool each. The first pool gets half as many again as the mean, the last half as many."""
    shares = [1.5 - at / max(pools - 1, 1) for at in range(pools)]
    specs: dict[tuple[int, int], dict[str, Any]] = {}
    for ask, pool in zip(asks, draw.choices(range(pools), shares, k=len(asks)), strict=True):
        spec = ask.document["spec"]
        pooled = specs.setdefault(
            (id(spec), pool), {**spec, "schedulerName": f"pool-{pool}", "nodeSelector": {"pool": f"{pool}"}}
        )
        yield ask._replace(document={**ask.document, "spec": pooled})
