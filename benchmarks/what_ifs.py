"""How long does a what-if take? Measure transactions, forks and digests of ``moorage.Cluster``.

Each what-if opens a transaction, makes one change, asks for one decision, and takes everything back. Times are CPU time, the
best of several rounds; ``loop_us`` is the CPU time of ``sum(range(1000))`` in the same round: the speed of the machine under
its load. ``scaled_us`` is the time scaled to 9 µs for that loop.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import process_time
from typing import Any

from benchmarks import loop_time
from benchmarks.what_if_world import HOLDERS, WAITING, holds_claims, rich_cluster
from moorage.api.core import Pod
from moorage.framework.changes import Change
from moorage.laboratory.cluster import Cluster
from moorage.testing.builders import a_node, a_pod

__all__ = ["loop_us", "measure_forks", "measure_rich_what_ifs", "measure_what_ifs"]

_ZONES = "abc"


def measure_what_ifs(nodes: int = 1000, pods: int = 10_000, times: int = 1000, rounds: int = 5) -> Iterator[dict[str, Any]]:
    """Yield the time of each kind of what-if, in microseconds, and of ``times`` evictions, in seconds."""
    cluster = _cluster(nodes, pods)
    gc.freeze()
    for name, what_if in _what_ifs(cluster, nodes).items():
        cluster.schedule(["web"], dry_run=True)  # outside of a transaction
        yield {"name": name, "nodes": nodes, "pods": pods, **_measured(what_if, times, rounds)}


def measure_rich_what_ifs(
    nodes: int = 1000, pods: int = 10_000, times: int = 100, rounds: int = 3, waiting: Iterable[str] = tuple(WAITING)
) -> Iterator[dict[str, Any]]:
    """Yield the time of each kind of what-if in a cluster that holds something for every plugin, for each kind of pod."""
    cluster = rich_cluster(nodes, pods)
    gc.freeze()
    for pod in waiting:
        for name, change in _rich_changes(cluster, nodes, pods).items():
            cluster.schedule([pod], dry_run=True)  # outside of a transaction

            def what_if(at: int, change: Callable[[int], None] = change, pod: str = pod) -> None:
                with cluster.transaction():
                    change(at)
                    cluster.schedule([pod], dry_run=True)

            yield {"name": f"{name}, decide", "pod": pod, "nodes": nodes, "pods": pods, **_measured(what_if, times, rounds)}

        def place(_: int, pod: str = pod) -> None:
            with cluster.transaction():
                cluster.schedule([pod])

        yield {"name": "place the pod", "pod": pod, "nodes": nodes, "pods": pods, **_measured(place, times, rounds)}


def _rich_changes(cluster: Cluster, nodes: int, pods: int) -> Mapping[str, Callable[[int], None]]:
    def evict(at: int) -> None:
        cluster.evict(f"p{(at * HOLDERS + 2) % pods}", grace_s=0)

    holders = [at for at in range(pods) if holds_claims(at, nodes)]

    def release(at: int) -> None:
        cluster.evict(f"p{holders[at % len(holders)]}", grace_s=0)

    def cordon(at: int) -> None:
        cluster.apply(f"node/n{at % nodes} unschedulable=true")

    def drain(at: int) -> None:
        cluster.apply(f"node/n{(at * HOLDERS + 2) % nodes} unschedulable=true")
        evict(at)

    def add(at: int) -> None:
        cluster.apply(Change("cluster", "add-node", f"node/m{at}", "like", None, f"like n{at % nodes}"))

    return {
        "change nothing": lambda at: None,
        "evict a pod with a budget": evict,
        "evict a pod with a volume and a device": release,
        "bind a pod": lambda at: cluster.bind("other", f"n{at % nodes}"),
        "label a node": lambda at: cluster.apply(f"node/n{at % nodes} labels.disk=ssd"),
        "taint a node": lambda at: cluster.apply(f"node/n{at % nodes} taints=k=v:NoSchedule"),
        "cordon a node": cordon,
        "cordon a node and evict its pod": drain,
        "remove a node": lambda at: cluster.remove(f"node/n{at % nodes}"),
        "add a node": add,
    }


def _measured(what_if: Callable[[int], None], times: int, rounds: int) -> dict[str, Any]:
    took, speed = _best(what_if, times, rounds)
    us = took / times * 1e6
    return {
        "us": round(us, 1), "scaled_us": round(us * 9 / speed), "total_s": round(took, 3), "times": times, "loop_us": speed,
    }  # fmt: skip


def measure_forks(nodes: int = 5000, pods: int = 50_000) -> Iterator[dict[str, Any]]:
    """Yield the time of a fork, of its first use, of a digest and of pickling, in milliseconds."""
    cluster = _cluster(nodes, pods)
    cluster.schedule()
    gc.freeze()
    fork = cluster.fork()
    packed = pickle.dumps(cluster)
    steps: Mapping[str, Callable[[], Any]] = {
        "fork": cluster.fork,
        "first use of a fork": lambda: fork.simulation,
        "digest": cluster.digest,
        "pickle": lambda: pickle.dumps(cluster),
        "unpickle": lambda: pickle.loads(packed),
    }
    for name, step in steps.items():
        began = process_time()
        step()
        took = process_time() - began
        yield {"name": name, "nodes": nodes, "pods": pods, "ms": round(took * 1e3, 2), "loop_us": loop_us()}
    if fork.digest() != cluster.digest():
        raise AssertionError("the fork differs from the cluster")


def _cluster(nodes: int, pods: int) -> Cluster:
    machines = [
        a_node(
            f"n{at}",
            {"kubernetes.io/hostname": f"n{at}", "topology.kubernetes.io/zone": _ZONES[at % 3]},
            allocatable={"cpu": "16", "memory": "64Gi", "pods": 110},
        )
        for at in range(nodes)
    ]
    placed = [_pod(f"p{at}", nodeName=f"n{at % nodes}") for at in range(pods)]
    cluster = Cluster.from_objects(machines, placed, _pod("web"), _pod("other"))
    cluster.schedule(["web"], dry_run=True)
    return cluster


def _pod(name: str, **spec: Any) -> Pod:
    asked = {"requests": {"cpu": "100m", "memory": "100Mi"}}
    return a_pod(name, {"app": f"a{len(name)}"}, containers=[{"name": "c", "image": "x:1", "resources": asked}], **spec).pod


def _what_ifs(cluster: Cluster, nodes: int) -> Mapping[str, Callable[[int], None]]:
    def asked(change: Callable[[int], None], dry_run: bool = True) -> Callable[[int], None]:
        def what_if(at: int) -> None:
            with cluster.transaction():
                change(at)
                cluster.schedule(["web"], dry_run=dry_run)

        return what_if

    def evict(at: int) -> None:
        cluster.evict(f"p{at}", grace_s=0)

    def bind(at: int) -> None:
        cluster.bind("other", f"n{at % nodes}")

    def decide(at: int) -> None:
        cluster.schedule(["web"], dry_run=True)

    return {
        "decide": decide,
        "evict a pod, decide": asked(evict),
        "bind a pod, decide": asked(bind),
        "evict a pod, place": asked(evict, dry_run=False),
        "change the pod, decide": asked(lambda at: cluster.apply(f"pod/web requests.cpu={100 + at}m")),
        "label a node, decide": asked(lambda at: cluster.apply(f"node/n{at % nodes} labels.disk=ssd")),
        "remove a node, decide": asked(lambda at: cluster.remove(f"node/n{at % nodes}")),
    }


def _best(what_if: Callable[[int], None], times: int, rounds: int) -> tuple[float, float]:
    """Return the seconds and the loop time of the round that was fastest by this loop time, before and after it."""
    found = []
    for _ in range(rounds):
        before, began = loop_time.loop_us(), process_time()
        for at in range(times):
            what_if(at)
        took = process_time() - began
        found.append((took, round((before + loop_time.loop_us()) / 2, 1)))
    return min(found, key=lambda one: one[0] / one[1])


def loop_us() -> float:
    """Return the CPU microseconds of ``sum(range(1000))``, rounded for the output."""
    return round(loop_time.loop_us(), 1)
