"""Pod-level resources: they must cover what the pod's containers request.

Source  kubernetes, pkg/apis/core/validation/validation.go, validatePodResourceConsistency; component-helpers,
        resource/helpers.go, AggregateContainerRequests
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from moorage.api.core import Container, PodSpec
from moorage.api.meta import ResourceList
from moorage.api.names import is_hugepage_resource
from moorage.api.quantity import Exact, QuantityError, exact
from moorage.api.validation.faults import Faults, invalid

__all__ = ["pod_level_faults"]

_Sums: TypeAlias = dict[str, Exact]


def pod_level_faults(path: str, spec: PodSpec) -> Faults:
    """Yield the faults of pod-level resources that do not cover the containers; ``path`` is their path.

    Invalid amounts are reported elsewhere and ignored here.
    """
    if spec.resources is None:
        return
    requests, limits = _amounts(spec.resources.requests), _amounts(spec.resources.limits)
    yield from _short(f"{path}.requests", requests, _total(spec, lambda one: one.resources.requests), "requests")
    needed = _total(spec, lambda one: one.resources.limits)
    pages = {name: amount for name, amount in needed.items() if is_hugepage_resource(name)}
    yield from _short(f"{path}.limits", limits, pages, "limits")
    for i, container in enumerate(spec.containers):
        for name, amount in _amounts(container.resources.limits).items():
            if name in limits and amount.nano > limits[name].nano:
                at = f"{path}.containers[{i}][{name}].limits"
                yield invalid(at, str(amount), f"must be less than or equal to pod limits of {limits[name]}")


def _short(path: str, given: _Sums, needed: _Sums, what: str) -> Faults:
    for name, amount in needed.items():
        if name in given and amount.nano > given[name].nano:
            why = f"must be greater than or equal to aggregate container {what} of {amount}"
            yield invalid(f"{path}[{name}]", str(given[name]), why)


def _total(spec: PodSpec, part: Callable[[Container], ResourceList]) -> _Sums:
    """Return the largest total at any time: of all running containers, or of an init container and the sidecars before it."""
    running: _Sums = {}
    beside: _Sums = {}
    most: _Sums = {}
    for one in spec.containers:
        _add(running, _amounts(part(one)))
    for one in spec.init_containers:
        asked = _amounts(part(one))
        if one.restart_policy == "Always":
            _add(running, asked)
            _add(beside, asked)
            _raise(most, {name: beside[name] for name in asked})
        else:
            _raise(most, {name: amount.plus(beside[name]) if name in beside else amount for name, amount in asked.items()})
    _raise(running, most)
    return running


def _add(sums: _Sums, more: _Sums) -> None:
    for name, amount in more.items():
        sums[name] = sums[name].plus(amount) if name in sums else amount


def _raise(sums: _Sums, other: _Sums) -> None:
    for name, amount in other.items():
        if name not in sums or amount.nano > sums[name].nano:
            sums[name] = amount


def _amounts(given: ResourceList) -> _Sums:
    found: _Sums = {}
    for name, amount in given.items():
        try:
            found[name] = exact(amount)
        except QuantityError:
            continue
    return found
