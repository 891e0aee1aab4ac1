"""Resource quotas: how much of what a namespace may hold, of all its objects or of those in some scopes."""

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
        """What an object must meet to count, scopes and selector in one form."""
        named = [ScopedResourceSelectorRequirement(scope_name=scope, operator="Exists") for scope in self.scopes]
        return (*named, *(self.scope_selector.match_expressions if self.scope_selector is not None else ()))


class ResourceQuotaStatus(Value):
    hard: ResourceList = {}
    used: ResourceList = {}


class ResourceQuota(Object):
    """What is enforced is the status: a limit in ``spec`` counts once the controller has measured what is used of it."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()

    @property
    def name(self) -> str:
        return self.metadata.name
