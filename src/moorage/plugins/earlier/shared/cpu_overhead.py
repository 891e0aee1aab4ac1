"""What scoring counted otherwise: up to 1.26 a pod's CPU overhead in whole cores, up to 1.24 local storage behind a gate.

Source  kube-scheduler 1.26.15 and 1.24.17, plugins/noderesources/resource_allocation.go, calculatePodResourceRequest
"""

from __future__ import annotations

from collections.abc import Iterable

from moorage.api.core import Quantity
from moorage.api.feature_gates import FeatureGates
from moorage.api.quantity import milli_value, value
from moorage.plugins.resources.scoring_strategies import Demand, ResourceSpec
from moorage.state.view import PodInfo


def overhead_of(pod: PodInfo) -> Quantity:
    """Return the CPU overhead of a pod; 0 without any."""
    return pod.spec.overhead.get("cpu", 0)


def with_overhead_in_cores(demands: Iterable[Demand], pod: PodInfo) -> tuple[Demand, ...]:
    """Return the demands of a pod with its CPU overhead counted in cores, rounded up, instead of millicores."""
    overhead = overhead_of(pod)
    more = value(overhead) - milli_value(overhead)
    return tuple(one._replace(amount=one.amount + more) if one.resource == "cpu" else one for one in demands)


def without_overhead(demands: Iterable[Demand], pod: PodInfo) -> tuple[Demand, ...]:
    """Return demands in which the overhead counts in whole units, without it."""
    overhead = pod.spec.overhead
    return tuple(one._replace(amount=one.amount - value(overhead.get(one.resource, 0))) for one in demands)


def without_storage(resources: Iterable[ResourceSpec], gates: FeatureGates) -> tuple[ResourceSpec, ...]:
    """Return the resources to score; without local storage while its gate is off, as nodes then have none."""
    return tuple(one for one in resources if one.name != "ephemeral-storage" or gates["LocalStorageCapacityIsolation"])
