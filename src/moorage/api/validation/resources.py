"""Requests and limits: known names, valid amounts, requests within limits.

Source  kubernetes, pkg/apis/core/validation/validation.go, validateResourceRequirements; pkg/apis/core/helper/helpers.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, Final

from moorage.api import core
from moorage.api.meta import Quantity, ResourceList
from moorage.api.names import check_qualified_name, is_extended_resource_name, is_hugepage_resource, is_native_resource
from moorage.api.quantity import QuantityError, canonical, parse
from moorage.api.validation.faults import Faults, duplicate, forbidden, invalid, named, quantity, required, unsupported
from moorage.api.validation.rule_tables import Holders, Seen, check
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


# -- quotas ------------------------------------------------------------------------------------------------------------
# Resource quotas: which resources can be limited, the amounts, and the scopes that apply to them.
#
# Source  kubernetes, pkg/apis/core/validation/validation.go, ValidateResourceQuota; pkg/apis/core/helper/helpers.go

_COMPUTE: Final = frozenset(["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"])
#: Names without a slash that quotas support.
_QUOTAS_STANDARD: Final = _COMPUTE | {
    "configmaps", "ephemeral-storage", "limits.ephemeral-storage", "persistentvolumeclaims", "pods", "replicationcontrollers",
    "requests.ephemeral-storage", "requests.storage", "resourcequotas", "secrets", "services", "services.loadbalancers",
    "services.nodeports",
}  # fmt: skip
_OF_PODS: Final = _COMPUTE | {"pods"}
#: The resources above that each scope can limit; names with a slash are allowed in any scope.
_SCOPED: Final[Mapping[str, frozenset[str]]] = {
    "BestEffort": frozenset(["pods"]),
    "CrossNamespacePodAffinity": _OF_PODS,
    "NotBestEffort": _OF_PODS,
    "NotTerminating": _OF_PODS,
    "PriorityClass": _OF_PODS,
    "Terminating": _OF_PODS,
    "VolumeAttributesClass": frozenset(["persistentvolumeclaims", "requests.storage"]),
}
_OPPOSED: Final = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})


def quota_warnings(hard: ResourceList) -> tuple[str, ...]:
    """Return the warnings for a user who writes a quota with these limits: requests should not exceed limits."""
    warnings = []
    for resource in ("cpu", "memory", "storage", "ephemeral-storage"):
        asked, limit = f"requests.{resource}", f"limits.{resource}"
        if asked not in hard and resource in {"cpu", "memory"}:
            asked = resource
        if asked in hard and limit in hard and parse(hard[asked]) > parse(hard[limit]):
            shown = f"{limit} ({canonical(hard[limit])})"
            warnings.append(f"ResourceQuota {asked} ({canonical(hard[asked])}) should be less than {shown}")
    return tuple(warnings)


@check("quota amounts")
def _amounts(path: str, amounts: ResourceList) -> Faults:
    for name, amount in amounts.items():
        at = f"{path}[{name}]"
        yield from _name(at, name)
        yield from quantity(at, amount, integer=is_integer_resource(name))


def _is_standard(name: str) -> bool:
    return name in _QUOTAS_STANDARD or name.startswith(("hugepages-", "requests.hugepages-"))


def _name(path: str, name: str) -> Faults:
    faults = check_qualified_name(name)
    for fault in faults:
        yield invalid(path, name, fault)
    if "/" in name or _is_standard(name):
        return
    if not faults and name != "storage":
        yield invalid(path, name, "must be a standard resource type or fully qualified")
    yield invalid(path, name, "must be a standard resource for quota")


@check("quota scopes")
def _scopes(path: str, spec: core.ResourceQuotaSpec) -> Faults:
    at, outside = f"{path}.scopes", _out_of_scope(spec)
    for scope in spec.scopes:
        if scope not in _SCOPED:
            yield invalid(at, spec.scopes, "unsupported scope")
        for _ in range(outside.get(scope, 0)):
            yield invalid(at, spec.scopes, "unsupported scope applied to resource")
    yield from _conflicts(at, frozenset(spec.scopes), spec.scopes)


def _out_of_scope(spec: core.ResourceQuotaSpec) -> dict[str, int]:
    """Return, by scope, the number of limited resources that the scope does not apply to."""
    limited = [name for name in spec.hard if _is_standard(name)]
    return {scope: sum(name not in known for name in limited) for scope, known in _SCOPED.items()}


def _conflicts(path: str, scopes: Set[str], shown: tuple[str, ...]) -> Faults:
    for pair in _OPPOSED:
        if scopes >= pair:
            yield invalid(path, shown or None, "conflicting scopes")


@check("opposed scopes", of_holder=True)
def _opposed(path: str, selector: core.ScopeSelector, _: Any, up: Holders, __: Seen) -> Faults:
    """Yield a fault for each pair of opposed scopes; it shows the other scopes of the quota, as in the API server."""
    quota = up[0] if up is not None else core.ResourceQuota()
    yield from _conflicts(path, {one.scope_name for one in selector.match_expressions}, quota.spec.scopes)


@check("resources of scope", of_holder=True)
def _resources_of_scope(path: str, asked: core.ScopedResourceSelectorRequirement, _: Any, up: Holders, __: Seen) -> Faults:
    """Yield a fault for each limited resource that a scope of the selector does not apply to; it shows the whole selector."""
    selector, above = up if up is not None else (core.ScopeSelector(), None)
    quota = above[0] if above is not None else core.ResourceQuota()
    listed = [
        {"ScopeName": o.scope_name, "Operator": o.operator, "Values": o.values or None} for o in selector.match_expressions
    ]
    for _ in range(_out_of_scope(quota.spec).get(asked.scope_name, 0)):
        yield invalid(path, {"MatchExpressions": listed}, "unsupported scope applied to resource")
