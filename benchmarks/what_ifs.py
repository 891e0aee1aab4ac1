"""How long does a what-if take? Measure transactions, forks and digests of ``moorage.Cluster``.

Each what-if opens a transaction, makes one change, asks for one decision, and takes everything back. Times are CPU time, the
best of several rounds; ``loop_us`` is the CPU time of ``sum(range(1000))`` in the same round: the speed of the machine under
its load.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator, Mapping
from time import process_time
from typing import Any

from benchmarks import loop_time
from moorage.api.core import Pod
from moorage.laboratory.cluster import Cluster
from moorage.testing.builders import a_node, a_pod

__all__ = ["loop_us", "measure_forks", "measure_what_ifs"]

_ZONES = "abc"


def measure_what_ifs(nodes: int = 1000, pods: int = 10_000, times: int = 1000, rounds: int = 5) -> Iterator[dict[str, Any]]:
    """Yield the time of each kind of what-if, in microseconds, and of ``times`` evictions, in seconds."""
    cluster = _cluster(nodes, pods)
    gc.freeze()
    for name, what_if in _what_ifs(cluster, nodes).items():
        took, speed = _best(what_if, times, rounds)
        yield {
            "name": name, "nodes": nodes, "pods": pods, "us": round(took / times * 1e6, 1), "total_s": round(took, 3),
            "times": times, "loop_us": speed,
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
