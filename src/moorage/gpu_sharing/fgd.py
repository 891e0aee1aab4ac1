"""FGDScore: prefer nodes whose fragmentation grows least when the pod is placed there (fragmentation gradient descent).

Score     ``100 * sigmoid((F before - F after) / 1000)``, truncated; F is the fragment amount of the node in milli. For a share,
          every device is tried, and the best score counts
Args      ``typicalPods``: what usually comes, as ``fragmentation.typical_pods`` gives it
Source    "Beware of Fragmentation" (USENIX ATC 2023); hkust-adsl/kubernetes-scheduler-simulator 8f3d641, fgd-score.go
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from moorage.framework.args import PluginArgs
from moorage.framework.handle import Handle
from moorage.framework.points import Attachable, Reusable, Reuse, Scope, ScoreNodePlugin, ScorePlugin
from moorage.gpu_sharing.devices import DeviceTable, device_table
from moorage.gpu_sharing.fragmentation import FragmentModel, PodClass, TypicalPod
from moorage.gpu_sharing.requests import GPU_MODEL, WHOLE, GpuRequest, gpu_request, score_signature
from moorage.state.columns import IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo, NodeView

__all__ = ["FGDScore", "FGDScoreArgs", "TypicalPodArgs"]

#: The states of nodes whose results are kept; a run of ten thousand pods meets some hundred thousand.
_MOST_KEPT = 1 << 20


class TypicalPodArgs(PluginArgs, frozen=True):
    """A class of pods and its frequency. ``gpu_models``: the allowed models as written (``A|B``); "": any."""

    cpu_milli: int = 0
    gpu_milli: int = 0
    gpu_count: int = 0
    gpu_models: str = ""
    frequency: float = 0.0


class FGDScoreArgs(PluginArgs, frozen=True):
    """``typical_pods``: the classes that cover the workload, most frequent first."""

    typical_pods: tuple[TypicalPodArgs, ...] = ()


#: A node as far as its fragmentation goes: milli-CPU left, milli left on its devices in ascending order, model. Devices with
#: nothing left make no difference and are left out.
_State = tuple[int, tuple[int, ...], str]
#: A pod as far as scores go: milli-CPU, milli per device, devices.
_Kind = tuple[int, int, int]


class _Score(NamedTuple):
    """The score of a node, and the amounts left of the devices that reach it."""

    score: int
    values: tuple[int, ...] = ()


class FGDScore(ScorePlugin[PodInfo], ScoreNodePlugin[PodInfo], Attachable, Reusable):
    """The plugin."""

    name = "FGDScore"
    Args = FGDScoreArgs
    reuse = Reuse(Scope.NODE_PODS, signature=score_signature)

    def __init__(self, args: FGDScoreArgs | None = None) -> None:
        given = (args or FGDScoreArgs()).typical_pods
        self._model = FragmentModel(
            [TypicalPod(PodClass(one.cpu_milli, one.gpu_milli, one.gpu_count, one.gpu_models), one.frequency) for one in given]
        )
        self._devices = DeviceTable()
        self._scores: dict[_Kind, dict[_State, _Score]] = {}
        self._amounts: dict[_State, float] = {}

    def attach(self, handle: Handle) -> None:
        self._devices = device_table(handle)
        self._devices.chooser = self.device_of

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        kind = _kind_of(pod)
        states = self._states(nodes)
        known = self._scores.setdefault(kind, {})
        missing = [state for state in dict.fromkeys(states) if state not in known]
        if len(known) > _MOST_KEPT:
            known.clear()
            missing = list(dict.fromkeys(states))
        if missing:
            known.update(zip(missing, self._scored(kind, missing), strict=True))
        return np.fromiter((known[state].score for state in states), dtype=np.int64, count=len(states))

    def score_node(self, pod: PodInfo, node: NodeInfo) -> int:
        kind = _kind_of(pod)
        cpu = node.allocatable("cpu") - node.requested("cpu")
        state = cpu, _present(self._devices.of(node)), node.labels.get(GPU_MODEL, "")
        known = self._scores.setdefault(kind, {})
        found = known.get(state)
        if found is None:
            [found] = self._scored(kind, [state])
            known[state] = found
        return found.score

    def device_of(self, pod: PodInfo, request: GpuRequest, left: list[int], node: NodeInfo) -> int:
        """Return the device that gave the node its score; the pod is assumed on the node already."""
        cpu = node.allocatable("cpu") - node.requested("cpu") + pod.requests.get("cpu", 0)
        [found] = self._scored(_kind_of(pod), [(cpu, _present(left), node.labels.get(GPU_MODEL, ""))])
        return next(device for device, milli in enumerate(left) if milli in found.values)

    def _states(self, nodes: NodeView) -> list[_State]:
        cpu = (nodes.allocatable("cpu") - nodes.requested("cpu")).tolist()
        left = np.sort(self._devices.left(nodes), axis=1)
        empty = (left == 0).sum(axis=1).tolist()
        present = [tuple(row[first:]) for row, first in zip(left.tolist(), empty, strict=True)]
        labels = nodes.label(GPU_MODEL)
        models = [labels.values[label] or "" for label in nodes.ids(labels).tolist()]
        return list(zip(cpu, present, models, strict=True))

    # -- scores --------------------------------------------------------------------------------------------------------------

    def _scored(self, kind: _Kind, states: Sequence[_State]) -> list[_Score]:
        """Return the scores of nodes; all hypothetical placements are worked out at once."""
        after: list[_State] = []
        spans: list[tuple[int, tuple[int, ...]]] = []
        for state in states:
            values = _values(kind, state)
            spans.append((len(after), values))
            after += [_with_share(kind, state, value) for value in values] or [_with_whole(kind, state)]
        amounts = self._amounts_of([*after, *states])
        before = amounts[len(after) :]
        return [
            _best(before[i], amounts[start : start + max(1, len(values))], values) for i, (start, values) in enumerate(spans)
        ]

    def _amounts_of(self, states: Sequence[_State]) -> list[float]:
        if len(self._amounts) > _MOST_KEPT:
            self._amounts.clear()
        missing = [state for state in dict.fromkeys(states) if state not in self._amounts]
        if missing:
            cpu = np.array([state[0] for state in missing], dtype=np.int64)
            width = max(1, *(len(state[1]) for state in missing))
            left = np.array([(0,) * (width - len(state[1])) + state[1] for state in missing], dtype=np.int64)
            found = self._model.amounts(cpu, left, [state[2] for state in missing])
            self._amounts.update(zip(missing, found.tolist(), strict=True))
        return [self._amounts[state] for state in states]


def _kind_of(pod: PodInfo) -> _Kind:
    request = gpu_request(pod)
    cpu = pod.needs.nonzero_cpu
    return (cpu, 0, 0) if request is None else (cpu, request.milli, request.count)


def _values(kind: _Kind, state: _State) -> tuple[int, ...]:
    """Return the distinct amounts left of the devices that a share may take; () for pods without a share."""
    _, milli, _ = kind
    return tuple(dict.fromkeys(left for left in state[1] if left >= milli)) if 0 < milli < WHOLE else ()


def _with_share(kind: _Kind, state: _State, value: int) -> _State:
    left = list(state[1])
    left.remove(value)
    if value > kind[1]:
        insort(left, value - kind[1])
    return state[0] - kind[0], tuple(left), state[2]


def _with_whole(kind: _Kind, state: _State) -> _State:
    """Return the node without the devices that the pod takes: the unused ones, which are last in ascending order."""
    count = kind[2] if kind[1] >= WHOLE else 0
    return state[0] - kind[0], state[1][: len(state[1]) - count], state[2]


def _present(left: Sequence[int]) -> tuple[int, ...]:
    """Return what is left on the devices that have anything left, in ascending order."""
    return tuple(sorted(milli for milli in left if milli))


def _best(before: float, after: Sequence[float], values: tuple[int, ...]) -> _Score:
    scores = [int(100 / (1 + math.exp((one - before) / WHOLE))) for one in after]
    best = max(scores)
    return _Score(best, tuple(value for value, score in zip(values, scores, strict=False) if score == best))
