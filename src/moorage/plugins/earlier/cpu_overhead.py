"""The CPU overhead of a pod as scoring counted it up to 1.26: in whole cores, added to millicores.

Source  kube-scheduler 1.26.15, plugins/noderesources/resource_allocation.go, calculatePodResourceRequest
"""

from __future__ import annotations

from collections.abc import Iterable

from moorage.api.meta import Quantity
from moorage.api.quantity import milli_value, value
from moorage.plugins.scoring_strategies import Demand
from moorage.state.pod_info import PodInfo

__all__ = ["overhead_of", "with_overhead_in_cores"]


def overhead_of(pod: PodInfo) -> Quantity:
    """Return the CPU overhead of a pod; 0 without any."""
    return pod.spec.overhead.get("cpu", 0)


def with_overhead_in_cores(demands: Iterable[Demand], pod: PodInfo) -> tuple[Demand, ...]:
    """Return the demands of a pod with its CPU overhead counted in cores, rounded up, instead of millicores."""
    overhead = overhead_of(pod)
    more = value(overhead) - milli_value(overhead)
    return tuple(one._replace(amount=one.amount + more) if one.resource == "cpu" else one for one in demands)
