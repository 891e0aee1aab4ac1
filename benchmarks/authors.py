"""What does a custom plugin cost in each of its forms, against none? All of them in one run, on the same nodes and pods.

The plugin refuses nodes of other teams and prefers those with a fast disk. Times are CPU time of loading and placing, the best
of several rounds; ``times`` is the ratio to the run without a plugin.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from time import process_time
from typing import Any

import numpy as np

from benchmarks.what_ifs import loop_us
from moorage.framework.points import Reuse, Scope
from moorage.framework.verdicts import Hold, Reject
from moorage.simulator.simulate import Options, simulate
from moorage.state.view import IntArray, NodeInfo, NodeView, PodInfo
from moorage.testing.builders import a_node, a_pod

__all__ = ["FORMS", "measure_forms"]

_CONFIG = b"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {multiPoint: {enabled: [{name: Teams}]}}}]
"""


class Plain:
    """The form for one node, without a promise: it is proven what its methods read."""

    name = "Teams"

    def filter_node(self, pod: PodInfo, node: NodeInfo) -> Hold | None:
        team = node.labels.get("team")
        return None if team is None or team == pod.labels.get("team") else Hold.because("another team")

    def score_node(self, pod: PodInfo, node: NodeInfo) -> int:
        return 100 if node.labels.get("disk") == "fast" else 0


class AskedPlain(Plain):
    """The form for one node that is asked each time, as one whose methods do more than read."""

    reuse = Reuse()


class Arrays:
    """The form for all nodes at once, without a promise."""

    name = "Teams"

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        own, teams = pod.labels.get("team"), nodes.label("team")
        yield Reject(teams.judge(lambda team: team is not None and team != own)[nodes.ids(teams)], "another team")

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        disks = nodes.label("disk")
        return np.where(disks.judge(lambda disk: disk == "fast")[nodes.ids(disks)], 100, 0)


_PROMISE = Reuse(Scope.NODE, signature=lambda pod: {"team": pod.labels.get("team")}, signature_reads=())


class Promising(Arrays):
    """All nodes at once, with a promise."""

    reuse = _PROMISE


class PlainPromising(Plain):
    """One node at a time, with a promise."""

    reuse = _PROMISE


#: The forms that are measured; None is no plugin.
FORMS: dict[str, Any] = {
    "none": None, "plain": Plain, "plain, asked": AskedPlain, "arrays": Arrays, "promising": Promising,
    "plain, promising": PlainPromising,
}  # fmt: skip


def measure_forms(nodes: int = 1000, pods: int = 2000, rounds: int = 3) -> Iterator[dict[str, Any]]:
    """Yield the figures of each form."""
    best = dict.fromkeys(FORMS, float("inf"))
    placed = dict.fromkeys(FORMS, 0)
    for _ in range(rounds):
        for form, cls in FORMS.items():
            world = [*_nodes(nodes), *_pods(pods)]
            options = Options() if cls is None else Options(config=_CONFIG, plugins=(cls,))
            gc.collect()
            begun = process_time()
            run = simulate(world, options)
            best[form] = min(best[form], process_time() - begun)
            placed[form] = sum(pod.node is not None for pod in run.pods)
    for form, seconds in best.items():
        yield {
            "form": form, "cpu_s": round(seconds, 3), "times": round(seconds / best["none"], 2), "placed": placed[form],
            "loop_us": round(loop_us(), 1),
        }  # fmt: skip


def _nodes(count: int) -> Iterator[Any]:
    offers: dict[str, str | int] = {"cpu": "16", "memory": "64Gi", "pods": 110}
    for at in range(count):
        labels = {"kubernetes.io/hostname": f"n{at}", "topology.kubernetes.io/zone": f"z{at % 3}"}
        labels |= {"team": ("red", "blue")[at % 2]} if at % 4 else {}
        labels |= {"disk": "fast"} if at % 3 else {}
        yield a_node(f"n{at}", labels, allocatable=offers)


def _pods(count: int) -> Iterator[Any]:
    for at in range(count):
        asks = {"name": "c", "resources": {"requests": {"cpu": f"{100 + 10 * (at % 7)}m", "memory": "256Mi"}}}
        yield a_pod(f"p{at}", {"team": ("red", "blue", "green")[at % 3], "app": f"a{at % 40}"}, containers=[asks]).pod
