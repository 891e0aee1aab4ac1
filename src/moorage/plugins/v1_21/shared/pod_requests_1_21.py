"""The requests of a pod as 1.21 sums them: container by container, each rounded up, without sidecars or pod-level requests.

Two more details differ from the current sums. A request of zero is kept, because a pod that names a resource is checked against
it. And scoring reads a pod's CPU overhead as whole cores instead of millicores, as 1.21 did.

Source  kube-scheduler 1.21: framework/types.go, Resource.Add and SetMaxResource; plugins/noderesources/fit.go and
        resource_allocation.go; util/non_zero.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.api.meta import ResourceList
from moorage.api.quantity import value
from moorage.state.pod_info import PodInfo
from moorage.state.pod_requests import DEFAULT_CPU_MILLI, DEFAULT_MEMORY, amount, is_counted

__all__ = ["fit_requests", "scored_request"]

#: The requests that scoring assumes for a container that names none.
_DEFAULT_REQUESTS: Final[Mapping[str, int]] = {"cpu": DEFAULT_CPU_MILLI, "memory": DEFAULT_MEMORY}


def fit_requests(pod: PodInfo) -> dict[str, int]:
    """Return what must be free on a node. Units as in ``PodRequests``; requests of 0 that the pod names are included."""
    total: dict[str, int] = {}
    for container in pod.spec.containers:
        _add(total, container.resources.requests)
    for container in pod.spec.init_containers:
        for name, count in _counted(container.resources.requests):
            if count > total.get(name, 0):
                total[name] = count
    _add(total, pod.spec.overhead)
    return total


def _add(total: dict[str, int], requests: ResourceList) -> None:
    for name, count in _counted(requests):
        total[name] = total.get(name, 0) + count


def _counted(requests: ResourceList) -> list[tuple[str, int]]:
    return [(name, amount(name, quantity)) for name, quantity in requests.items() if is_counted(name)]


def scored_request(pod: PodInfo, resource: str) -> int:
    """Return the requested amount of one resource that scoring assumes."""
    if not is_counted(resource):
        requested = 0
    else:
        requested = sum(_named(container.resources.requests, resource) for container in pod.spec.containers)
        for container in pod.spec.init_containers:
            requested = max(requested, _named(container.resources.requests, resource))
    overhead = pod.spec.overhead.get(resource)
    return requested if overhead is None else requested + value(overhead)


def _named(requests: ResourceList, resource: str) -> int:
    quantity = requests.get(resource)
    return _DEFAULT_REQUESTS.get(resource, 0) if quantity is None else amount(resource, quantity)
