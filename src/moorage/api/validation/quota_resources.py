"""Resource quotas: which resources can be limited, the amounts, and the scopes that apply to them.

Source  kubernetes, pkg/apis/core/validation/validation.go, ValidateResourceQuota; pkg/apis/core/helper/helpers.go
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Final

from moorage.api import core
from moorage.api.meta import ResourceList
from moorage.api.names import check_qualified_name
from moorage.api.quantity import canonical, parse
from moorage.api.validation.faults import Faults, invalid, quantity
from moorage.api.validation.resources import is_integer_resource
from moorage.api.validation.rule_tables import Holders, Seen, check

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
