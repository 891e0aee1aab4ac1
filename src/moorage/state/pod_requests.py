"""What a pod asks of a node, as integers.

Sums containers and sidecars, takes the peak of init containers, lets pod-level requests override, adds overhead. The
"non-zero" pair is what scoring uses: a container that names no CPU or memory counts as asking for a little.
"""

from __future__ import annotations

from typing import NamedTuple

from moorage.api.core import Container, Pod
from moorage.api.meta import ResourceList
from moorage.api.quantity import milli_value, value

__all__ = ["DEFAULT_CPU_MILLI", "DEFAULT_MEMORY", "PodRequests", "amount", "pod_requests"]

#: What a container that requests no CPU is scored as asking for, in millicores.
DEFAULT_CPU_MILLI = 100
#: The same for memory, in bytes.
DEFAULT_MEMORY = 200 * 1024 * 1024


class PodRequests(NamedTuple):
    """Units: cpu in millicores, memory and storage in bytes, other resources in counts."""

    requests: dict[str, int]
    nonzero_cpu: int
    nonzero_memory: int


def amount(name: str, quantity: str | float) -> int:
    """Return a quantity in the units that scheduling counts ``name`` in."""
    return milli_value(quantity) if name == "cpu" else value(quantity)


def pod_requests(pod: Pod) -> PodRequests:
    """Return what ``pod`` asks for.

    Source  component-helpers/resource/helpers.go, PodRequests
    """
    plain = _aggregate(pod, {})
    filled = _aggregate(pod, {"cpu": DEFAULT_CPU_MILLI, "memory": DEFAULT_MEMORY})
    return PodRequests(plain, filled.get("cpu", 0), filled.get("memory", 0))


def _aggregate(pod: Pod, missing: dict[str, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in pod.spec.containers:
        _add(total, _requests(container, missing))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.spec.init_containers:
        asked = _requests(container, missing)
        if container.restart_policy == "Always":
            _add(total, asked)
            _add(sidecars, asked)
            asked = dict(sidecars)
        else:
            asked = {name: asked.get(name, 0) + sidecars.get(name, 0) for name in {**asked, **sidecars}}
        _raise_to(peak, asked)
    _raise_to(total, peak)
    if pod.spec.resources is not None:
        total.update(_counted(pod.spec.resources.requests))
    _add(total, _counted(pod.spec.overhead))
    return total


def _requests(container: Container, missing: dict[str, int]) -> dict[str, int]:
    return {**missing, **_counted(container.resources.requests)}


def _counted(resources: ResourceList) -> dict[str, int]:
    return {name: amount(name, quantity) for name, quantity in resources.items()}


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        total[name] = total.get(name, 0) + count


def _raise_to(total: dict[str, int], floor: dict[str, int]) -> None:
    for name, count in floor.items():
        if count > total.get(name, 0) or name not in total:
            total[name] = count
