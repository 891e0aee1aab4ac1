"""The real mix: what does a pod cost on clusters and in orders that people have?

A mechanism that earns its keep on one workload may cost more than it saves on another. So each version, and each mechanism, is
judged by all of these together. A workload is written to a folder once; each run is a process that plays it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

from benchmarks.mix_clusters import classes_in_turn, rollouts, unlike, week
from benchmarks.mix_events import Manifest, Mix, arrivals, creations, manifest, write_mix
from benchmarks.mix_traces import alibaba, azure, borg, openb
from benchmarks.production_dump import production_objects
from benchmarks.workloads import WORKLOADS, Sizes
from moorage.api.meta import Object

__all__ = ["MIX", "TRACES", "Version", "measure", "rounds_of", "summary", "write_workload"]

_ROOT: Final = Path(__file__).resolve().parents[1]
#: The published files of openb, beside the checkout.
TRACES: Final = Path(os.environ.get("MOORAGE_SHARED", _ROOT.parent / "shared")) / "traces"
#: The nodes of the old workloads and of those of unlike pods.
_NODES: Final = 5000
#: The old twelve: running and measured pods, and measured pods with --quick.
_OLD: Final = {
    "basic": (1000, 10_000, 3000), "node-affinity": (5000, 10_000, 3000), "mixed-base": (10_000, 5000, 3000),
    "spread-zone-required": (5000, 5000, 2000), "spread-zone-preferred": (5000, 5000, 2000),
    "anti-affinity-host": (1000, 2000, 1000), "affinity-zone": (5000, 5000, 2000),
    "preferred-affinity-host": (5000, 5000, 2000), "services": (5000, 5000, 1500), "classes-in-turn": (1000, 10_000, 2000),
    "unique-classes": (1000, 10_000, 1500), "daemonset-pinned": (0, 10_000, 3000),
}  # fmt: skip


def _old(name: str, quick: bool) -> Mix:
    init, pods, few = _OLD[name]
    made = WORKLOADS[name][0](Sizes(_NODES, init, few if quick else pods), Random(0))
    later = [manifest(pod) for pod in made.measured]
    start = [manifest(obj) for obj in (*made.objects, *made.init) if isinstance(obj, Object)]
    return Mix(start, later, [creations(later)])


def _openb(quick: bool) -> Mix:
    if not TRACES.is_dir():
        raise FileNotFoundError(f"{TRACES}: no such folder; put the files of openb there, or name its parent in MOORAGE_SHARED")
    return openb(TRACES, 2000 if quick else 8152)


def _dump(quick: bool) -> Mix:
    """A production-like cluster: a third of the pods of its workloads arrive again, in random order."""
    start: list[Manifest] = []
    later: list[Manifest] = []
    random = Random(0)
    for obj in production_objects(300, 6000, lean=True):
        is_pod = obj["kind"] == "Pod" and obj["spec"].get("nodeName") and obj["status"]["phase"] == "Running"
        owned = is_pod and obj["metadata"].get("ownerReferences", [{"kind": ""}])[0]["kind"] != "DaemonSet"
        if owned and random.random() < (0.1 if quick else 0.35):
            spec = {key: value for key, value in obj["spec"].items() if key != "nodeName"}
            later.append({**obj, "spec": spec, "status": {"phase": "Pending"}})
        else:
            start.append(obj)
    random.shuffle(later)
    return Mix(start, later, arrivals((1.0 + at, pod, None) for at, pod in enumerate(later)))


#: Name → the workload, at its usual size or, if the argument is true, a small one.
MIX: Final[Mapping[str, Callable[[bool], Mix]]] = {
    "openb": _openb,
    "azure": lambda quick: azure(1000, 2000 if quick else 10_000),
    "alibaba": lambda quick: alibaba(4000, 3000 if quick else 10_000),
    "borg": lambda quick: borg(5000, 3000 if quick else 10_000),
    "dump": _dump,
    "rollouts": lambda quick: rollouts(1000, 80, 40) if quick else rollouts(1000, 80, 400),
    "unlike-1000": lambda quick: unlike(_NODES, 3000 if quick else 10_000, 1000),
    "unlike-10000": lambda quick: unlike(_NODES, 1500, 1500) if quick else unlike(_NODES, 10_000, 10_000),
    "classes-160": lambda quick: classes_in_turn(_NODES, 2000 if quick else 10_000, 160),
    "week": lambda quick: week(200, 2000, 10) if quick else week(300, 15_000, 60),
    **{name: partial(_old, name) for name in _OLD},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Version:
    """A source to measure: a checkout, and the mechanisms that are switched off in it."""

    name: str
    checkout: Path = _ROOT
    without: tuple[str, ...] = ()

    @property
    def paths(self) -> list[Path]:
        """Where Python finds the source and the driver: the checkout's own driver if it has one, otherwise this one."""
        has_driver = (self.checkout / "benchmarks" / "mix_driver.py").exists()
        return [self.checkout / "src", self.checkout if has_driver else _ROOT]


def write_workload(name: str, folder: Path, *, quick: bool = False) -> None:
    """Write a workload to a folder.

    Raises  FileNotFoundError if its trace is not there
    """
    write_mix(MIX[name](quick), folder)


def measure(version: Version, folder: Path) -> dict[str, Any]:
    """Play the workload of a folder in a new process and return its figures.

    Raises  RuntimeError with the last lines of its errors, if it fails
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, version.paths)), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-P", "-m", "benchmarks.mix_driver", str(folder), *version.without]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"{version.name} failed:\n" + "\n".join(done.stderr.splitlines()[-12:]))
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"version": version.name, "without": list(version.without), **figures}


def rounds_of(versions: Sequence[Version], folder: Path, rounds: int) -> Iterator[dict[str, Any]]:
    """Measure the versions in turn, so many rounds."""
    for turn in range(rounds):
        for version in versions:
            yield {"round": turn, **measure(version, folder)}


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the medians of the runs of one version, with the least and the most of the scaled CPU time."""
    figures = {key: median(run[key] for run in runs) for key in ("scaled_us", "cpu_us", "loop_us", "grown_b")}
    scaled = [run["scaled_us"] for run in runs]
    return {**runs[0], **figures, "least_us": min(scaled), "most_us": max(scaled), "rounds": len(runs)}
