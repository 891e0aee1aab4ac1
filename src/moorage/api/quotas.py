"""Resource quotas: limits on the resources and objects of a namespace, for all objects or those in some scopes."""

from __future__ import annotations

from moorage.api.meta import Object, ResourceList, Value

__all__ = [
    "ResourceQuota", "ResourceQuotaSpec", "ResourceQuotaStatus", "ScopeSelector", "ScopedResourceSelectorRequirement",
]  # fmt: skip


class ScopedResourceSelectorRequirement(Value):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(Value):
    match_expressions: tuple[ScopedResourceSelectorRequirement, ...] = ()


class ResourceQuotaSpec(Value):
    hard: ResourceList = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None

    @property
    def requirements(self) -> tuple[ScopedResourceSelectorRequirement, ...]:
        """The requirements an object must meet to count: scopes and scope selector in one form."""
        named = [ScopedResourceSelectorRequirement(scope_name=scope, operator="Exists") for scope in self.scopes]
        return (*named, *(self.scope_selector.match_expressions if self.scope_selector is not None else ()))


class ResourceQuotaStatus(Value):
    hard: ResourceList = {}
    used: ResourceList = {}


class ResourceQuota(Object):
    """A quota. The status is enforced: a limit in ``spec`` applies once the controller has measured its usage."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()
