"""Audit policies: which requests the audit log records, and how much of them.

The first rule that fits a request gives the level of its events; a request that no rule fits is not recorded.

Source  apiserver, pkg/apis/audit/v1, pkg/audit/policy
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from moorage.api.documents.http_messages import User
from moorage.cluster.apiserver.access.rbac import covers_path
from moorage.cluster.apiserver.http.audited_requests import AuditedRequest

__all__ = ["METADATA", "AuditPolicy", "AuditRule", "GroupResources", "PolicyFields", "Recording"]


class PolicyFields(msgspec.Struct, rename="camel", frozen=True):
    """Fields of a policy file, by their names there."""


class GroupResources(PolicyFields, frozen=True):
    """Resources of an API group, or some objects of them."""

    group: str = ""
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()


class AuditRule(PolicyFields, frozen=True):
    """Which requests have a level."""

    level: str = ""
    users: tuple[str, ...] = ()
    user_groups: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resources: tuple[GroupResources, ...] = ()
    namespaces: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")
    omit_stages: tuple[str, ...] = ()
    omit_managed_fields: bool | None = None


class Recording(NamedTuple):
    """How much of a request is recorded: the level and stages of its events."""

    level: str = "None"
    omitted: frozenset[str] = frozenset()
    omits_managed_fields: bool = False


class AuditPolicy(PolicyFields, frozen=True):
    """An audit policy."""

    rules: tuple[AuditRule, ...] = ()
    omit_stages: tuple[str, ...] = ()
    omit_managed_fields: bool = False

    def recording(self, user: User | None, request: AuditedRequest) -> Recording:
        """Return how much of a request is recorded; ``user`` is None for one that was not authenticated."""
        for rule in self.rules:
            if _fits(rule, user, request):
                own = rule.omit_managed_fields
                omits = self.omit_managed_fields if own is None else own
                return Recording(rule.level, frozenset({*self.omit_stages, *rule.omit_stages}), omits)
        return Recording()


#: The policy of a log without a policy file.
METADATA: Final = AuditPolicy((AuditRule("Metadata"),), ("RequestReceived",))


def _fits(rule: AuditRule, user: User | None, request: AuditedRequest) -> bool:
    if rule.users and (user is None or user.name not in rule.users):
        return False
    if rule.user_groups and (user is None or not set(rule.user_groups).intersection(user.groups)):
        return False
    if rule.verbs and request.verb not in rule.verbs:
        return False
    if rule.namespaces or rule.resources:
        return (
            request.is_resource
            and (not rule.namespaces or request.namespace in rule.namespaces)
            and (not rule.resources or any(_fits_resource(one, request) for one in rule.resources))
        )
    if rule.non_resource_urls:
        return not request.is_resource and any(covers_path(one, request.path) for one in rule.non_resource_urls)
    return True


def _fits_resource(wanted: GroupResources, request: AuditedRequest) -> bool:
    if wanted.group not in {"*", request.group}:
        return False
    if not wanted.resources:
        return True
    resource, part = request.resource, request.subresource
    fitting = {"*", f"{resource}/{part}" if part else resource, f"{resource}/*", *([f"*/{part}"] if part else ())}
    is_named = not wanted.resource_names or request.name in wanted.resource_names
    return is_named and not fitting.isdisjoint(wanted.resources)
