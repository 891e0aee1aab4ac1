"""Resource quotas: which resources can be limited, the amounts, and the scopes that apply to them.

Source  kubernetes, pkg/apis/core/validation/validation.go, ValidateResourceQuota; pkg/apis/core/helper/helpers.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.api.core import (
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
    ScopedResourceSelectorRequirement,
    ScopeSelector,
)
from moorage.api.meta import ResourceList
from moorage.api.names import check_qualified_name
from moorage.api.quantity import canonical, parse
from moorage.api.validation.faults import Faults, invalid, object_meta, quantity, required
from moorage.api.validation.resources import is_integer_resource

__all__ = ["quota_faults", "quota_status_faults", "quota_warnings"]

_COMPUTE: Final = frozenset(["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"])
#: Names without a slash that quotas support.
_STANDARD: Final = _COMPUTE | {
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
#: Scopes that only allow the operator Exists. The opposed pairs below must not occur together.
_PLAIN: Final = ("BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "Terminating")
_OPPOSED: Final = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
_ONLY_EXISTS: Final = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def quota_faults(quota: ResourceQuota) -> Faults:
    """Yield the faults of a quota, except of its status."""
    yield from object_meta(quota.metadata, True)
    yield from _amounts("spec.hard", quota.spec.hard)
    yield from _scopes(quota.spec)
    yield from _selector(quota.spec)


def quota_status_faults(status: ResourceQuotaStatus) -> Faults:
    """Yield the faults of a quota's status."""
    yield from _amounts("status.hard", status.hard)
    yield from _amounts("status.used", status.used)


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


def _amounts(path: str, amounts: ResourceList) -> Faults:
    for name, amount in amounts.items():
        at = f"{path}[{name}]"
        yield from _name(at, name)
        yield from quantity(at, amount, integer=is_integer_resource(name))


def _is_standard(name: str) -> bool:
    return name in _STANDARD or name.startswith(("hugepages-", "requests.hugepages-"))


def _name(path: str, name: str) -> Faults:
    faults = check_qualified_name(name)
    for fault in faults:
        yield invalid(path, name, fault)
    if "/" in name or _is_standard(name):
        return
    if not faults and name != "storage":
        yield invalid(path, name, "must be a standard resource type or fully qualified")
    yield invalid(path, name, "must be a standard resource for quota")


def _scopes(spec: ResourceQuotaSpec) -> Faults:
    path, outside = "spec.scopes", _out_of_scope(spec)
    for scope in spec.scopes:
        if scope not in _SCOPED:
            yield invalid(path, spec.scopes, "unsupported scope")
        for _ in range(outside.get(scope, 0)):
            yield invalid(path, spec.scopes, "unsupported scope applied to resource")
    yield from _conflicts(path, spec, frozenset(spec.scopes))


def _out_of_scope(spec: ResourceQuotaSpec) -> dict[str, int]:
    """Return, by scope, the number of limited resources that the scope does not apply to."""
    limited = [name for name in spec.hard if _is_standard(name)]
    return {scope: sum(name not in known for name in limited) for scope, known in _SCOPED.items()}


def _conflicts(path: str, spec: ResourceQuotaSpec, scopes: frozenset[str]) -> Faults:
    for pair in _OPPOSED:
        if scopes.issuperset(pair):
            yield invalid(path, spec.scopes or None, "conflicting scopes")


def _selector(spec: ResourceQuotaSpec) -> Faults:
    if spec.scope_selector is None:
        return
    path, asked = "spec.scopeSelector.matchExpressions", spec.scope_selector.match_expressions
    outside, shown = _out_of_scope(spec), _as_go(spec.scope_selector)
    for one in asked:
        if one.scope_name not in _SCOPED:
            yield invalid(f"{path}.scopeName", one.scope_name, "unsupported scope")
        for _ in range(outside.get(one.scope_name, 0)):
            yield invalid(path, shown, "unsupported scope applied to resource")
        yield from _requirement(path, one)
    yield from _conflicts(path, spec, frozenset(one.scope_name for one in asked))


def _as_go(selector: ScopeSelector) -> object:
    """Return a selector with Go's field names, as errors show it."""
    asked = selector.match_expressions
    named = [{"ScopeName": one.scope_name, "Operator": one.operator, "Values": one.values or None} for one in asked]
    return {"MatchExpressions": named}


def _requirement(path: str, asked: ScopedResourceSelectorRequirement) -> Faults:
    if asked.scope_name in _PLAIN and asked.operator != "Exists":
        yield invalid(f"{path}.operator", asked.operator, _ONLY_EXISTS)
    match asked.operator:
        case "In" | "NotIn":
            if not asked.values:
                why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                yield required(f"{path}.values", why)
        case "Exists" | "DoesNotExist":
            if asked.values:
                why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                yield invalid(f"{path}.values", asked.values, why)
        case _:
            yield invalid(f"{path}.operator", asked.operator, "not a valid selector operator")
