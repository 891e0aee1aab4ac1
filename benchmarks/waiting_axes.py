"""The axes of ``benchmarks growth`` whose size is the number of pods that a custom Permit plugin holds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final

from benchmarks.shapes import namespace, node, pod, requests
from moorage.api.core import Pod
from moorage.framework.registry import Handle
from moorage.framework.verdicts import Wait
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo

__all__ = ["waiting_allowed", "waiting_beside", "waiting_late"]

Work = Callable[[], object]
_CONFIG: Final = b"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {multiPoint: {enabled: [{name: Quorum}]}}}]
"""
_WAIT_S: Final = 60.0
#: How often a step that ends all waits can be called.
_REBUILT: Final = 4


class Quorum:
    """Permit holds the pods with the label ``waits``, and allows all of them when one comes whose value is ``last``."""

    name: Final = "Quorum"

    def __init__(self, args: object = None) -> None:
        self._handle: Handle | None = None

    def attach(self, handle: Handle) -> None:
        self._handle = handle

    def permit(self, state: object, pod: PodInfo, node: str) -> Wait | None:
        answer = pod.labels.get("waits")
        if answer is None or self._handle is None:
            return None
        if answer != "last":
            return Wait(_WAIT_S)
        for other in self._handle.waiting():
            other.allow(self.name)
        return None


def waiting_allowed(size: int) -> Callable[[], Work]:
    """Return a step that lets pods wait until the last one comes."""
    return _ending(size, "last", 1.0)


def waiting_late(size: int) -> Callable[[], Work]:
    """Return a step that lets pods wait until their time is up."""
    return _ending(size, "yes", _WAIT_S)


def _ending(size: int, last: str, until_s: float) -> Callable[[], Work]:
    clusters = [_cluster() for _ in range(_REBUILT)]

    def step() -> Work:
        simulation, pods = clusters.pop(), [*(_held(at) for at in range(size - 1)), _held(size, last)]
        return lambda: (simulation.load(pods), simulation.run(until_s))

    return step


def waiting_beside(size: int, pods: int) -> Callable[[], Work]:
    """Return a step that places plain pods while others wait."""
    simulation, numbers = _cluster(), count()
    simulation.load([_held(at) for at in range(size)])
    simulation.run(0.0)

    def step() -> Work:
        new = [pod(f"new-{next(numbers)}", resources=requests("1m", "1Mi")) for _ in range(pods)]
        return lambda: [(simulation.load([one]), simulation.run(0.0)) for one in new]

    return step


def _cluster() -> SimulatedCluster:
    simulation, _ = prepare(Options(_CONFIG, plugins=(Quorum,)))
    roomy = {"cpu": "9000", "memory": "90Ti", "pods": "90000"}
    simulation.load([namespace("default"), *(node(at, None, roomy) for at in range(20))])
    return simulation


def _held(at: int, answer: str = "yes") -> Pod:
    return pod(f"waits-{at}", {"waits": answer}, resources=requests("1m", "1Mi"))
