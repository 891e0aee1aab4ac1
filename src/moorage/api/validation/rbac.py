"""RBAC objects: what a role needs to grant anything, and which subjects a binding may name.

Source  kubernetes, pkg/apis/rbac/validation/validation.go
"""

from __future__ import annotations

from typing import Final

from moorage.api.names import check_dns1123_subdomain
from moorage.api.rbac import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject
from moorage.api.validation.faults import Faults, invalid, label_selector, named, object_meta, required, unsupported

GROUP: Final = "rbac.authorization.k8s.io"


def check_path_segment(name: str) -> list[str]:
    """Return why a name is not a valid path segment; names of roles have no other rules."""
    if name in {".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{mark}'" for mark in "/%" if mark in name]


def role_faults(role: Role) -> Faults:
    """Yield the faults of a role."""
    yield from object_meta(role.metadata, True, check_path_segment)
    for i, rule in enumerate(role.rules):
        yield from _rule(f"rules[{i}]", rule, True)


def cluster_role_faults(role: ClusterRole) -> Faults:
    """Yield the faults of a cluster role."""
    yield from object_meta(role.metadata, False, check_path_segment)
    for i, rule in enumerate(role.rules):
        yield from _rule(f"rules[{i}]", rule, False)
    if role.aggregation_rule is not None:
        path = "aggregationRule.clusterRoleSelectors"
        if not role.aggregation_rule.cluster_role_selectors:
            yield required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
        for i, selector in enumerate(role.aggregation_rule.cluster_role_selectors):
            yield from label_selector(f"{path}[{i}]", selector)


def _rule(path: str, rule: PolicyRule, namespaced: bool) -> Faults:
    if not rule.verbs:
        yield required(f"{path}.verbs", "verbs must contain at least one value")
    if rule.paths:
        if namespaced:
            yield invalid(f"{path}.nonResourceURLs", rule.paths, "namespaced rules cannot apply to non-resource URLs")
        if rule.api_groups or rule.resources or rule.resource_names:
            why = "rules cannot apply to both regular resources and non-resource URLs"
            yield invalid(f"{path}.nonResourceURLs", rule.paths, why)
        return
    if not rule.api_groups:
        yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.resources:
        yield required(f"{path}.resources", "resource rules must supply at least one resource")


def role_binding_faults(binding: RoleBinding | ClusterRoleBinding) -> Faults:
    """Yield the faults of a role binding or a cluster role binding."""
    namespaced = isinstance(binding, RoleBinding)
    yield from object_meta(binding.metadata, namespaced, check_path_segment)
    yield from _role_ref(binding.role_ref, ("ClusterRole", "Role") if namespaced else ("ClusterRole",))
    for i, subject in enumerate(binding.subjects):
        yield from _subject(f"subjects[{i}]", subject, namespaced)


def _role_ref(ref: RoleRef, kinds: tuple[str, ...]) -> Faults:
    if ref.api_group != GROUP:
        yield unsupported("roleRef.apiGroup", ref.api_group, [GROUP])
    if ref.kind not in kinds:
        yield unsupported("roleRef.kind", ref.kind, kinds)
    if not ref.name:
        yield required("roleRef.name")
    else:
        yield from named("roleRef.name", ref.name, check_path_segment)


def _subject(path: str, subject: Subject, namespaced: bool) -> Faults:
    if not subject.name:
        yield required(f"{path}.name")
    if subject.kind == "ServiceAccount":
        if subject.name:
            yield from named(f"{path}.name", subject.name, check_dns1123_subdomain)
        if subject.api_group:
            yield unsupported(f"{path}.apiGroup", subject.api_group, [""])
        if not namespaced and not subject.namespace:
            yield required(f"{path}.namespace")
    elif subject.kind in {"User", "Group"}:
        if subject.api_group != GROUP:
            yield unsupported(f"{path}.apiGroup", subject.api_group, [GROUP])
    else:
        yield unsupported(f"{path}.kind", subject.kind, ["ServiceAccount", "User", "Group"])
