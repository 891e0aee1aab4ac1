"""kube-scheduler's own code and ours in turn on the same workloads, each in one process without an API server.

A workload is written to a folder once: ``start.json`` has the nodes, the other objects and the pods that are placed already
(by Moorage), and ``later.json`` the pods to place. ``oracles/speed`` plays it with the whole kube-scheduler, ``play`` with the
shipped engine. On both sides time runs from the arrival of the pods, which are decoded by then, to the last decision, and a
binding is only noted. kube-scheduler takes its usual sample of the nodes and uses all cores; Moorage scores every node on one.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, Final

import moorage
from benchmarks.mix_events import Mix, creations, manifest, write_mix
from benchmarks.workloads import WORKLOADS, Sizes
from moorage.api.core import Pod
from moorage.api.meta import Object
from moorage.interfaces.cli.given_back_memory import collect_seldom, keep_freed_memory
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.simulate import Options, prepare
from tools.oracles import Program, built

__all__ = [
    "IN_PROCESS",
    "LEFT_OUT",
    "DisagreementError",
    "compare",
    "in_process_table",
    "measure_in_process",
    "play",
    "progress",
    "write",
]

#: The workloads that are compared by default.
IN_PROCESS: Final = (
    "basic", "node-affinity", "mixed-base", "unique-classes", "services", "spread-zone-required", "anti-affinity-host",
    "preferred-affinity-host", "affinity-zone", "daemonset-pinned",
)  # fmt: skip
#: Workloads that cannot be compared so, and why.
LEFT_OUT: Final = {
    "preemption-churn": "other pods come between its pods",
    "unschedulable-churn": "other pods come between its pods",
    "local-volumes": "a controller has to bind its volumes",
    "dra-claims": "a controller has to write the claims of its placed pods",
    "gated-noise": "it is of one node",
}
SIDES: Final = ("kube-scheduler", "Moorage")
#: Workloads in which the number of new pods is settled for every node, or for every node but for its name.
_EACH_NODE: Final = ("daemonset-pinned",)
_BUT_NAMES: Final = ("anti-affinity-host",)

Figures = dict[str, Any]


class DisagreementError(Exception):
    """The two sides do not place as many pods; the text says where."""


def write(name: str, nodes: int, pods: int, folder: Path) -> None:
    """Write a workload to a folder: ``pods`` that arrive, and its usual number of placed pods per node."""
    usual = WORKLOADS[name][1]
    made = WORKLOADS[name][0](Sizes(nodes, usual.init * nodes // usual.nodes, pods), Random(0))
    simulation, _ = prepare(Options(seed=0))
    simulation.load(made.objects)
    simulation.load(made.init)
    node_of = {decision.pod.uid: decision.node for decision in simulation.steps()}
    placed = [pod.replace(spec=pod.spec.replace(node_name=node_of.get(pod.uid) or "")) for pod in made.init]
    start = [manifest(obj) for obj in (*made.objects, *placed) if isinstance(obj, Object)]
    later = [manifest(pod) for pod in made.measured]
    write_mix(Mix(start, later, [creations(later)]), folder)


def play(folder: Path) -> Figures:
    """Place the pods of a folder with the engine. Return seconds by the clock and of CPU, and the pods on each node."""
    keep_freed_memory()
    collect_seldom()
    simulation, _ = prepare(Options(seed=0))
    simulation.load(_objects(folder / "start.json"))
    for _ in simulation.steps():
        pass
    before = sum(pod.spec.node_name != "" for pod in simulation.pods.values())
    later = [one for one in _objects(folder / "later.json") if isinstance(one, Pod)]
    gc.collect()
    gc.freeze()
    node_of: dict[str, str | None] = dict.fromkeys(pod.uid for pod in later)
    clock, cpu = perf_counter(), process_time()
    simulation.load(later)
    for decision in simulation.steps():
        node_of[decision.pod.uid] = decision.node
    clock_s, cpu_s = perf_counter() - clock, process_time() - cpu
    on = Counter(node for node in node_of.values() if node is not None)
    return {
        "placed": on.total(), "unplaced": len(later) - on.total(), "ended": True, "clock_s": clock_s, "cpu_s": cpu_s,
        "nodes": len(simulation.scheduler.cluster.table.row_of), "before": before, "on": dict(on),
    }  # fmt: skip


def _objects(path: Path) -> Iterator[Object]:
    yield from objects_of(moorage.read([str(path)]))


def _by(side: str, program: Path, folder: Path, limit_s: float) -> Figures:
    """Play a folder in a new process."""
    if side == "Moorage":
        with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
            return pool.submit(play, folder).result()
    done = subprocess.run([program, f"-limit={limit_s}s", folder], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{program.name} failed:\n" + "\n".join(done.stderr.splitlines()[-12:]))
    figures: Figures = json.loads(done.stdout)
    return figures


def measure_in_process(name: str, nodes: int, pods: int, rounds: int, limit_s: float) -> Iterator[Figures]:
    """Play a workload by each side in turn, so many rounds; each for ``limit_s`` seconds at most by kube-scheduler.

    Raises  DisagreementError, tools.oracles.OracleMissingError, tools.oracles.BuildError
    """
    program = built("speed")
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write(name, nodes, pods, folder)
        for turn in range(rounds):
            of: dict[str, Figures] = {}
            for side in SIDES if turn % 2 == 0 else SIDES[::-1]:
                load = os.getloadavg()[0]
                of[side] = {"workload": name, "side": side, "load": load, "pods": pods, **_by(side, program, folder, limit_s)}
            compare(name, *(of[side] for side in SIDES))
            yield from of.values()


def compare(name: str, theirs: Figures, ours: Figures) -> None:
    """Compare what was placed, and on which nodes, where that is settled. What the limit has ended is not compared.

    Raises  DisagreementError
    """
    for what in ("nodes", "before"):
        if theirs[what] != ours[what]:
            raise DisagreementError(f"{name}: kube-scheduler began with {theirs[what]} {what}, Moorage with {ours[what]}")
    if not theirs["ended"]:
        return
    if theirs["placed"] != ours["placed"]:
        raise DisagreementError(f"{name}: kube-scheduler places {theirs['placed']} pods, Moorage {ours['placed']}")
    if name in _EACH_NODE and theirs["on"] != ours["on"]:
        node = next(node for node in theirs["on"] | ours["on"] if theirs["on"].get(node) != ours["on"].get(node))
        raise DisagreementError(f"{name}: {theirs['on'].get(node, 0)} and {ours['on'].get(node, 0)} pods on {node}")
    if name in _BUT_NAMES and sorted(theirs["on"].values()) != sorted(ours["on"].values()):
        raise DisagreementError(f"{name}: {max(theirs['on'].values())} and {max(ours['on'].values())} pods on one node")


def _machine() -> str:
    """Return what the processor says of itself, and the number of cores."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "an unnamed processor")
    return f"{os.cpu_count()} cores of {named}"


def in_process_table(results: Sequence[Mapping[str, Any]], nodes: int) -> str:
    """Return the results as a table: medians in microseconds a placed pod."""
    loads, rounds = [one["load"] for one in results], max(Counter(one["workload"] for one in results).values()) // len(SIDES)
    theirs = f"kube-scheduler {Program('speed').kubernetes()}"
    lines = [
        f"{nodes:,} nodes, {rounds} rounds of each in turn, medians in µs a pod, on {_machine()}, at a load of",
        f"{min(loads):.0f} to {max(loads):.0f} by all that ran.",
        "",
        f"| workload | placed by each | clock: {theirs} | Moorage | times | CPU: kube-scheduler | Moorage | times |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(one["workload"] for one in results):
        of = {side: [one for one in results if (one["workload"], one["side"]) == (name, side)] for side in SIDES}
        cells = [_placed(of["kube-scheduler"])]
        for what in ("clock_s", "cpu_s"):
            slow, ours = (median(one[what] / max(one["placed"], 1) for one in of[side]) * 1e6 for side in SIDES)
            cells += [f"{slow:,.0f}", f"{ours:,.0f}", f"{slow / ours:.0f}"]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _placed(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return how many pods were placed; of how many, if the limit ended a run."""
    least = min(one["placed"] for one in runs)
    whole = f"{least:,}" if all(one["ended"] for one in runs) else f"{least:,} of {runs[0]['pods']:,}, then time was up"
    failed = max(one["unplaced"] for one in runs)
    return f"{whole}, {failed:,} fit nowhere" if failed else whole


def progress(one: Mapping[str, Any]) -> str:
    """Return one run as a line."""
    return (
        f"{one['workload']:24}{one['side']:16}{one['placed']:7,} placed{one['clock_s']:9.2f} s{one['cpu_s']:9.2f} CPU s"
        f"{one['load']:7.1f} load"
    )
