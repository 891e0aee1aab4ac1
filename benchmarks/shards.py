"""Play several schedulers that share one cluster, in virtual time, and measure speed, conflicts and the quality of the result.

Each scheduler is the shipped engine with a state of its own; the store is that of the embedded API server. What a process
spends on an event, a decision or a write is a stated figure (``COSTS``), so equal arguments give equal results everywhere.
"""

from __future__ import annotations

import gc
import resource
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from time import process_time
from typing import Any, Final

import msgspec

from benchmarks.shard_scheduler import Costs, Shard, Sharing
from benchmarks.shard_workloads import COLOR, MAX_SKEW, NODE, Problem, make
from benchmarks.shard_world import Agenda, Ask, Limits, Room, SharedCluster
from moorage.interfaces.cli.given_back_memory import collect_seldom, keep_freed_memory
from tools.simtest.oracle_rules import fits_beside

__all__ = ["COSTS", "Setting", "costs_of", "play"]

#: Seconds without a binding after which a run ends: longer than the longest backoff.
_PATIENCE_S: Final = 15.0
#: CPU microseconds of a process where ``sum(range(1000))`` takes 9: a plain pod takes 330 with all its events and writes.
#: docs/run/scale.md has the measurements.
COSTS: Final = Costs(read_us=20.0, place_us=20.0, decide_us=30.0, write_us=220.0)
#: Workload → microseconds of a decision with the queue, and how many more for each 1,000 nodes; others: as in ``COSTS``.
_DECIDING: Final[Mapping[str, tuple[float, float]]] = {
    "spread": (90.0, 0.0),
    "apart": (115.0, 0.0),
    "together": (90.0, 0.0),
    "unlike": (340.0, 0.25),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One run. ``pods_per_s`` at which pods are created; 0: all at once. ``refuses``: see ``SharedCluster``.

    ``oracle``: ask the oracle of simtest about every binding, which takes long in a large cluster.
    """

    share: str
    schedulers: int
    workload: str
    nodes: int
    most_pods: int | None = None
    writes_per_s: float = 20_000.0
    watch_ms: float = 5.0
    pods_per_s: float = 0.0
    refuses: bool = False
    slower: float = 1.0
    oracle: bool = False
    seed: int = 0

    @property
    def sharing(self) -> Sharing:
        return Sharing(self.share, self.schedulers)


def costs_of(setting: Setting) -> Costs:
    """Return what a scheduler of a run spends; a machine that is ``slower`` spends more."""
    base_us, more_us = _DECIDING.get(setting.workload, (COSTS.decide_us, 0.0))
    seen = setting.nodes / (setting.schedulers if setting.share == "nodes" else 1)
    figures = (COSTS.read_us, COSTS.place_us, base_us + more_us * seen / 1000, COSTS.write_us)
    return Costs(*(figure * setting.slower for figure in figures))


def play(setting: Setting) -> dict[str, Any]:
    """Play one run and return its figures."""
    keep_freed_memory()
    collect_seldom()
    began = process_time()
    sharing = setting.sharing
    pools = setting.schedulers if setting.share == "pools" else 0
    problem = make(setting.workload, setting.nodes, setting.seed, most_pods=setting.most_pods, pools=pools)
    limits = Limits(setting.writes_per_s, setting.watch_ms / 1000)
    cluster = SharedCluster(Agenda(), limits, problem.room, refuses=setting.refuses)
    shards = [Shard(at, sharing, cluster, costs_of(setting)) for at in range(setting.schedulers)]
    for shard in shards:
        shard.load(problem.nodes)
        shard.load(problem.placed)
    gc.collect()
    gc.freeze()
    loaded = process_time()
    _run(setting, problem, cluster, shards)
    return {
        **_named(setting),
        "pods": len(problem.asks),
        **_speed(cluster, shards),
        **_quality(setting, problem, cluster),
        **({"refused_by_oracle": _refused_by_oracle(problem, cluster)} if setting.oracle else {}),
        "load_cpu_s": round(loaded - began, 1),
        "run_cpu_s": round(process_time() - loaded, 1),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def _named(setting: Setting) -> dict[str, Any]:
    return {
        "share": setting.share,
        "schedulers": setting.schedulers,
        "workload": setting.workload,
        "nodes": setting.nodes,
        "writes_per_s": setting.writes_per_s,
        "watch_ms": setting.watch_ms,
        "created_per_s": setting.pods_per_s,
        "refuses": int(setting.refuses),
        "slower": setting.slower,
        "seed": setting.seed,
    }


def _run(setting: Setting, problem: Problem, cluster: SharedCluster, shards: Sequence[Shard]) -> None:
    agenda = cluster.agenda
    if not setting.pods_per_s:
        cluster.writes += len(problem.asks)  # they were created before

    def wake_all(at_s: float) -> None:
        for shard in shards:
            shard.wake(at_s)

    def creating(ask: Ask) -> Callable[[], None]:
        return lambda: cluster.create(ask) if not setting.pods_per_s else cluster.write(lambda: cluster.create(ask))

    cluster.on_change = wake_all
    for number, ask in enumerate(problem.asks):
        agenda.at(number / setting.pods_per_s if setting.pods_per_s else 0.0, creating(ask))
    last_s = len(problem.asks) / setting.pods_per_s if setting.pods_per_s else 0.0
    while len(cluster.placed) < len(problem.asks) and agenda.next(last_s + _PATIENCE_S):
        last_s = max(last_s, *([cluster.agenda.now] if cluster.placed and _is_fresh(cluster) else [0.0]))


def _is_fresh(cluster: SharedCluster) -> bool:
    return next(reversed(cluster.placed.values())) == cluster.agenda.now


# -- figures ---------------------------------------------------------------------------------------------------------------


def _speed(cluster: SharedCluster, shards: Sequence[Shard]) -> dict[str, Any]:
    times = sorted(cluster.placed.values())
    waits = sorted(at_s - cluster.since[uid] for uid, at_s in cluster.placed.items())
    most = len(times) * 9 // 10
    within_s = times[most - 1] if most else 0.0
    attempts = sum(shard.attempts for shard in shards)
    span_s = times[-1] if times else 1.0
    return {
        "placed": len(times),
        "placed_per_s": round(min(most / within_s, _sustained_per_s(cluster))) if within_s else 0,
        "wait_p50_ms": round(_quantile(waits, 0.5) * 1000, 1),
        "wait_p99_ms": round(_quantile(waits, 0.99) * 1000, 1),
        "conflicts": cluster.conflicts,
        "retries": attempts - len(times),
        "handed_over": cluster.handed_over,
        "writes": cluster.writes,
        "api_busy": round(min(1.0, cluster.writes / cluster.limits.writes_per_s / span_s), 2),
        "busiest": round(min(1.0, max(shard.busy_s for shard in shards) / span_s), 2),
    }


def _sustained_per_s(cluster: SharedCluster) -> float:
    """Return how many pods a second the API server can go on storing, with all the writes that each of them causes."""
    return cluster.limits.writes_per_s * len(cluster.placed) / cluster.writes


def _quantile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def _quality(setting: Setting, problem: Problem, cluster: SharedCluster) -> dict[str, Any]:
    left = [ask for uid, ask in cluster.asks.items() if uid not in cluster.placed]
    sizes = [ask.cpu_milli for ask in problem.asks]
    return {
        "pending": len(left),
        "pending_that_fit": _that_fit(left, cluster.room),
        "broken": _broken(setting, problem, cluster),
        "skew": _skew(problem, cluster),
        "mean_score": round(_mean(list(_scores(cluster))), 2),
        "stranded": round(_stranded(cluster.room, max(sizes, default=0)), 3),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _that_fit(asks: Sequence[Ask], room: Mapping[str, Room]) -> int:
    """Return how many of the pods one scheduler could place at the end, one after the other, the largest first."""
    free = [-one.cpu_milli for one in room.values()]
    heapify(free)
    count = 0
    for size in sorted((ask.cpu_milli for ask in asks), reverse=True):
        if free and -free[0] >= size:
            count += 1
            heapreplace(free, free[0] + size)
    return count


def _broken(setting: Setting, problem: Problem, cluster: SharedCluster) -> int:
    """Return by how many pods a required rule of the workload is broken, which no kubelet checks."""
    if setting.workload == "apart":
        return sum(count - 1 for count in Counter(cluster.node_of.values()).values())
    if setting.workload == "spread":
        return max(0, _skew(problem, cluster) - MAX_SKEW)
    if setting.workload == "together":
        return len(cluster.placed) - max(Counter(problem.zones[node] for node in cluster.node_of.values()).values())
    return 0


def _refused_by_oracle(problem: Problem, cluster: SharedCluster) -> int:
    """Return how many bindings broke a rule when they were stored, by the rules of simtest's oracle."""
    nodes = {one.name: msgspec.to_builtins(one) for one in problem.nodes}
    placed = [(msgspec.to_builtins(pod), pod.spec.node_name) for pod in problem.placed]
    refused = 0
    for uid, node in cluster.node_of.items():
        document = cluster.asks[uid].document
        pod = {**document, "metadata": {**document["metadata"], "namespace": "default", "uid": uid}}
        refused += bool(fits_beside(pod, nodes[node], nodes, placed))
        placed.append((pod, node))
    return refused


def _skew(problem: Problem, cluster: SharedCluster) -> int:
    """Return how many more pods the fullest zone has than the emptiest."""
    colored = {uid for uid, ask in cluster.asks.items() if ask.document["metadata"].get("labels", {}).get("color") == COLOR}
    counts = Counter(dict.fromkeys(problem.zones.values(), 0))
    counts.update(problem.zones[node] for uid, node in cluster.node_of.items() if uid in colored)
    return max(counts.values()) - min(counts.values())


def _scores(cluster: SharedCluster) -> Iterator[float]:
    """Yield the score of NodeResourcesFit (LeastAllocated) of each placed pod's node, as the run left it."""
    for node in cluster.node_of.values():
        room = cluster.room[node]
        yield 50 * (room.cpu_milli / NODE.cpu_milli + room.memory_mib / NODE.memory_mib)


def _stranded(room: Mapping[str, Room], size: int) -> float:
    """Return the part of the free CPU that is on nodes with less than the largest pod requests."""
    free = sum(one.cpu_milli for one in room.values())
    return sum(one.cpu_milli for one in room.values() if one.cpu_milli < size) / free if free else 0.0
