"""OpenGpuShare: fit pods on parts of GPUs, and assign devices to each pod.

Reads     a pod's annotations ``alibabacloud.com/gpu-milli``, ``gpu-count``, ``gpu-card-model`` and ``gpu-index``; a node's
          ``alibabacloud.com/gpu-count`` and its label ``alibabacloud.com/gpu-card-model``; the devices of the pods on it
Rejects   nodes with too few devices that have enough free; evicting pods may help, unless the node has too few devices or
          another model
Writes    the annotation ``alibabacloud.com/gpu-index`` before the pod is bound, so that the devices survive a restart
Source    hkust-adsl/kubernetes-scheduler-simulator 8f3d641, pkg/simulator/plugin/open-gpu-share.go
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import ClassVar, Final

import numpy as np
from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.errors import StateError
from moorage.framework import points
from moorage.framework.args import PluginArgs
from moorage.framework.effects import Amend, Effect
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.handle import Handle
from moorage.framework.verdicts import SKIP, Hold, Reject, Skip
from moorage.plugins.gpu_sharing.devices import (
    GPU_COUNT,
    GPU_INDEX,
    GPU_MODEL,
    DeviceTable,
    GpuRequest,
    InvalidRequestError,
    device_table,
    gpu_request,
    gpu_signature,
)
from moorage.state.view import BoolArray, NodeInfo, NodeView, PodInfo, Snapshot

NO_ROOM: Final = "node(s) had too few GPUs with enough left"
NO_DEVICES: Final = "node(s) had too few GPUs"
WRONG_MODEL: Final = "node(s) had another model of GPU"


class OpenGpuShareArgs(PluginArgs, frozen=True):
    """How to choose the device of a pod that requests part of one.

    ``gpu_sel_method``  ``best``: the device with the least free, ``worst``: the most free, ``random``; or the name of
                        a plugin that chooses it, such as ``FGDScore``: the one that gave the node its score. A plugin of
                        your own puts its function into ``device_table(handle).choosers`` in ``attach``
    ``seed``            the seed of ``random``
    """

    gpu_sel_method: str = "best"
    seed: int = 0


class OpenGpuShare(
    points.PreFilterPlugin[GpuRequest],
    points.FilterPlugin[GpuRequest],
    points.FilterNodePlugin[GpuRequest],
    points.ReservePlugin[GpuRequest],
    points.PreBindPlugin[GpuRequest],
    points.EnqueueExtensions,
    points.Attachable,
    points.Reusable,
):
    name = "OpenGpuShare"
    #: PreBind writes an annotation of the pod.
    writes_pods: ClassVar[bool] = True
    Args = OpenGpuShareArgs
    reuse = points.Reuse(points.Scope.NODE_PODS, signature=gpu_signature, rests_when_skipped=True)

    def __init__(self, args: OpenGpuShareArgs | None = None) -> None:
        self._args = args or OpenGpuShareArgs()
        self._devices = DeviceTable()
        self._handle: Handle | None = None

    def attach(self, handle: Handle) -> None:
        self._handle = handle
        self._devices = device_table(handle)

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> GpuRequest | Skip | Hold:
        try:
            return gpu_request(pod) or SKIP
        except InvalidRequestError as error:
            return Hold.because(str(error), unresolvable=True)

    def filter(self, request: GpuRequest, nodes: NodeView) -> Iterator[Reject]:
        needed = max(request.count, max(request.index, default=-1) + 1)
        few = nodes.allocatable(GPU_COUNT) < needed
        closed = few
        if np.count_nonzero(few):
            yield Reject(few, NO_DEVICES, unresolvable=True)
        if request.models:
            wrong = _has_wrong_model(request, nodes) & ~few
            yield Reject(wrong, WRONG_MODEL, unresolvable=True)
            closed = few | wrong
        full = self._full(request, nodes) & ~closed
        if np.count_nonzero(full):
            yield Reject(full, NO_ROOM)

    def _full(self, request: GpuRequest, nodes: NodeView) -> BoolArray:
        """Return a mask of the nodes that have too few devices with enough free; shape (nodes,)."""
        if not request.index:
            return np.logical_not(self._devices.have_room(nodes, request.milli, request.count))
        left = self._devices.left(nodes)
        wanted = [device for device in request.index if device < left.shape[1]]
        return np.asarray((left[:, wanted] < request.milli).any(axis=1), dtype=np.bool_)

    def filter_node(self, request: GpuRequest, node: NodeInfo) -> Hold | None:
        if node.allocatable(GPU_COUNT) < max(request.count, max(request.index, default=-1) + 1):
            return Hold.because(NO_DEVICES, unresolvable=True)
        if request.models and node.labels.get(GPU_MODEL) not in request.models:
            return Hold.because(WRONG_MODEL, unresolvable=True)
        left = self._devices.of(node)
        if request.index:
            fits = all(left[device] >= request.milli for device in request.index)
        else:
            fits = sum(milli >= request.milli for milli in left) >= request.count
        return None if fits else Hold.because(NO_ROOM)

    def reserve(self, request: GpuRequest | None, pod: PodInfo, node: str) -> Hold | None:
        if request is None or self._handle is None:
            return None
        table = self._handle.snapshot.table
        row = table.row_of[node]
        devices = self._choice(request, pod, NodeInfo(table, row))
        if devices is None:
            return Hold.because(NO_ROOM)
        self._devices.assign(pod, devices, row)
        return None

    def unreserve(self, request: GpuRequest | None, pod: PodInfo, node: str) -> Iterable[Effect] | None:
        self._devices.give_back(pod, None if self._handle is None else self._handle.snapshot.table.row_of.get(node))
        return None

    def pre_bind(self, request: GpuRequest | None, pod: PodInfo, node: str) -> Iterable[Effect]:
        devices = self._devices.assumed.get(pod.uid)
        if request is None or devices is None or request.index == devices:
            return ()
        text = "-".join(map(str, devices))

        def noted(newest: Pod) -> Pod:
            metadata = replace(newest.metadata, annotations={**newest.metadata.annotations, GPU_INDEX: text})
            return replace(newest, metadata=metadata)

        return (Amend(pod.pod, noted, what="write the devices of the pod"),)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.POD, Action.DELETE))
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE | Action.UPDATE_NODE_LABEL))

    # -- devices -------------------------------------------------------------------------------------------------------------

    def _choice(self, request: GpuRequest, pod: PodInfo, node: NodeInfo) -> tuple[int, ...] | None:
        left = self._devices.of(node)
        if request.index:
            fits = all(device < len(left) and left[device] >= request.milli for device in request.index)
            return request.index if fits else None
        enough = [device for device, milli in enumerate(left) if milli >= request.milli]
        if len(enough) < request.count:
            return None
        return (self._share(enough, left, request, pod, node),) if request.is_share else tuple(enough[: request.count])

    def _share(self, enough: list[int], left: list[int], request: GpuRequest, pod: PodInfo, node: NodeInfo) -> int:
        match self._args.gpu_sel_method:
            case "best":
                return min(enough, key=lambda device: (left[device], device))
            case "worst":
                return min(enough, key=lambda device: (-left[device], device))
            case "random":
                return random.Random(f"{self._args.seed}/{pod.uid}/device").choice(enough)  # noqa: S311
        method, choosers = self._args.gpu_sel_method, self._devices.choosers
        if method not in choosers:
            known = ", ".join(["best", "worst", "random", *choosers])
            raise StateError(f"OpenGpuShare: gpuSelMethod {method}: no plugin of the profile chooses devices so; use {known}")
        device = choosers[method](pod, request, left, node)
        if device not in enough:
            raise StateError(f"OpenGpuShare: {method} chose device {device} of {node.name}, which does not have enough left")
        return device


def _has_wrong_model(request: GpuRequest, nodes: NodeView) -> BoolArray:
    labels = nodes.label(GPU_MODEL)
    allowed = np.array([value in request.models for value in labels.values], dtype=bool)
    wrong: BoolArray = ~allowed[nodes.ids(labels)]
    return wrong
