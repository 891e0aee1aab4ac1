"""The policies that FGD is compared with: BestFit, DotProduct, GpuPacking, GpuClustering and Random.

Each is a Score plugin, meant to be the only one in its profile. Amounts are those before the pod is placed.

Source  hkust-adsl/kubernetes-scheduler-simulator 8f3d641, pkg/simulator/plugin
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.framework.args import PluginArgs
from moorage.framework.handle import Handle
from moorage.framework.points import Attachable, PreScorePlugin, Reusable, ScoreExtensions, ScoreNodePlugin, ScorePlugin
from moorage.framework.reuse import Reuse, Scope
from moorage.plugins.gpu_sharing.devices import (
    GPU_COUNT,
    WHOLE,
    DeviceTable,
    GpuRequest,
    InvalidRequestError,
    device_table,
    gpu_request,
    score_signature,
)
from moorage.state.view import IntArray, NodeInfo, NodeView, PodInfo, Snapshot

#: The CPU (milli) and GPU (milli) of the largest node of the trace, by which amounts are divided.
MAX_CPU: Final = 128_000
MAX_GPU: Final = 8_000

_BY_NODE: Final = Reuse(Scope.NODE_PODS, signature=score_signature)


class _DeviceScore(ScorePlugin[PodInfo], Attachable):
    """The base of all policies: the table of devices."""

    def __init__(self) -> None:
        self._devices = DeviceTable()

    def attach(self, handle: Handle) -> None:
        self._devices = device_table(handle)


def _cpu_left(nodes: NodeView) -> npt.NDArray[np.float64]:
    left: npt.NDArray[np.float64] = (nodes.allocatable("cpu") - nodes.requested("cpu")).astype(np.float64)
    return left


class DotProductScore(_DeviceScore, Reusable):
    """Prefers nodes with a small dot product of the free and the requested amounts of CPU and GPU."""

    name = "DotProductScore"
    reuse = _BY_NODE

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        request = gpu_request(pod)
        cpu = _cpu_left(nodes) / MAX_CPU * (pod.needs.nonzero_cpu / MAX_CPU)
        gpu = self._devices.totals(nodes) / MAX_GPU * ((request.total if request else 0) / MAX_GPU)
        scores: IntArray = (100 * (1 - (cpu + gpu) / 2)).astype(np.int64)
        return scores


class BestFitScore(_DeviceScore, ScoreExtensions[PodInfo]):
    """Prefers nodes with the least CPU and GPU left with the pod; normalizes to 0-100 over the feasible nodes."""

    name = "BestFitScore"

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        request = gpu_request(pod)
        cpu = 0.5 * (_cpu_left(nodes) - pod.needs.nonzero_cpu) / MAX_CPU
        gpu = 0.5 * (self._devices.totals(nodes) - (request.total if request else 0)) / MAX_GPU
        scores: IntArray = (100 * (1 - (cpu + gpu))).astype(np.int64)
        return scores

    def normalize(self, pod: PodInfo, scores: IntArray) -> IntArray:
        lowest, highest = int(scores.min()), int(scores.max())
        if lowest == highest:
            return np.zeros_like(scores)
        stretched: IntArray = (scores - lowest) * 100 // (highest - lowest)
        return stretched


class GpuClusteringScore(_DeviceScore, ScoreNodePlugin[PodInfo], Reusable):
    """Prefers nodes whose GPU pods are of the pod's class: parts of a device, or the same number of whole devices."""

    name = "GpuClusteringScore"
    reuse = _BY_NODE

    def __init__(self) -> None:
        super().__init__()
        #: Row → the free amounts, a list that the device table replaces when pods change, and the classes of the pods.
        self._classes: dict[int, tuple[list[int], frozenset[str]]] = {}

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        request = gpu_request(pod)
        if request is None:
            return nodes.zeros()
        used = MAX_GPU - self._devices.totals(nodes)
        bonus = np.array([self._bonus(request, node) for node in nodes], dtype=np.int64)
        scores: IntArray = 25 * used // MAX_GPU + bonus
        return scores

    def score_node(self, pod: PodInfo, node: NodeInfo) -> int:
        request = gpu_request(pod)
        if request is None:
            return 0
        return 25 * (MAX_GPU - sum(self._devices.of(node))) // MAX_GPU + self._bonus(request, node)

    def _bonus(self, request: GpuRequest, node: NodeInfo) -> int:
        classes = self._classes_on(node)
        if not classes:
            return 25
        if request.affinity_class not in classes:
            return 0
        return 75 if len(classes) == 1 else 50

    def _classes_on(self, node: NodeInfo) -> frozenset[str]:
        """Return the classes of the GPU pods on a node; cached while the device table has the same list for the node."""
        left = self._devices.of(node)
        known = self._classes.get(node.row)
        if known is None or known[0] is not left:
            found = frozenset(found.affinity_class for found in map(_request_of, node.pods) if found is not None)
            known = self._classes[node.row] = left, found
        return known[1]


def _request_of(pod: PodInfo) -> GpuRequest | None:
    try:
        return gpu_request(pod)
    except InvalidRequestError:
        return None


class GpuPackingScore(_DeviceScore, ScoreNodePlugin[PodInfo], Reusable):
    """Prefers devices in use, then unused devices of nodes in use, then unused nodes."""

    name = "GpuPackingScore"
    reuse = _BY_NODE

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        request = gpu_request(pod)
        if request is None:
            return nodes.zeros()
        counts = nodes.allocatable(GPU_COUNT).tolist()
        present = self._devices.present(nodes)
        found = [_packing(request.milli, request.count, *node) for node in zip(present, counts, strict=True)]
        return np.array(found, dtype=np.int64)

    def score_node(self, pod: PodInfo, node: NodeInfo) -> int:
        request = gpu_request(pod)
        if request is None:
            return 0
        return _packing(request.milli, request.count, self._devices.present_on(node), node.allocatable(GPU_COUNT))


@lru_cache(1 << 16)
def _packing(milli: int, count: int, present: tuple[int, ...], devices: int) -> int:
    """Score a node. ``present`` are the free milli of the devices that have any, in ascending order."""
    unused = present.count(WHOLE)
    if unused == devices:
        return max(33 - unused, unused)
    taken = [left for left in present if left >= milli][:count]
    fresh = taken.count(WHOLE)
    if fresh:
        return max(50 - fresh, 33)
    return max(100 - sum(left * 100 // WHOLE for left in taken) // 10, 50)


class RandomScoreArgs(PluginArgs, frozen=True):
    """``seed``: the seed of the random choices."""

    seed: int = 0


class RandomScore(PreScorePlugin[str], ScorePlugin[str]):
    """Prefers one feasible node at random."""

    name = "RandomScore"
    Args = RandomScoreArgs

    def __init__(self, args: RandomScoreArgs | None = None) -> None:
        self._seed = (args or RandomScoreArgs()).seed

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> str:
        drawn = random.Random(f"{self._seed}/{pod.uid}/node").randrange(len(feasible))  # noqa: S311
        return feasible.table.nodes[int(feasible.row_numbers[drawn])].metadata.name

    def score(self, drawn: str, nodes: NodeView) -> IntArray:
        scores: IntArray = np.where(nodes.named([drawn]), 100, 0).astype(np.int64)
        return scores
