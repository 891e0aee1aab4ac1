"""What a pod asks of a node, as integers.

Containers and sidecars add up; an init container only counts where it needs more than all that runs after it; requests for the
pod as a whole override those sums; overhead comes on top. What kubelet reports of a pod that is being resized counts as long
as it is more than the pod's own words. The "non-zero" pair is what scoring uses: a container that names no CPU or memory is
scored as asking for a little.

Most pods are copies of each other, so a sum is worked out once for each distinct set of requests and then shared.

Source  kube-scheduler 1.36: component-helpers/resource/helpers.go, PodRequests; framework/types.go, CalculateResource
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from moorage.api.core import Container, ContainerStatus, Pod, ResourceRequirements
from moorage.api.meta import Quantity, ResourceList
from moorage.api.names import is_hugepage_resource, is_scalar_resource_name
from moorage.api.quantity import milli_value, parse, value

__all__ = [
    "DEFAULT_CPU_MILLI", "DEFAULT_MEMORY", "PLACED", "PodRequests", "RequestOptions", "amount", "is_counted", "is_plain",
    "pod_requests",
]  # fmt: skip

#: What a container that requests no CPU is scored as asking for, in millicores.
DEFAULT_CPU_MILLI = 100
#: The same for memory, in bytes.
DEFAULT_MEMORY = 200 * 1024 * 1024

_PLAIN: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_NANO_PER_MILLI: Final = 10**6
_INT64_MAX: Final = 2**63 - 1
#: Amounts are added up in thousandths, the finest step the API server stores.
_DEFAULTS: Final[Mapping[str, int]] = {"cpu": DEFAULT_CPU_MILLI, "memory": DEFAULT_MEMORY * 1000}

#: Resource names and quantities as a container lists them.
_Asked = tuple[tuple[str, Quantity], ...]


class PodRequests(NamedTuple):
    """Units: cpu in millicores, memory and storage in bytes, other resources in counts.

    ``requests`` holds what the scheduler counts and nothing else; ``key`` is the same as a value that can be hashed. Pods that
    ask for the same share one object: read it only.
    """

    requests: Mapping[str, int]
    nonzero_cpu: int
    nonzero_memory: int
    key: tuple[tuple[str, int], ...]


class RequestOptions(NamedTuple):
    """Which parts of a pod count. The defaults are those for pods on a node; each can be closed by a feature gate.

    ``use_status``        what kubelet reports of a resize counts (InPlacePodVerticalScaling)
    ``pod_level``         requests of the pod as a whole count (PodLevelResources)
    ``pod_level_status``  and so does a resize of those (InPlacePodLevelResourcesVerticalScaling)
    """

    use_status: bool = True
    pod_level: bool = True
    pod_level_status: bool = True


#: How pods on a node are counted.
PLACED: Final = RequestOptions()


def amount(name: str, quantity: Quantity) -> int:
    """Return a quantity in the units that scheduling counts ``name`` in."""
    return milli_value(quantity) if name == "cpu" else value(quantity)


@lru_cache(maxsize=1024)
def is_counted(name: str) -> bool:
    """Say whether nodes are charged for a resource. Others are not looked at, whoever offers or requests them.

    Source  framework/types.go, Resource.Add
    """
    return name in _PLAIN or is_scalar_resource_name(name)


def pod_requests(pod: Pod, options: RequestOptions = PLACED) -> PodRequests:
    """Return what ``pod`` asks for.

    Rounds  sums up to whole units, as Go's ``Quantity.Value`` does, not each container's share
    Raises  QuantityError for a request that is no quantity
    """
    spec = pod.spec
    resized = _Resized(pod) if options.use_status and _reports_resources(pod) else None
    containers = tuple([_asked(container, resized) for container in spec.containers])
    init = tuple([_init(container, resized) for container in spec.init_containers]) if spec.init_containers else ()
    level: _Asked = ()
    if options.pod_level and spec.resources is not None and spec.resources.requests:
        level = _pod_level(pod, spec.resources.requests, options)
    return _summed(containers, init, level, tuple(spec.overhead.items()) if spec.overhead else ())


# -- what each container asks for ---------------------------------------------------------------------------------------


def is_plain(pod: Pod) -> bool:
    """Say whether a pod has neither requests of its own as a whole nor container statuses: then no option matters."""
    status = pod.status
    return pod.spec.resources is None and not status.container_statuses and not status.init_container_statuses


def _reports_resources(pod: Pod) -> bool:
    status = pod.status
    return any(s.resources is not None for s in status.container_statuses) or any(
        s.resources is not None for s in status.init_container_statuses
    )


class _Resized:
    """What kubelet reports of a pod's containers, and whether it has given up on the resize that the spec asks for."""

    __slots__ = ("infeasible", "statuses")

    def __init__(self, pod: Pod) -> None:
        status = pod.status
        self.infeasible = _resize_is_infeasible(pod)
        self.statuses: dict[str, ContainerStatus] = {s.name: s for s in status.container_statuses}
        self.statuses.update((s.name, s) for s in status.init_container_statuses)


def _resize_is_infeasible(pod: Pod) -> bool:
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
    """Return (is it a sidecar, what it asks for)."""
    sidecar = container.restart_policy == "Always"
    return sidecar, _asked(container, resized if sidecar else None)


def _effective(spec: ResourceList, actual: ResourceRequirements, allocated: ResourceList, infeasible: bool) -> ResourceList:
    """Return the greatest of what was asked for, what runs and what was granted; an infeasible wish does not count."""
    if spec == actual.requests == allocated:
        return spec
    found: ResourceList = {}
    for source in (actual.requests, allocated) if infeasible else (spec, actual.requests, allocated):
        for name, quantity in source.items():
            if name not in found or parse(quantity) > parse(found[name]):
                found[name] = quantity
    return found


def _pod_level(pod: Pod, requests: ResourceList, options: RequestOptions) -> _Asked:
    status = pod.status
    supported = [name for name in requests if name in {"cpu", "memory"} or is_hugepage_resource(name)]
    if options.use_status and options.pod_level_status and status.resources is not None:
        requests = _effective(requests, status.resources, status.allocated_resources, _resize_is_infeasible(pod))
    return tuple([(name, requests.get(name, 0)) for name in supported])


# -- sums ---------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16384)
def _summed(
    containers: tuple[_Asked, ...], init: tuple[tuple[bool, _Asked], ...], level: _Asked, overhead: _Asked
) -> PodRequests:
    total = _total(containers, init, level, overhead, {})
    # Where the pod has a word of its own, a default only stands in for what nobody names.
    missing = {name: count for name, count in _DEFAULTS.items() if not level or name not in total}
    everyone = [dict(asked) for asked in (*containers, *(asked for _, asked in init))]
    needed = {name: count for name, count in missing.items() if any(name not in asked for asked in everyone)}
    filled = _total(containers, init, level, overhead, needed) if needed else total
    requests = {name: _units(name, count) for name, count in total.items() if is_counted(name)}
    cpu, memory = (_units(name, filled.get(name, 0)) for name in _DEFAULTS)
    return PodRequests(requests, cpu, memory, tuple(sorted(requests.items())))


def _total(
    containers: tuple[_Asked, ...],
    init: tuple[tuple[bool, _Asked], ...],
    level: _Asked,
    overhead: _Asked,
    missing: Mapping[str, int],
) -> dict[str, int]:
    """Add up in thousandths. Each container asks for ``missing`` where it names nothing."""
    total: dict[str, int] = {}
    for asked in containers:
        _add(total, _counted(asked, missing))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for sidecar, asked in init:
        need = _counted(asked, missing)
        if sidecar:
            _add(total, need)
            _add(sidecars, need)
            need = sidecars
        else:
            _add(need, sidecars)
        _raise_to(peak, need)
    _raise_to(total, peak)
    total.update((name, _milli(quantity)) for name, quantity in level)
    _add(total, _counted(overhead, {}))
    return total


def _counted(asked: _Asked, missing: Mapping[str, int]) -> dict[str, int]:
    counted = {name: _milli(quantity) for name, quantity in asked}
    for name, count in missing.items():
        counted.setdefault(name, count)
    return counted


def _milli(quantity: Quantity) -> int:
    nano = parse(quantity)
    return -(-nano // _NANO_PER_MILLI)


def _units(name: str, milli: int) -> int:
    return min(milli if name == "cpu" else -(-milli // 1000), _INT64_MAX)


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        total[name] = total.get(name, 0) + count


def _raise_to(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, count in floor.items():
        if name not in total or count > total[name]:
            total[name] = count
