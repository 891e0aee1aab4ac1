"""A pod's resource requests, as integers.

Requests of containers and sidecars are summed; an init container, with the sidecars started before it, counts only where it
requests more than that sum; what devices take of the node is added; pod-level requests override the result; overhead is
added. While a pod is being resized, three sums over its containers are compared: of the spec, of what is allocated and of what
the kubelet reports; of each resource the greatest counts. Scoring uses the "non-zero" pair: a container without a CPU or memory
request counts with a small default.

Most pods are copies of each other, so a sum is computed once for each distinct set of requests and then shared.

Source  kube-scheduler 1.37: component-helpers/resource/helpers.go, PodRequests; framework/types.go, CalculateResource
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

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
    sums = tuple(_reported_sums(pod, options)) if options.use_status and _has_sums(pod) else (_of_spec(pod),)
    level: _Asked = ()
    if options.pod_level and spec.resources is not None and spec.resources.requests:
        level = _pod_level(pod, spec.resources.requests, options)
    claimed = _claimed(pod) if pod.status.node_allocatable_resource_claim_statuses else ()
    return _summed(sums, level, tuple(spec.overhead.items()) if spec.overhead else (), claimed)


def every_request(spec: PodSpec) -> dict[str, int]:
    """Return the requests of a pod for all resources, also those that the scheduler does not count; none is negative."""
    containers = tuple(tuple(one.resources.requests.items()) for one in spec.containers)
    init = tuple((one.restart_policy == "Always", tuple(one.resources.requests.items())) for one in spec.init_containers)
    level = () if spec.resources is None else tuple(spec.resources.requests.items())
    total = _total((_Sum(containers, init),), level, tuple(spec.overhead.items()), {})
    return {name: max(0, _units(name, count)) for name, count in total.items()}


# -- requests of each container -----------------------------------------------------------------------------------------


def is_plain(pod: Pod) -> bool:
    """Return True if a pod has neither pod-level resources nor a status that says what it takes: then no option matters."""
    status = pod.status
    reported = status.container_statuses or status.init_container_statuses or status.node_allocatable_resource_claim_statuses
    return pod.spec.resources is None and status.resources is None and not reported and not resize_is_infeasible(pod)


def reports_resources(pod: Pod) -> bool:
    """Return whether the kubelet reports what containers have, or what is allocated to them."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return bool(statuses) and any(status.resources is not None or status.allocated_resources for status in statuses)


def _has_sums(pod: Pod) -> bool:
    """Return whether a pod counts with what is allocated and reported; if a resize is infeasible, nothing else."""
    return reports_resources(pod) or pod.status.resources is not None or resize_is_infeasible(pod)


class _Sum(NamedTuple):
    """What containers, and init containers with whether they are sidecars, request. ``devices``: what claims take is added."""

    containers: tuple[_Asked, ...]
    init: tuple[tuple[bool, _Asked], ...] = ()
    devices: bool = True


def _of_spec(pod: Pod) -> _Sum:
    spec = pod.spec
    containers = tuple([tuple(one.resources.requests.items()) for one in spec.containers])
    return _Sum(
        containers,
        tuple([(one.restart_policy == "Always", tuple(one.resources.requests.items())) for one in spec.init_containers]),
    )


def _reported_sums(pod: Pod, options: RequestOptions) -> Iterator[_Sum]:
    """Yield what the spec requests, unless the resize is infeasible, what is allocated, and what the kubelet reports.

    Where a status does not say, what is allocated, and then the spec, stand for it; nothing if the resize is infeasible.
    """
    status, infeasible = pod.status, resize_is_infeasible(pod)
    statuses: dict[str, ContainerStatus] = {one.name: one for one in status.init_container_statuses}
    statuses.update((one.name, one) for one in status.container_statuses)
    if not infeasible and not any(isinstance(one, _Greatest) for one in status.container_statuses):
        yield _of_spec(pod)
    whole = status.resources if options.pod_level_status and status.allocated_resources else None
    if whole is not None and whole.requests:
        yield from (_Sum((tuple(one.items()),), devices=False) for one in (status.allocated_resources, whole.requests))
        return

    def allocated(one: Container) -> ResourceList:
        found = statuses.get(one.name)
        asked: ResourceList = {} if infeasible else one.resources.requests
        return (found.allocated_resources if found is not None else None) or asked

    def actual(one: Container) -> ResourceList:
        found = statuses.get(one.name)
        has = found.resources.requests if found is not None and found.resources is not None else None
        return has or allocated(one)

    for amounts, devices in ((allocated, True), (actual, False)):
        containers = tuple([tuple(amounts(one).items()) for one in pod.spec.containers])
        init = tuple([(one.restart_policy == "Always", tuple(amounts(one).items())) for one in pod.spec.init_containers])
        yield _Sum(containers, init, devices)


class _Greatest(ContainerStatus, frozen=True, gc=False):
    """The status of a container whose spec counts in it already, so that no sum of the spec counts beside it."""


def with_greatest_of_each_container(pod: Pod) -> Pod:
    """Return a pod that is being resized, so that its sums are those of 1.36: of the greatest amounts of each container.

    Only statuses with the resources of a container count there, and those of init containers only if they are sidecars. What is
    reported of the pod as a whole raises its own requests, and never stands for the sum of its containers.
    """
    if not _has_sums(pod):
        return pod
    infeasible = resize_is_infeasible(pod)
    kept = {one.name: one for one in (*pod.spec.containers, *pod.spec.init_containers)}
    plain = {one.name for one in pod.spec.init_containers if one.restart_policy != "Always"}

    def merged(one: ContainerStatus) -> ContainerStatus:
        container = kept.get(one.name)
        if container is None:
            return one
        requests = container.resources.requests
        if one.resources is not None and one.name not in plain:
            requests = _effective(requests, one.resources, one.allocated_resources, infeasible)
        settled = replace(one, resources=ResourceRequirements(requests=requests), allocated_resources=requests)
        return _Greatest(**{name: getattr(settled, name) for name in ContainerStatus.__struct_fields__})

    def all_of(held: tuple[ContainerStatus, ...], containers: tuple[Container, ...]) -> tuple[ContainerStatus, ...]:
        named = {one.name for one in held}
        unsaid = [ContainerStatus(name=one.name) for one in containers if one.name not in named]
        return tuple(merged(one) for one in (*held, *unsaid))

    status = pod.status
    whole = status.resources
    if whole is not None:
        whole = ResourceRequirements(requests=_effective({}, whole, status.allocated_resources, infeasible=True))
    return replace(
        pod,
        status=replace(
            status,
            resources=whole,
            allocated_resources={},
            container_statuses=all_of(status.container_statuses, pod.spec.containers),
            init_container_statuses=all_of(status.init_container_statuses, pod.spec.init_containers),
        ),
    )


def resize_is_infeasible(pod: Pod) -> bool:
    """Return True if the kubelet reports that the requested resize does not fit on the node."""
    for one in pod.status.conditions:
        if one.type == "PodResizePending":
            return one.reason == "Infeasible"
    return False


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
def _summed(sums: tuple[_Sum, ...], level: _Asked, overhead: _Asked, claimed: _Asked = ()) -> PodRequests:
    total = _total(sums, level, overhead, {}, claimed)
    # With pod-level requests, a default applies only to a resource that neither the pod nor any container requests.
    missing = {name: count for name, count in _DEFAULTS.items() if not level or name not in total}
    everyone = [dict(asked) for one in sums for asked in (*one.containers, *(asked for _, asked in one.init))]
    needed = {name: count for name, count in missing.items() if any(name not in asked for asked in everyone)}
    filled = _total(sums, level, overhead, needed, claimed) if needed else total
    requests = {name: _units(name, count) for name, count in total.items() if is_counted(name)}
    cpu, memory = (_units(name, filled.get(name, 0)) for name in _DEFAULTS)
    return PodRequests(requests, cpu, memory, tuple(chain.from_iterable(sorted(requests.items()))))


@lru_cache(maxsize=1024)
def _of_usual(cpu: int, memory: int) -> PodRequests:
    """Return the sum for a pod whose containers all request CPU and memory and nothing else, in thousandths together."""
    milli, size = _units("cpu", cpu), _units("memory", memory)
    return PodRequests({"cpu": milli, "memory": size}, milli, size, ("cpu", milli, "memory", size))


def _total(
    sums: tuple[_Sum, ...], level: _Asked, overhead: _Asked, missing: Mapping[str, int], claimed: _Asked = ()
) -> dict[str, int]:
    """Return the sums in thousandths. A container without a request for a resource in ``missing`` counts with that amount."""
    total: dict[str, int] = {}
    for one in sums:
        of_one = _sum_of_containers(one.containers, one.init, missing)
        for name, quantity in claimed if one.devices else ():
            of_one[name] = of_one.get(name, 0) + _milli(quantity)
        if total:
            _raise_to(total, of_one)
        else:
            total = of_one
    total.update((name, _milli(quantity)) for name, quantity in level)
    add_amounts(total, _counted(overhead, {}))
    return total


def _sum_of_containers(
    containers: tuple[_Asked, ...], init: tuple[tuple[bool, _Asked], ...], missing: Mapping[str, int]
) -> dict[str, int]:
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
