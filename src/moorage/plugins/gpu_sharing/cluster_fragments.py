"""The fragmentation of a whole cluster at one moment, and the class of any pod.

A recorder of a simulation over time samples it: ``StateRecorder(extra={"fragments": lambda sim: ...})``.

Source  hkust-adsl/kubernetes-scheduler-simulator 8f3d641, pkg/simulator/core.go, ClusterAnalysis
"""

from __future__ import annotations

from typing import Final

import numpy as np

from moorage.api.core import Pod
from moorage.framework.handle import Handle
from moorage.plugins.gpu_sharing.devices import device_table
from moorage.plugins.gpu_sharing.fragmentation import CASES, FragmentModel, PodClass
from moorage.plugins.gpu_sharing.requests import GPU_MODEL, gpu_request
from moorage.state.pod_info import PodInfo

__all__ = ["cluster_fragments", "pod_class"]

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
