"""The class of service of a pod.

Source  Kubernetes, pkg/apis/core/v1/helper/qos/qos.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moorage.api.quantity import milli_value
from moorage.state.view import PodInfo


def qos_of(pod: PodInfo) -> str:
    """Return the class of service of a pod: Guaranteed, Burstable or BestEffort."""
    every = [*pod.spec.containers, *pod.spec.init_containers]
    requests = [_counted(one.resources.requests) for one in every]
    limits = [_counted(one.resources.limits) for one in every]
    if not any(requests) and not any(limits):
        return "BestEffort"
    whole = all(limit.keys() == {"cpu", "memory"} for limit in limits)
    same = all(
        request.get(name, limit[name]) == limit[name] for request, limit in zip(requests, limits, strict=True) for name in limit
    )
    return "Guaranteed" if whole and same else "Burstable"


def _counted(resources: Mapping[str, Any]) -> dict[str, int]:
    return {name: amount for name in ("cpu", "memory") if (amount := milli_value(resources.get(name, 0))) > 0}
