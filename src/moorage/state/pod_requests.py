"""A pod's resource requests, as integers.

Requests of containers and sidecars are summed; an init container, with the sidecars started before it, counts only where it
requests more than that sum; what devices take of the node is added; pod-level requests override the result; overhead is
added. While a pod is being resized, the amounts that the kubelet reports count where they are more than the spec's. Scoring
uses the "non-zero" pair: a container without a CPU or memory request counts with a small default.

Most pods are copies of each other, so a sum is computed once for each distinct set of requests and then shared.

Source  kube-scheduler 1.36: component-helpers/resource/helpers.go, PodRequests; framework/types.go, CalculateResource
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct

from moorage.api.core import Container, ContainerStatus, Pod, PodSpec, Quantity, ResourceList, ResourceRequirements
from moorage.api.names import is_hugepage_resource, is_scalar_resource_name
from moorage.api.quantity import milli_value, parse, value

#: The CPU with which scoring counts a container that requests none, in millicores.
DEFAULT_CPU_MILLI = 100
#: The same for memory, in bytes.
DEFAULT_MEMORY = 200 * 1024 * 1024

_PLAIN: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_USUAL: Final = ("cpu", "memory")
_NANO_PER_MILLI: Final = 10**6
_INT64_MAX: Final = 2**63 - 1
#: Amounts are summed in thousandths, the finest step that the API server stores.
_DEFAULTS: Final[Mapping[str, int]] = {"cpu": DEFAULT_CPU_MILLI, "memory": DEFAULT_MEMORY * 1000}

K = TypeVar("K")
N = TypeVar("N", int, float)
#: Resource names and quantities as a container lists them.
_Asked = tuple[tuple[str, Quantity], ...]


class PodRequests(Struct, frozen=True, gc=False):
    """Units: cpu in millicores, memory and storage in bytes, other resources in counts.

    ``requests`` holds only the resources that the scheduler counts; ``key`` is the same as a hashable value: names and amounts.
    Pods with equal requests share one object: read it only.
    """

    requests: Mapping[str, int]
    nonzero_cpu: int
    nonzero_memory: int
    key: tuple[str | int, ...]


class RequestOptions(NamedTuple):
    """Which parts of a pod count. The defaults are those for pods on a node; a feature gate can turn each off.

    ``use_status``        count what the kubelet reports of a resize (InPlacePodVerticalScaling)
    ``pod_level``         count pod-level requests (PodLevelResources)
    ``pod_level_status``  count what the kubelet reports of their resize (InPlacePodLevelResourcesVerticalScaling)
    """

    use_status: bool = True
    pod_level: bool = True
    pod_level_status: bool = True


#: The options for pods on a node.
PLACED: Final = RequestOptions()


@lru_cache(maxsize=512, typed=True)
def amount(name: str, quantity: Quantity) -> int:
    """Return a quantity of resource ``name`` in the scheduler's units."""
    return milli_value(quantity) if name == "cpu" else value(quantity)


@lru_cache(maxsize=1024)
def is_counted(name: str) -> bool:
    """Return True if the scheduler counts a resource. It ignores all others, on nodes and in pods.

    Source  framework/types.go, Resource.Add
    """
    return name in _PLAIN or is_scalar_resource_name(name)


def pod_requests(pod: Pod, options: RequestOptions = PLACED) -> PodRequests:
    """Return the resource requests of ``pod``.

    Rounds  sums up to whole units, as Go's ``Quantity.Value`` does, not each container's share
    Raises  QuantityError for a request that is no quantity
    """
    spec = pod.spec
    if spec.containers and not spec.init_containers and not spec.overhead and is_plain(pod):
        milli = size = 0
        for container in spec.containers:
            asked = container.resources.requests
            if tuple(asked) != _USUAL:
                break
            milli += _milli(asked["cpu"])
            size += _milli(asked["memory"])
        else:
            return _of_usual(milli, size)
    resized = _Resized(pod) if options.use_status and _reports_resources(pod) else None
    containers = tuple([_asked(container, resized) for container in spec.containers])
    init = tuple([_init(container, resized) for container in spec.init_containers]) if spec.init_containers else ()
    level: _Asked = ()
    if options.pod_level and spec.resources is not None and spec.resources.requests:
        level = _pod_level(pod, spec.resources.requests, options)
    claimed = _claimed(pod) if pod.status.node_allocatable_resource_claim_statuses else ()
    return _summed(containers, init, level, tuple(spec.overhead.items()) if spec.overhead else (), claimed)


def every_request(spec: PodSpec) -> dict[str, int]:
    """Return the requests of a pod for all resources, also those that the scheduler does not count; none is negative."""
    containers = tuple(tuple(one.resources.requests.items()) for one in spec.containers)
    init = tuple((one.restart_policy == "Always", tuple(one.resources.requests.items())) for one in spec.init_containers)
    level = () if spec.resources is None else tuple(spec.resources.requests.items())
    total = _total(containers, init, level, tuple(spec.overhead.items()), {})
    return {name: max(0, _units(name, count)) for name, count in total.items()}


# -- requests of each container -----------------------------------------------------------------------------------------


def is_plain(pod: Pod) -> bool:
    """Return True if a pod has neither pod-level resources nor a status that says what it takes: then no option matters."""
    status = pod.status
    reported = status.container_statuses or status.init_container_statuses or status.node_allocatable_resource_claim_statuses
    return pod.spec.resources is None and not reported


def _reports_resources(pod: Pod) -> bool:
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return bool(statuses) and any(status.resources is not None for status in statuses)


class _Resized:
    """The kubelet's statuses of a pod's containers, and whether it reports the requested resize as infeasible."""

    __slots__ = ("infeasible", "statuses")

    def __init__(self, pod: Pod) -> None:
        status = pod.status
        self.infeasible = resize_is_infeasible(pod)
        self.statuses: dict[str, ContainerStatus] = {s.name: s for s in status.container_statuses}
        self.statuses.update((s.name, s) for s in status.init_container_statuses)


def resize_is_infeasible(pod: Pod) -> bool:
    """Return True if the kubelet reports that the requested resize does not fit on the node."""
    pending = next((c for c in pod.status.conditions if c.type == "PodResizePending"), None)
    return pending is not None and pending.reason == "Infeasible"


def _asked(container: Container, resized: _Resized | None) -> _Asked:
    requests = container.resources.requests
    if resized is not None:
        status = resized.statuses.get(container.name)
        if status is not None and status.resources is not None:
            requests = _effective(requests, status.resources, status.allocated_resources, resized.infeasible)
    return tuple(requests.items())


def _init(container: Container, resized: _Resized | None) -> tuple[bool, _Asked]:
    """Return (is it a sidecar, its requests)."""
    sidecar = container.restart_policy == "Always"
    return sidecar, _asked(container, resized if sidecar else None)


def _effective(spec: ResourceList, actual: ResourceRequirements, allocated: ResourceList, infeasible: bool) -> ResourceList:
    """Return the maximum of requested, actual and allocated amounts; if the resize is ``infeasible``, of the last two."""
    if spec == actual.requests == allocated:
        return spec
    found: ResourceList = {}
    for source in (actual.requests, allocated) if infeasible else (spec, actual.requests, allocated):
        for name, quantity in source.items():
            if name not in found or parse(quantity) > parse(found[name]):
                found[name] = quantity
    return found


def _claimed(pod: Pod) -> _Asked:
    """Return what devices take of the node; a resource may be there several times."""
    found: list[tuple[str, Quantity]] = []
    for one in pod.status.node_allocatable_resource_claim_statuses:
        found += one.resources.items()
        for held in (*one.mapping, *one.overhead):
            amounts = [held.get("quantity"), held.get("perPod"), *[held.get("perContainer")] * len(one.containers)]
            found += [(str(held["name"]), amount) for amount in amounts if amount is not None]
    return tuple(found)


def _pod_level(pod: Pod, requests: ResourceList, options: RequestOptions) -> _Asked:
    status = pod.status
    supported = [name for name in requests if name in {"cpu", "memory"} or is_hugepage_resource(name)]
    if options.use_status and options.pod_level_status and status.resources is not None:
        requests = _effective(requests, status.resources, status.allocated_resources, resize_is_infeasible(pod))
    return tuple([(name, requests.get(name, 0)) for name in supported])


# -- sums ---------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _summed(
    containers: tuple[_Asked, ...], init: tuple[tuple[bool, _Asked], ...], level: _Asked, overhead: _Asked, claimed: _Asked = ()
) -> PodRequests:
    total = _total(containers, init, level, overhead, {}, claimed)
    # With pod-level requests, a default applies only to a resource that neither the pod nor any container requests.
    missing = {name: count for name, count in _DEFAULTS.items() if not level or name not in total}
    everyone = [dict(asked) for asked in (*containers, *(asked for _, asked in init))]
    needed = {name: count for name, count in missing.items() if any(name not in asked for asked in everyone)}
    filled = _total(containers, init, level, overhead, needed, claimed) if needed else total
    requests = {name: _units(name, count) for name, count in total.items() if is_counted(name)}
    cpu, memory = (_units(name, filled.get(name, 0)) for name in _DEFAULTS)
    return PodRequests(requests, cpu, memory, tuple(chain.from_iterable(sorted(requests.items()))))


@lru_cache(maxsize=1024)
def _of_usual(cpu: int, memory: int) -> PodRequests:
    """Return the sum for a pod whose containers all request CPU and memory and nothing else, in thousandths together."""
    milli, size = _units("cpu", cpu), _units("memory", memory)
    return PodRequests({"cpu": milli, "memory": size}, milli, size, ("cpu", milli, "memory", size))


def _total(
    containers: tuple[_Asked, ...], init: tuple[tuple[bool, _Asked], ...], level: _Asked, overhead: _Asked,
    missing: Mapping[str, int], claimed: _Asked = (),
) -> dict[str, int]:  # fmt: skip
    """Return the sums in thousandths. A container without a request for a resource in ``missing`` counts with that amount."""
    total: dict[str, int] = {}
    for asked in containers:
        add_amounts(total, _counted(asked, missing))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for sidecar, asked in init:
        need = _counted(asked, missing)
        if sidecar:
            add_amounts(total, need)
            add_amounts(sidecars, need)
            need = sidecars
        else:
            add_amounts(need, sidecars)
        _raise_to(peak, need)
    _raise_to(total, peak)
    for name, quantity in claimed:
        total[name] = total.get(name, 0) + _milli(quantity)
    total.update((name, _milli(quantity)) for name, quantity in level)
    add_amounts(total, _counted(overhead, {}))
    return total


def _counted(asked: _Asked, missing: Mapping[str, int]) -> dict[str, int]:
    counted = {name: _milli(quantity) for name, quantity in asked}
    for name, count in missing.items():
        counted.setdefault(name, count)
    return counted


@lru_cache(maxsize=4096, typed=True)
def _milli(quantity: Quantity) -> int:
    """Return a quantity in thousandths, rounded up."""
    nano = parse(quantity)
    return -(-nano // _NANO_PER_MILLI)


def _units(name: str, milli: int) -> int:
    return min(milli if name == "cpu" else -(-milli // 1000), _INT64_MAX)


def add_amounts(total: dict[K, N], more: Mapping[K, N], times: N = 1) -> None:
    """Add amounts so many times to those that are there; with -1 take them off."""
    for name, count in more.items():
        total[name] = total.get(name, 0) + count * times


def _raise_to(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, count in floor.items():
        if name not in total or count > total[name]:
            total[name] = count
