"""Fragmentation of GPUs: how much of the free GPU capacity the typical pods of a workload cannot use.

``typical_pods`` returns the classes of pods that make up most of a workload, with their frequencies. ``fragments`` divides the
free milli of each node into seven cases by whether typical pods can use them; ``amount`` sums all cases but SATISFIED.
Arithmetic is float64, in the order of the classes.

Source  "Beware of Fragmentation" (USENIX ATC 2023), section 4; hkust-adsl/kubernetes-scheduler-simulator 8f3d641
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.api.core import Pod
from moorage.framework.handle import Handle
from moorage.plugins.gpu_sharing.devices import GPU_MODEL, device_table, gpu_request
from moorage.state.view import BoolArray, IntArray, PodInfo

FloatArray = npt.NDArray[np.float64]


class Case(IntEnum):
    """Whether a class of pods can run on a node, and which resource is short if not."""

    LACK_BOTH = 0
    LACK_GPU = 1
    SATISFIED = 2
    LACK_CPU = 3
    XL_SATISFIED = 4
    XR_LACK_CPU = 5
    NO_ACCESS = 6


CASES: Final = ("q1_lack_both", "q2_lack_gpu", "q3_satisfied", "q4_lack_cpu", "xl_satisfied", "xr_lack_cpu", "no_access")


_ALL: Final = slice(None)
_SATISFIED, _LACK_GPU = int(Case.SATISFIED), int(Case.LACK_GPU)
_LOST: Final = [int(case) for case in Case if case is not Case.SATISFIED]
#: The case, indexed by four bits from high to low: requests GPU, may use the model, fits the GPUs, fits the CPU.
_CASE_OF: Final = np.array(
    [
        *(Case.XR_LACK_CPU, Case.XL_SATISFIED) * 4,
        *(Case.NO_ACCESS,) * 4,
        *(Case.LACK_BOTH, Case.LACK_GPU, Case.LACK_CPU, Case.SATISFIED),
    ],
    dtype=np.int64,
)


class PodClass(NamedTuple):
    """Pods with equal requests: milli-CPU, milli per device, number of devices, and the allowed models as written (``A|B``)."""

    cpu_milli: int
    gpu_milli: int
    gpu_count: int
    gpu_models: str = ""


class TypicalPod(NamedTuple):
    pod: PodClass
    frequency: float


def typical_pods(pods: Iterable[PodClass], *, covered: float = 0.95) -> tuple[TypicalPod, ...]:
    """Return the most frequent classes that together make up the share ``covered`` of all pods; frequencies sum to 1.

    Classes with equal counts are in descending order. At least one class is returned if there are pods.
    """
    counts = Counter(pods)
    total = counts.total()
    ordered = sorted(counts.items(), key=lambda item: (item[1], item[0]), reverse=True)
    taken: list[tuple[PodClass, int]] = []
    reached = 0
    for pod, count in ordered:
        if taken and reached >= covered * total:
            break
        taken.append((pod, count))
        reached += count
    return tuple(TypicalPod(pod, (count / total) / (reached / total)) for pod, count in taken)


class FragmentModel:
    """Typical pods as columns. In its methods ``models`` are names of GPU models, "" for nodes without a model."""

    def __init__(self, typical: Sequence[TypicalPod]) -> None:
        self.typical = tuple(typical)
        self._cpu = np.array([one.pod.cpu_milli for one in typical], dtype=np.int64)
        self._milli = np.array([one.pod.gpu_milli for one in typical], dtype=np.int64)
        self._count = np.array([one.pod.gpu_count for one in typical], dtype=np.int64)
        self._frequency = np.array([one.frequency for one in typical], dtype=np.float64)
        self._allowed = [frozenset(model for model in one.pod.gpu_models.split("|") if model) for one in typical]
        self._on_gpu = np.where(self._milli > 0, 2, 0)
        #: The distinct milli-CPU requests of the classes, ascending. Between two of them, more free CPU makes no difference.
        self.cpu_steps: IntArray = np.unique(self._cpu)
        self._fits_cpu_at = np.concatenate(([-1], self.cpu_steps)) >= self._cpu[:, None]
        self._access: dict[str, BoolArray] = {}

    def access(self, model: str) -> BoolArray:
        """Return a mask of the typical pods that may use a model of GPU."""
        found = self._access.get(model)
        if found is None:
            found = np.array([not allowed or model in allowed for allowed in self._allowed], dtype=bool)
            self._access[model] = found
        return found

    def fragments(self, cpu: IntArray, left: IntArray, models: Sequence[str]) -> FloatArray:
        """Return the free milli in each case, shape (nodes, 7).

        ``cpu``   free milli-CPU, shape (nodes,)
        ``left``  free milli of each device, shape (nodes, devices)
        """
        by_model = {model: self.access(model) for model in set(models)}
        may = np.array([by_model[model] for model in models], dtype=np.int64).reshape(len(models), len(self.typical)).T
        devices = left.T
        enough = devices[None, :, :] >= self._milli[:, None, None]
        total = left.sum(axis=1)
        useless = np.where(enough, 0, devices).sum(axis=1)
        fits_gpu = enough.sum(axis=1) >= self._count[:, None]
        fits_cpu = cpu >= self._cpu[:, None]
        case = _CASE_OF.take(((self._on_gpu[:, None] + may) * 2 + fits_gpu) * 2 + fits_cpu)
        parts = np.zeros((len(self.typical), len(CASES), len(cpu)), dtype=np.float64)
        np.put_along_axis(parts, case[:, None, :], (self._frequency[:, None] * total)[:, None, :], axis=1)
        satisfied = case == _SATISFIED
        parts[:, _SATISFIED] = np.where(satisfied, self._frequency[:, None] * (total - useless), 0.0)
        parts[:, _LACK_GPU] += np.where(satisfied, self._frequency[:, None] * useless, 0.0)
        found: FloatArray = np.add.reduce(parts, axis=0).T  # along the first axis NumPy adds in order
        return found

    def amounts(self, cpu: IntArray, left: IntArray, models: Sequence[str]) -> FloatArray:
        """Return the fragment amount F of each node in milli, shape (nodes,)."""
        return amount(self.fragments(cpu, left, models))

    def amounts_by_cpu(self, left: Sequence[int], model: str, steps: slice = _ALL) -> list[float]:
        """Return the fragment amounts of a node at all or some ``steps`` of its free CPU.

        Item i is the amount while exactly i of ``cpu_steps`` are at most the free milli-CPU. The results are those of
        ``amounts``, to the last bit.
        """
        devices = np.sort(np.array(left, dtype=np.int64))
        too_small = np.searchsorted(devices, self._milli)
        whole = self._frequency * sum(left)
        useless = self._frequency * np.concatenate(([0], np.cumsum(devices)))[too_small]
        fits_gpu = len(devices) - too_small >= self._count
        kind = (self._on_gpu + self.access(model)) * 2 + fits_gpu
        case = _CASE_OF[2 * kind + 1]
        satisfied = case == _SATISFIED
        case[satisfied] = _LACK_GPU
        with_cpu = np.where(satisfied, useless, whole)
        fits_cpu = self._fits_cpu_at[:, steps]
        count = fits_cpu.shape[1]
        cells = np.where(fits_cpu, case[:, None], _CASE_OF[2 * kind][:, None]) * count + np.arange(count)
        weights = np.where(fits_cpu, with_cpu[:, None], whole[:, None])
        # bincount adds the classes in order, as ``fragments`` does; the case SATISFIED stays empty
        by_case = np.bincount(cells.ravel(), weights.ravel(), len(CASES) * count).reshape(len(CASES), count)
        found: list[float] = np.add.reduce(by_case, axis=0).tolist()
        return found


def amount(fragments: FloatArray) -> FloatArray:
    """Return the fragment amount of each row of ``fragments``: the sum of all cases but SATISFIED."""
    found: FloatArray = np.add.reduce(fragments.T[_LOST], axis=0)
    return found


# -- cluster fragments -------------------------------------------------------------------------------------------------
# The fragmentation of a whole cluster at one moment, and the class of any pod.
#
# A recorder of a simulation over time samples it: ``StateRecorder(extra={"fragments": lambda sim: ...})``.
#
# Source  hkust-adsl/kubernetes-scheduler-simulator 8f3d641, pkg/simulator/core.go, ClusterAnalysis

#: The number of nodes whose fragments are computed together.
_AT_ONCE: Final = 512


def cluster_fragments(handle: Handle, model: FragmentModel) -> dict[str, float]:
    """Return case → the free milli of all devices in that case. All cases but ``q3_satisfied`` are fragments.

    ``handle``  the scheduler; for a simulation, ``simulation.engine.scheduler``
    """
    nodes, devices = handle.snapshot.nodes, device_table(handle)
    cpu, free = nodes.allocatable("cpu") - nodes.requested("cpu"), devices.left(nodes)
    labels = nodes.label(GPU_MODEL)
    known = [value or "" for value in labels.values]
    models = [known[number] for number in nodes.ids(labels).tolist()]
    total = np.zeros(len(CASES))
    for start in range(0, len(models), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        total += model.fragments(cpu[part], free[part], models[part]).sum(axis=0)
    return dict(zip(CASES, total.tolist(), strict=True))


def pod_class(pod: Pod) -> PodClass:
    """Return the class of a pod, for ``typical_pods``.

    Raises  InvalidRequestError
    """
    info = PodInfo(pod)
    request = gpu_request(info)
    cpu = info.needs.nonzero_cpu
    if request is None:
        return PodClass(cpu, 0, 0)
    return PodClass(cpu, request.milli, request.count, pod.metadata.annotations.get(GPU_MODEL, ""))
