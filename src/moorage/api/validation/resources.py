"""Requests and limits: known names, valid amounts, requests within limits.

Source  kubernetes, pkg/apis/core/validation/validation.go, validateResourceRequirements; pkg/apis/core/helper/helpers.go
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

from moorage.api import core
from moorage.api.meta import Quantity, ResourceList
from moorage.api.names import check_qualified_name, is_extended_resource_name, is_hugepage_resource, is_native_resource
from moorage.api.quantity import QuantityError, canonical, parse
from moorage.api.validation.faults import Faults, duplicate, forbidden, invalid, named, quantity, required, unsupported
from moorage.errors import Fault

_CONTAINER: Final = frozenset(["cpu", "memory", "ephemeral-storage"])
_POD: Final = ("cpu", "hugepages-", "memory")
_COUNTED: Final = frozenset(
    [
        "configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services",
        "services.loadbalancers", "services.nodeports",
    ]
)  # fmt: skip
#: Valid names without a slash, for containers or for quotas.
_STANDARD: Final = _CONTAINER | _COUNTED | {
    "storage", "requests.cpu", "requests.memory", "requests.storage", "requests.ephemeral-storage", "limits.cpu",
    "limits.memory", "limits.ephemeral-storage",
}  # fmt: skip


def is_integer_resource(name: str) -> bool:
    """Return True for resources that are counted in integers."""
    return name in _COUNTED or is_extended_resource_name(name)


def container_resources(path: str, resources: core.ResourceRequirements, claims: Set[str] = frozenset()) -> Faults:
    """Yield the faults of a container's resources; ``claims`` are the names of the pod's resource claims."""
    if resources.limits or resources.requests:
        for part, amounts in (("limits", resources.limits), ("requests", resources.requests)):
            for name, amount in amounts.items():
                yield from container_name_faults(f"{path}.{part}[{name}]", name)
                yield from _amount(f"{path}.{part}[{name}]", name, amount)
        yield from _within_limits(path, resources)
    if resources.claims:
        yield from _claims(f"{path}.claims", resources.claims, claims)


def pod_resources(path: str, resources: core.ResourceRequirements) -> Faults:
    """Yield the faults of pod-level resources, without regard to the containers."""
    if resources.claims:
        yield forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    for part, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        for name, amount in amounts.items():
            at = f"{path}.{part}[{name}]"
            faults = list(standard_name_faults(at, name))
            yield from faults
            if not faults and name not in {"cpu", "memory"} and not is_hugepage_resource(name):
                yield unsupported(at, name, _POD)
            yield from _amount(at, name, amount)
    yield from _within_limits(path, resources)


def node_resources(path: str, amounts: ResourceList) -> Faults:
    """Yield the faults of amounts that are negative, or fractions of resources counted in integers."""
    for name, amount in amounts.items():
        yield from quantity(f"{path}.{name}", amount, integer=is_integer_resource(name))


def standard_name_faults(path: str, name: str) -> Faults:
    """Yield the faults of a resource's name: not a qualified name, or without a prefix and unknown."""
    faults = check_qualified_name(name)
    for fault in faults:
        yield invalid(path, name, fault)
    if not faults and "/" not in name and name not in _STANDARD and not is_hugepage_resource(name):
        yield invalid(path, name, "must be a standard resource type or fully qualified")


def container_name_faults(path: str, name: str) -> Faults:
    """Yield the faults of the name of a resource that containers use."""
    yield from standard_name_faults(path, name)
    if "/" not in name:
        if name not in _CONTAINER and not is_hugepage_resource(name):
            yield invalid(path, name, "must be a standard resource for containers")
    elif not is_native_resource(name) and not is_extended_resource_name(name):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def _amount(path: str, name: str, amount: Quantity) -> Faults:
    faults = list(quantity(path, amount, integer=is_integer_resource(name)))
    yield from faults
    if is_hugepage_resource(name) and not faults:
        page = _nano(name.removeprefix("hugepages-"))
        if not page or page < 0 or parse(amount) % page:
            yield invalid(path, canonical(amount), f"{canonical(amount)} is not positive integer multiple of {name}")


def _within_limits(path: str, resources: core.ResourceRequirements) -> Faults:
    requests, limits = resources.requests, resources.limits
    for name, amount in requests.items():
        asked, limit = _nano(amount), _nano(limits[name]) if name in limits else None
        exact = not is_native_resource(name) or is_hugepage_resource(name)
        if name not in limits:
            if exact:
                yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif asked is None or limit is None:
            continue
        elif exact and asked != limit:
            yield invalid(f"{path}.requests", canonical(amount), f"must be equal to {name} limit of {canonical(limits[name])}")
        elif asked > limit:
            yield invalid(
                f"{path}.requests",
                canonical(amount),
                f"must be less than or equal to {name} limit of {canonical(limits[name])}",
            )
    names = {*requests, *limits}
    if any(map(is_hugepage_resource, names)) and not names & {"cpu", "memory"}:
        yield forbidden(path, "HugePages require cpu or memory")


def _nano(amount: Quantity) -> int | None:
    try:
        return parse(amount)
    except QuantityError:
        return None


def _claims(path: str, uses: Iterable[core.ResourceClaimUse], known: Set[str]) -> Faults:
    seen: set[str] = set()
    in_part: set[str] = set()
    for i, use in enumerate(uses):
        at = f"{path}[{i}]"
        key = f"{use.name}/{use.request}" if use.request else use.name
        if not use.name:
            yield required(at)
            continue
        if use.name in seen:
            yield duplicate(at, use.name)
        else:
            if use.request:
                yield from named(f"{at}.request", use.request)
            if key in seen or (not use.request and use.name in in_part):
                yield duplicate(at, key)
            seen.add(key)
            if use.request:
                in_part.add(use.name)
        if use.name not in known:
            names = sorted(one for one in known if one)
            listed = f": {', '.join(names)}" if names else " which is empty"
            yield Fault("Not found", at, f"must be one of the names in pod.spec.resourceClaims{listed}", use.name)
