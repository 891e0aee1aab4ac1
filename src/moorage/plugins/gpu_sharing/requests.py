"""A pod's GPU request and the devices assigned to it, as its annotations say.

Source  hkust-adsl/kubernetes-scheduler-simulator 8f3d641, pkg/type/open-gpu-share
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from moorage.state.pod_info import PodInfo

__all__ = [
    "GPU_COUNT", "GPU_INDEX", "GPU_MILLI", "GPU_MODEL", "WHOLE", "GpuRequest", "InvalidRequestError", "assigned_devices",
    "gpu_request", "gpu_signature", "score_signature",
]  # fmt: skip

#: Annotations of a pod. ``GPU_MILLI`` is per device. ``GPU_COUNT`` is also what a node offers, ``GPU_MODEL`` its label.
GPU_MILLI: Final = "alibabacloud.com/gpu-milli"
GPU_COUNT: Final = "alibabacloud.com/gpu-count"
GPU_MODEL: Final = "alibabacloud.com/gpu-card-model"
GPU_INDEX: Final = "alibabacloud.com/gpu-index"
#: The milli of a whole device.
WHOLE: Final = 1000
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_INDEX: Final = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})*")


class InvalidRequestError(ValueError):
    """Annotations are not a valid request; the text names the annotation, its value and what would be valid."""


class GpuRequest(Struct, frozen=True):
    """A request of ``milli`` on each of ``count`` devices. ``models`` are the allowed models; empty: any.

    ``index`` are the indexes of the devices that the pod requires; empty: any.
    """

    milli: int
    count: int
    models: tuple[str, ...] = ()
    index: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        return self.milli * self.count

    @property
    def is_share(self) -> bool:
        return self.milli < WHOLE

    @property
    def affinity_class(self) -> str:
        """The class of GpuClustering: ``share-gpu``, or ``4-gpu`` for four whole devices."""
        return "share-gpu" if self.is_share else f"{self.count}-gpu"


def gpu_request(pod: PodInfo) -> GpuRequest | None:
    """Return a pod's GPU request; None if it has none.

    Raises  InvalidRequestError
    """
    found = pod.metadata.annotations
    if not found:
        return None
    return _request(found.get(GPU_MILLI, ""), found.get(GPU_COUNT, ""), found.get(GPU_MODEL, ""), found.get(GPU_INDEX, ""))


@lru_cache(4096)
def _request(milli_text: str, count_text: str, models_text: str, index_text: str) -> GpuRequest | None:
    if not (milli_text or count_text):
        return None
    milli = min(_number(GPU_MILLI, milli_text, WHOLE), WHOLE)
    count = _number(GPU_COUNT, count_text, 1)
    if not milli or not count:
        return None
    if milli < WHOLE and count > 1:
        raise InvalidRequestError(
            f"{GPU_COUNT}={count} with {GPU_MILLI}={milli}: request part of one device only, or 1000 milli of each"
        )
    models = tuple(model for model in models_text.split("|") if model)
    return GpuRequest(milli, count, models, _index(index_text))


def assigned_devices(pod: PodInfo) -> tuple[int, ...]:
    """Return the devices that the pod was given, by its annotation; () if it has none."""
    try:
        return _index(pod.metadata.annotations.get(GPU_INDEX, ""))
    except InvalidRequestError:
        return ()


def gpu_signature(pod: PodInfo) -> Mapping[str, Hashable]:
    """Return the annotations that the plugins of this package read: pods with equal signatures get equal answers."""
    found = pod.metadata.annotations
    return {"gpu": tuple(found.get(name, "") for name in (GPU_MILLI, GPU_COUNT, GPU_MODEL, GPU_INDEX))}


def score_signature(pod: PodInfo) -> Mapping[str, Hashable]:
    """Return the signature of a pod for the policies: its GPU request and its milli-CPU."""
    return {**gpu_signature(pod), "gpuCpu": pod.needs.nonzero_cpu}


def _number(name: str, text: str, missing: int) -> int:
    if not text:
        return missing
    if not _NUMBER.fullmatch(text):
        raise InvalidRequestError(f"{name}={text[:40]!r} is not a whole number")
    return int(text)


def _index(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    if not _INDEX.fullmatch(text):
        raise InvalidRequestError(f"{GPU_INDEX}={text[:40]!r} is not a list of devices such as 0-1-3")
    return tuple(map(int, text.split("-")))
