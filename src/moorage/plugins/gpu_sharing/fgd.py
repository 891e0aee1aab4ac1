"""FGDScore: prefer nodes whose fragmentation grows least when the pod is placed there (fragmentation gradient descent).

Score     ``100 * sigmoid((F before - F after) / 1000)``, truncated; F is the fragment amount of the node in milli. For a pod
          that requests part of a device, every device is tried, and the best score counts
Args      ``typicalPods``: the classes of pods that make up the workload, as ``fragmentation.typical_pods`` returns them
Speed     the fragment amount depends on the free amounts of a node's devices and their model (together called a form), and on
          which typical pods the node has enough CPU for (a step of CPU). It is computed once for each form and step
Source    "Beware of Fragmentation" (USENIX ATC 2023); hkust-adsl/kubernetes-scheduler-simulator 8f3d641, fgd-score.go
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from moorage.framework.args import PluginArgs
from moorage.framework.handle import Handle
from moorage.framework.points import Attachable, Reusable, Reuse, Scope, ScoreNodePlugin, ScorePlugin
from moorage.plugins.gpu_sharing import devices
from moorage.plugins.gpu_sharing.fragmentation import FragmentModel, PodClass, TypicalPod
from moorage.state.view import IntArray, NodeInfo, NodeView, PodInfo

#: The most forms of nodes that are cached, and the most scores for each request of devices. A run of ten thousand pods needs
#: about ten thousand forms and a hundred thousand scores.
_MOST_KEPT: Final = 1 << 20
#: Amounts are computed for this many steps of CPU together, not for all: few steps of a form are ever needed.
_STEPS_AT_ONCE: Final = 8


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


#: A pod's request of devices: milli per device, number of devices.
_Wanted = tuple[int, int]
#: The devices of a node: the free milli of those that have any, in ascending order; their model.
_Form = tuple[tuple[int, ...], str]


class _Score(NamedTuple):
    """The score of a node, and the free amounts of the devices that give it this score."""

    score: int
    values: tuple[int, ...] = ()


class _Forms:
    """Forms of nodes as numbers, with their fragment amounts by the step of the free CPU."""

    def __init__(self, model: FragmentModel) -> None:
        self._model = model
        self._numbers: dict[_Form, int] = {}
        self._forms: list[_Form] = []
        #: (form, group of steps) → the amount at each of the ``_STEPS_AT_ONCE`` steps of the group.
        self._amounts: dict[tuple[int, int], list[float]] = {}
        self._placed: dict[tuple[_Wanted, int], list[tuple[int, int]]] = {}

    def __len__(self) -> int:
        return len(self._forms)

    def number(self, form: _Form) -> int:
        found = self._numbers.get(form)
        if found is None:
            found = self._numbers[form] = len(self._forms)
            self._forms.append(form)
        return found

    def _amount(self, number: int, step: int) -> float:
        part, at = divmod(step, _STEPS_AT_ONCE)
        found = self._amounts.get((number, part))
        if found is None:
            steps = slice(part * _STEPS_AT_ONCE, (part + 1) * _STEPS_AT_ONCE)
            found = self._amounts[number, part] = self._model.amounts_by_cpu(*self._forms[number], steps)
        return found[at]

    def score(self, wanted: _Wanted, number: int, step: int, step_after: int) -> _Score:
        """Return the score of a node. ``step`` and ``step_after``: of its free CPU before and after placing the pod."""
        placed = self._after(wanted, number)
        before = self._amount(number, step)
        scores = [int(100 / (1 + math.exp((self._amount(after, step_after) - before) / devices.WHOLE))) for _, after in placed]
        best = max(scores)
        return _Score(best, tuple(value for (value, _), score in zip(placed, scores, strict=True) if score == best))

    def _after(self, wanted: _Wanted, number: int) -> list[tuple[int, int]]:
        """Return the free amounts of the devices that the pod may get, each with the number of the node's form afterwards."""
        found = self._placed.get((wanted, number))
        if found is None:
            left, model = self._forms[number]
            found = [(value, self.number((after, model))) for value, after in _placements(wanted, left)]
            self._placed[wanted, number] = found
        return found


class FGDScore(ScorePlugin[PodInfo], ScoreNodePlugin[PodInfo], Attachable, Reusable):
    name = "FGDScore"
    Args = FGDScoreArgs
    reuse = Reuse(Scope.NODE_PODS, signature=devices.score_signature)

    def __init__(self, args: FGDScoreArgs | None = None) -> None:
        given = (args or FGDScoreArgs()).typical_pods
        self._model = FragmentModel(
            [TypicalPod(PodClass(one.cpu_milli, one.gpu_milli, one.gpu_count, one.gpu_models), one.frequency) for one in given]
        )
        self._steps: list[int] = self._model.cpu_steps.tolist()
        self._base = len(self._steps) + 1
        self._devices = devices.DeviceTable()
        #: The ``numbering`` of the device table that ``_form_of`` is valid for.
        self._numbering = self._devices.numbering
        self._forget()

    def attach(self, handle: Handle) -> None:
        self._devices = devices.device_table(handle)
        self._devices.choosers[self.name] = self.device_of
        self._form_of.clear()

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        known = self._known(wanted := _wanted(pod))
        forms = self._forms_of(nodes)
        cpu = nodes.allocatable("cpu") - nodes.requested("cpu")
        before, after = np.searchsorted(self._model.cpu_steps, (cpu, cpu - pod.needs.nonzero_cpu), side="right")
        keys = ((forms * self._base + before) * self._base + after).tolist()
        scores = list(map(known.get, keys))
        if None in scores:
            for key, case in zip(keys, zip(forms.tolist(), before.tolist(), after.tolist(), strict=True), strict=True):
                if key not in known:
                    known[key] = self._forms.score(wanted, *case).score
            scores = list(map(known.get, keys))
        return np.array(scores, dtype=np.int64)

    def _forms_of(self, nodes: NodeView) -> IntArray:
        """Return the number of each node's form."""
        amounts = self._devices.numbers(nodes)
        if self._numbering != self._devices.numbering:
            self._numbering = self._devices.numbering
            self._form_of.clear()
        labels = nodes.label(devices.GPU_MODEL)
        models = [value or "" for value in labels.values]
        numbers = np.array([self._models.setdefault(model, len(self._models)) for model in models], dtype=np.int64)
        keys = (amounts << 32 | numbers[nodes.ids(labels)]).tolist()
        forms = list(map(self._form_of.get, keys))
        if None in forms:
            names = list(self._models)
            for key in keys:
                if key not in self._form_of:
                    form = self._devices.with_number(key >> 32), names[key & 0xFFFF_FFFF]
                    self._form_of[key] = self._forms.number(form)
            forms = list(map(self._form_of.get, keys))
        return np.array(forms, dtype=np.int64)

    def score_node(self, pod: PodInfo, node: NodeInfo) -> int:
        known = self._known(wanted := _wanted(pod))
        cpu = node.allocatable("cpu") - node.requested("cpu")
        case = form, before, after = self._case(pod, cpu, self._devices.present_on(node), node)
        key = (form * self._base + before) * self._base + after
        score = known.get(key)
        if score is None:
            score = known[key] = self._forms.score(wanted, *case).score
        return score

    def device_of(self, pod: PodInfo, request: devices.GpuRequest, left: Sequence[int], node: NodeInfo) -> int:
        """Return the index of the device that gave the node its score; the pod is assumed on the node already."""
        cpu = node.allocatable("cpu") - node.requested("cpu") + pod.requests.get("cpu", 0)
        values = self._forms.score(_wanted(pod), *self._case(pod, cpu, devices.present(left), node)).values
        return next(device for device, milli in enumerate(left) if milli in values)

    def _case(self, pod: PodInfo, cpu: int, left: tuple[int, ...], node: NodeInfo) -> tuple[int, int, int]:
        """Return the number of a node's form, and its steps of CPU before the pod is placed and after."""
        form = self._forms.number((left, node.labels.get(devices.GPU_MODEL, "")))
        return form, bisect_right(self._steps, cpu), bisect_right(self._steps, cpu - pod.needs.nonzero_cpu)

    def _known(self, wanted: _Wanted) -> dict[int, int]:
        """Return the cached scores for a request of devices, by ``(form * base + step before) * base + step after``."""
        known = self._scores.setdefault(wanted, {})
        if len(known) <= _MOST_KEPT and len(self._forms) <= _MOST_KEPT:
            return known
        self._forget()
        return self._scores.setdefault(wanted, {})

    def _forget(self) -> None:
        self._forms = _Forms(self._model)
        self._scores: dict[_Wanted, dict[int, int]] = {}
        #: (number of a node's free amounts << 32) | number of its model → its form.
        self._form_of: dict[int, int] = {}
        self._models: dict[str, int] = {}


def _wanted(pod: PodInfo) -> _Wanted:
    request = devices.gpu_request(pod)
    return (0, 0) if request is None else (request.milli, request.count)


def _placements(wanted: _Wanted, left: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """Return each way to place a pod: the free amount of the device it gets, and the free amounts of all devices afterwards.

    A request of whole devices gets unused ones, which are last. A pod without a choice has one entry, with amount 0.
    """
    milli, count = wanted
    if milli == devices.WHOLE:
        return [(0, left[: max(0, len(left) - count)])]
    found = [(value, _without(left, value, milli)) for value in dict.fromkeys(left) if milli and value >= milli]
    return found or [(0, left)]


def _without(left: tuple[int, ...], value: int, milli: int) -> tuple[int, ...]:
    after = list(left)
    after.remove(value)
    if value > milli:
        insort(after, value - milli)
    return tuple(after)
