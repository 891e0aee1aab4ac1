"""The amounts that pods of a trace request and its nodes have, and warnings if they are too small to affect placement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from moorage.api import quantity
from moorage.api.core import Node
from moorage.simulator.trace_arrivals import ArrivalColumns, Floats
from moorage.state.pod_info import PodInfo

__all__ = ["GPU_MILLI", "NEVER_ENDS", "RESOURCES", "WHOLE_GPU", "capacity_of", "most_at_once", "requests_of", "trace_warnings"]

#: Extended resource: thousandths of GPUs, over all devices of a node.
GPU_MILLI: Final = "alibabacloud.com/gpu-milli"
#: Extended resource: whole devices.
WHOLE_GPU: Final = "nvidia.com/gpu"
#: The resources that are summed, in milli-cores, bytes, and thousandths of GPUs.
RESOURCES: Final = ("cpu", "memory", "gpu")
#: The warning about a trace without durations.
NEVER_ENDS: Final = "no pod ever ends"
#: If pods never request more than this share of a resource at once, it does not affect where they are placed.
_IDLE: Final = 0.1


def capacity_of(nodes: Sequence[Node], resource: str) -> int:
    """Return the sum over all nodes of ``cpu`` (milli-cores), ``memory`` (bytes) or ``gpu`` (thousandths of devices)."""
    total = 0
    for node in nodes:
        amounts = node.status.allocatable
        if resource == "cpu":
            total += quantity.milli_value(amounts.get("cpu", 0))
        elif resource == "gpu":
            total += quantity.value(amounts.get(GPU_MILLI, 0)) + 1000 * quantity.value(amounts.get(WHOLE_GPU, 0))
        else:
            total += quantity.value(amounts.get(resource, 0))
    return total


def requests_of(arrivals: ArrivalColumns, resource: str) -> Floats:
    """Return the request of each arrival, in the units of ``capacity_of``; shape (arrivals,)."""
    of_shape = [_request(PodInfo(template.pod("pod")).requests, resource) for template in arrivals.templates]
    found: Floats = np.array(of_shape, dtype=np.float64)[arrivals.shapes] if len(arrivals) else np.zeros(0)
    return found


def _request(requests: object, resource: str) -> float:
    held: dict[str, int] = dict(requests)  # type: ignore[call-overload]
    if resource == "gpu":
        return float(held.get(GPU_MILLI, 0) + 1000 * held.get(WHOLE_GPU, 0))
    return float(held.get(resource, 0))


def most_at_once(arrivals: ArrivalColumns, resource: str) -> float:
    """Return the highest total request at any time, if each pod started when it arrives."""
    asked = requests_of(arrivals, resource)
    ends = arrivals.time_s + np.where(np.isnan(arrivals.duration_s), np.inf, arrivals.duration_s)
    times = np.concatenate([arrivals.time_s, ends])
    changes = np.concatenate([asked, -asked])
    # At equal times, pods that end make room first.
    order = np.lexsort((changes > 0, times))
    running = np.cumsum(changes[order])[np.isfinite(times[order])]
    return float(running.max(initial=0.0))


def trace_warnings(nodes: Sequence[Node], arrivals: ArrivalColumns) -> Iterator[str]:
    """Yield warnings about questions that an experiment with this trace cannot answer."""
    if not len(arrivals):
        yield "no pod arrives"
        return
    if not nodes:
        yield "no nodes: give nodes of your own"
        return
    for resource in RESOURCES:
        whole = capacity_of(nodes, resource)
        if not whole:
            continue
        most = most_at_once(arrivals, resource) / whole
        if 0 < most < _IDLE:
            yield (
                f"pods never request more than {_percent(most)} of the nodes' {_SHOWN[resource]} at once, so it hardly affects"
                " where they are placed; let pods stay, give them longer lifetimes or scale the trace"
            )
    if np.isnan(arrivals.duration_s).all():
        yield NEVER_ENDS
    if arrivals.time_s[0] == arrivals.time_s[-1] and len(arrivals) > 1:
        yield "all pods arrive at the same time: waiting times depend on the queue alone"


_SHOWN: Final = {"cpu": "cpu", "memory": "memory", "gpu": "GPUs"}


def _percent(share: float) -> str:
    digits = max(0, -math.floor(math.log10(100 * share))) if 100 * share < 1 else 1
    return f"{100 * share:.{digits}f} %"
