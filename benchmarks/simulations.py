"""How long do simulations take? A week of a large cluster, one run of a small one, and the steps of a learning environment.

Times are CPU time. ``loop_us`` is the CPU time of ``sum(range(1000))`` beside it, the speed of the machine under load. Bounds
are for a machine on which that takes 9 µs, so times are scaled by it. Each figure is the best of some rounds.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from time import process_time
from typing import Any, Final

import numpy as np

from benchmarks.what_ifs import loop_us
from moorage.api.core import Node, Pod
from moorage.laboratory.dynamics import (
    DAY,
    HOUR,
    Diurnal,
    Exponential,
    FailingNodes,
    LogNormal,
    PodArrivals,
    PodKind,
    Simulation,
    StateRecorder,
)
from moorage.simulator.simulate import Options, simulate
from moorage.testing.builders import a_node, a_pod

__all__ = ["SIMULATIONS"]

#: The CPU microseconds of ``sum(range(1000))`` on the machine that the bounds are for.
_LOOP_US: Final = 9.0


def _node(at: int) -> Node:
    labels = {"kubernetes.io/hostname": f"n{at}", "topology.kubernetes.io/zone": f"z{at % 3}"}
    return a_node(f"n{at}", labels, allocatable={"cpu": "32", "memory": "128Gi", "pods": 110})


def _pod(name: str, cpu: str, memory: str, **spec: Any) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return a_pod(name, {"app": name.split("-", maxsplit=1)[0]}, containers=[container], **spec).pod


def _scaled(step: Callable[[], object], rounds: int) -> tuple[float, float, float]:
    """Return the least scaled CPU time of some rounds, with its CPU time and the speed of the machine then."""
    found = []
    for _ in range(rounds):
        gc.collect()
        before, began = loop_us(), process_time()
        step()
        took = process_time() - began
        speed = (before + loop_us()) / 2
        found.append((took * _LOOP_US / speed, took, speed))
    return min(found)


def week(nodes: int = 1000, days: float = 7.0) -> dict[str, Any]:
    """Simulate days of a cluster: 10 services a node that stay, jobs by the time of day, failures, samples of the state."""
    figures: dict[str, Any] = {}

    def step() -> None:
        services = [_pod(f"web-{at}", "500m", "2Gi", nodeName=f"n{at % nodes}") for at in range(10 * nodes)]
        sim = Simulation.from_objects(map(_node, range(nodes)), services, seed=1)
        jobs = [
            PodKind(_pod("small", "500m", "1Gi"), 6),
            PodKind(_pod("middle", "2", "8Gi"), 3),
            PodKind(_pod("large", "8", "16Gi"), 1),
        ]
        sim.use(PodArrivals(Diurnal(nodes, amplitude=0.6, weekend=0.6), jobs, lifetime=LogNormal(2 * HOUR, 1.2)))
        failing = sim.use(FailingNodes(Exponential(30 * DAY), Exponential(2 * HOUR)))
        recorder = sim.use(StateRecorder(300.0))
        totals = sim.run(until=days * DAY)
        figures.update(
            pods=totals.arrived, failures=failing.count, samples=len(recorder.columns()["time_s"]),
            cpu_used=round(recorder.mean("utilisation.cpu", days * DAY / 7), 2),
        )  # fmt: skip

    scaled, took, speed = _scaled(step, 1)
    bound = 60.0 * nodes / 1000 * days / 7
    return {
        "name": "week", "nodes": nodes, "days": days, **figures, "cpu_s": round(took, 2), "scaled_s": round(scaled, 2),
        "bound_s": round(bound, 2), "within": scaled <= bound, "loop_us": speed,
    }  # fmt: skip


def small_cluster(kinds: int = 1, nodes: int = 10, pods: int = 50, times: int = 10, rounds: int = 20) -> dict[str, Any]:
    """Simulate a small cluster from its objects, profiles and all: what one of many runs of a study costs.

    Pods of several ``kinds`` alternate, which is the hardest order.
    """
    machines = [_node(at) for at in range(nodes)]
    waiting = [_pod(f"p-{at}", f"{250 * (1 + at % kinds)}m", "1Gi") for at in range(pods)]

    def step() -> None:
        for seed in range(times):
            simulate([*machines, *waiting], Options(seed=seed))

    scaled, took, speed = _scaled(step, rounds)
    each, bound = scaled / times * 1e3, 4.0 if kinds == 1 else 10.0
    return {
        "name": "small-cluster", "nodes": nodes, "pods": pods, "kinds": kinds, "cpu_ms": round(took / times * 1e3, 2),
        "scaled_ms": round(each, 2), "bound_ms": bound, "within": each <= bound, "loop_us": speed,
    }  # fmt: skip


def placement(nodes: int = 1000, pods: int = 4000, episodes: int = 1, rounds: int = 3, least: int = 10_000) -> dict[str, Any]:
    """Run episodes of a learning environment with an agent that takes the first open node. Needs Gymnasium."""
    from moorage.laboratory.learning import PlacementEnv

    arrivals = [_pod(f"p-{at}", f"{250 * (1 + at % 5)}m", f"{1 + at % 5}Gi") for at in range(pods)]
    env = PlacementEnv([_node(at) for at in range(nodes)], arrivals)
    steps = 0

    def step() -> None:
        nonlocal steps
        steps = 0
        for seed in range(episodes):
            observation, info = env.reset(seed=seed)
            while info["pod"]:
                observation, *_, info = env.step(np.int64(observation["action_mask"].argmax()))
                steps += 1

    def reset() -> None:
        for seed in range(episodes):
            env.reset(seed=seed)

    step()
    scaled, took, speed = _scaled(step, rounds)
    resets, _, _ = _scaled(reset, 1)
    alone, with_resets = steps / max(scaled - resets, 1e-9), steps / scaled
    return {
        "name": f"placement-{nodes}", "nodes": nodes, "steps": steps, "cpu_us": round(took / steps * 1e6, 1),
        "scaled_steps_per_s": round(alone), "with_resets": round(with_resets), "bound_steps_per_s": least,
        "within": with_resets >= least, "loop_us": speed,
    }  # fmt: skip


SIMULATIONS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    "week": week,
    "small-cluster": small_cluster,
    "small-cluster-mixed": lambda: small_cluster(5),
    "placement-10": lambda: placement(10, 50, 40, 5, 20_000),
    "placement-1000": placement,
}
