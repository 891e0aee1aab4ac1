"""Play one workload of the mix in this process and print the figures as JSON, also with the source of another checkout.

So it names few modules of Moorage and nothing else of the benchmarks, unless a mechanism is switched off. CPU time is that of
everything from the first event to the last decision; reading the files and filling the cluster come before. Every few hundred
decisions the loop that figures are scaled by is measured, and its time is taken off.

Usage  python -m benchmarks.mix_driver FOLDER [MECHANISM …]
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, Final

import msgspec

import moorage
from moorage.api.core import Node, Pod, PodStatus
from moorage.api.meta import Object
from moorage.core.engine.facts import Gone, News, Seen
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedCluster

__all__ = ["play"]

#: The loop is measured once in so many decisions, by the least of some tries.
_LOOP_EVERY: Final = 200
_TRIES: Final = 5


class _Loop:
    """The CPU time of ``sum(range(1000))``, measured again and again while a workload runs."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self.spent_s = 0.0

    def measure(self) -> None:
        first = began = process_time()
        best = float("inf")
        for _ in range(_TRIES):
            sum(range(1000))
            now = process_time()
            best, began = min(best, now - began), now
        self.samples.append(best)
        self.spent_s += began - first

    @property
    def us(self) -> float:
        """The mean in microseconds."""
        return 1e6 * sum(self.samples) / len(self.samples)


class _Player:
    """A simulated cluster and the pods that come, by ``namespace/name``."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.later: dict[str, Pod] = {}
        #: The UID of each pod, or of its latest copy, by the name under which it was first created; and the way back.
        self.uid_of = {f"{pod.namespace}/{pod.name}": uid for uid, pod in cluster.pods.items()}
        self._key_of = {uid: key for key, uid in self.uid_of.items()}

    def events(self, folder: Path) -> int:
        """Schedule the events of a folder. Return the number of pods that they create, without copies of evicted ones."""
        created = 0
        for line in (folder / "events.jsonl").read_bytes().splitlines():
            event = msgspec.json.decode(line)
            if event["do"] == "create":
                found = [self.later[key] for key in event["pods"]]
                created += len(found)
                for pod in found:
                    self._name(pod.uid, f"{pod.namespace}/{pod.name}")
                if event["at"] > 0.0:
                    for pod in found:
                        self.cluster.at(event["at"], Seen(pod))
                else:
                    self.cluster.at(0.0, partial(self.cluster.load, found))
            else:
                self.cluster.at(event["at"], self._call_of(event))
        self.later = {}
        return created

    def _name(self, uid: str, key: str) -> None:
        self.uid_of[key], self._key_of[uid] = uid, key

    def _call_of(self, event: dict[str, Any]) -> Callable[[], None]:
        match event["do"]:
            case "delete":
                return partial(self._delete, event["pods"])
            case "update":
                return partial(self.cluster.tell, [Seen(msgspec.convert(event["node"], Node))])
            case "evict":
                return partial(self._evict, event["on"])
        raise ValueError(f"{event['do']}: no such event; use create, delete, update or evict")

    def _delete(self, keys: list[str]) -> None:
        for key in keys:
            uid = self.uid_of[key]
            if uid in self.cluster.pods:
                self.cluster.delete(uid)

    def _evict(self, node: str) -> None:
        table = self.cluster.scheduler.cluster.table
        gone = [one.pod for one in table.pods[table.row_of[node]].values()]
        facts: list[News] = [Gone(pod) for pod in gone]
        for pod in gone:
            copy = pod.replace(
                metadata=pod.metadata.replace(name=f"{pod.name}r", uid=f"{pod.uid}r"),
                spec=pod.spec.replace(node_name=""), status=PodStatus(phase="Pending"),
            )  # fmt: skip
            self._name(copy.uid, self._key_of.pop(pod.uid))
            facts.append(Seen(copy))
        self.cluster.tell(facts)


def play(folder: Path) -> dict[str, Any]:
    """Play the workload of a folder."""
    _keep_freed_memory()
    gc.set_threshold(100_000, 10, 20)
    cluster, _ = prepare(Options(seed=0))
    cluster.load(_objects(folder / "start.json"))
    for _ in cluster.steps():
        pass
    player = _Player(cluster)
    before = _resident()
    player.later = {f"{pod.namespace}/{pod.name}": pod for pod in _objects(folder / "later.json") if isinstance(pod, Pod)}
    created = player.events(folder)
    gc.collect()
    gc.freeze()
    _trim()
    loop, uids, nodes = _Loop(), [], []
    began = process_time()
    loop.measure()
    for at, decision in enumerate(cluster.steps(), 1):
        uids.append(decision.pod.uid)
        nodes.append(decision.node)
        if not at % _LOOP_EVERY:
            loop.measure()
    cpu_s = process_time() - began - loop.spent_s
    loop.measure()
    made = hashlib.sha256()
    for uid, node in zip(uids, nodes, strict=True):
        made.update(f"{uid} {node}\n".encode())
    attempts, placed = len(nodes), sum(node is not None for node in nodes)
    del uids, nodes
    grown = _resident() - before
    return {
        "pods": created, "attempts": attempts, "placed": placed, "pending": len(cluster.scheduler.queue),
        "cpu_s": round(cpu_s, 4), "loop_us": round(loop.us, 3), "cpu_us": round(cpu_s / created * 1e6, 2),
        "scaled_us": round(cpu_s / created * 1e6 * 9.0 / loop.us, 2), "grown_b": round(grown / created),
        "decisions": made.hexdigest()[:16],
    }  # fmt: skip


def _objects(path: Path) -> Iterator[Object]:
    yield from objects_of(moorage.read([str(path)]))


def _keep_freed_memory() -> None:
    """Let glibc keep the memory of arrays that come and go, as the command does."""
    for option in (-1, -2, -3):  # M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD
        ctypes.CDLL(None).mallopt(option, 16 << 20 if option == -2 else 256 << 20)


def _trim() -> None:
    ctypes.CDLL(None).malloc_trim(0)


def _resident() -> int:
    """Return the resident memory in bytes, without what is free."""
    gc.collect()
    _trim()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def _main(folder: str, *without: str) -> None:
    if without:
        from benchmarks.mechanisms import switch_off

        for mechanism in without:
            switch_off(mechanism)
    print(json.dumps(play(Path(folder))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
