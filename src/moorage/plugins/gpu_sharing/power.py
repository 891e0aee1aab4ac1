"""PowerScore: prefer nodes whose power grows least when the pod is placed there (the policy PWR).

Power     of a node's CPUs: each package of 32 vCPU that is in use draws 120 W, each other one 15 W; the requests of its pods
          fill as few packages as they can. Of its GPUs: a device in use draws its full power, each other one its idle power
Score     the growth in watts, turned so that the least is 100 and the most 0 over the feasible nodes
Device    of a pod that requests part of one: with ``gpuSelMethod: PowerScore``, a device in use, the fullest that fits
Source    "Power- and Fragmentation-aware Online Scheduling for GPU Datacenters" (CCGrid 2025)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from moorage.framework.args import PluginArgs
from moorage.framework.handle import Handle
from moorage.framework.points import Attachable, Reusable, Reuse, Scope, ScoreExtensions, ScorePlugin
from moorage.plugins.gpu_sharing import devices
from moorage.state.view import IntArray, NodeInfo, NodeView, PodInfo

#: Watts of a GPU by its model, idle and in use, as is typical of it. G2 and G3 are models that the trace does not name.
GPU_WATTS: Final[Mapping[str, tuple[int, int]]] = {
    "T4": (10, 70), "P100": (25, 250), "V100M16": (30, 300), "V100M32": (30, 300), "A10": (30, 150), "G2": (30, 150),
    "G3": (50, 400),
}  # fmt: skip
#: Of models without an entry.
OTHER_WATTS: Final = (30, 300)
#: The vCPU of a package (two for each core), in milli, and its watts idle and in use.
PACKAGE_MILLI: Final = 32_000
PACKAGE_WATTS: Final = (15, 120)


def cpu_watts(used_milli: int, whole_milli: int) -> int:
    """Return the power of a node's packages."""
    packages, used = -(-whole_milli // PACKAGE_MILLI), -(-used_milli // PACKAGE_MILLI)
    idle, full = PACKAGE_WATTS
    return used * full + (packages - used) * idle


def gpu_watts(left: Sequence[int], model: str, watts: Mapping[str, tuple[int, int]] = GPU_WATTS) -> int:
    """Return the power of a node's devices, of which so much is left."""
    idle, full = watts.get(model, OTHER_WATTS)
    return sum(idle if milli == devices.WHOLE else full for milli in left)


class GpuWatts(PluginArgs, frozen=True):
    """The watts of a model of GPU, idle and in use."""

    model: str = ""
    idle: int = 0
    full: int = 0


class PowerScoreArgs(PluginArgs, frozen=True):
    """``gpus``: the watts of models, in place of those that the plugin knows."""

    gpus: tuple[GpuWatts, ...] = ()


class PowerScore(ScorePlugin[PodInfo], ScoreExtensions[PodInfo], Attachable, Reusable):
    name = "PowerScore"
    Args = PowerScoreArgs
    reuse = Reuse(Scope.NODE_PODS, signature=devices.score_signature)

    def __init__(self, args: PowerScoreArgs | None = None) -> None:
        given = {one.model: (one.idle, one.full) for one in (args or PowerScoreArgs()).gpus}
        self._watts = {**GPU_WATTS, **given}
        self._devices = devices.DeviceTable()

    def attach(self, handle: Handle) -> None:
        self._devices = devices.device_table(handle)
        self._devices.choosers[self.name] = self.device_of

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        request = devices.gpu_request(pod)
        used = nodes.requested("cpu")
        before, after = (-(-amount // PACKAGE_MILLI) for amount in (used, used + pod.needs.nonzero_cpu))
        grown: IntArray = (after - before) * (PACKAGE_WATTS[1] - PACKAGE_WATTS[0])
        if request is not None:
            labels = nodes.label(devices.GPU_MODEL)
            steps = np.array([self._step(value or "") for value in labels.values], dtype=np.int64)[nodes.ids(labels)]
            grown = grown + steps * self._newly_used(request, nodes)
        return -grown

    def _step(self, model: str) -> int:
        idle, full = self._watts.get(model, OTHER_WATTS)
        return full - idle

    def _newly_used(self, request: devices.GpuRequest, nodes: NodeView) -> IntArray:
        """Return how many unused devices of each node the pod would use."""
        if not request.is_share:
            return np.full(len(nodes), request.count, dtype=np.int64)
        present = self._devices.present(nodes)
        shared = [any(request.milli <= milli < devices.WHOLE for milli in one) for one in present]
        return np.where(shared, 0, 1).astype(np.int64)

    def normalize(self, pod: PodInfo, scores: IntArray) -> IntArray:
        lowest, highest = int(scores.min()), int(scores.max())
        if lowest == highest:
            return np.full_like(scores, 100)
        stretched: IntArray = (scores - lowest) * 100 // (highest - lowest)
        return stretched

    def device_of(self, pod: PodInfo, request: devices.GpuRequest, left: Sequence[int], node: NodeInfo) -> int:
        """Return the device that adds least power: one in use, the fullest that fits."""
        fitting = [device for device, milli in enumerate(left) if milli >= request.milli]
        return min(fitting, key=lambda device: (left[device] == devices.WHOLE, left[device], device))
