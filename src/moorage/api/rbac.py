"""RBAC: rules, the roles that hold them, and the bindings that grant roles to subjects.

Source  api, rbac/v1/types.go
"""

from __future__ import annotations

import msgspec

from moorage.api.meta import LabelSelector, Object, Value


class PolicyRule(Value):
    """Verbs on resources or non-resource URLs. ``*`` means all; empty ``resource_names`` means every name."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    paths: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")


class Role(Object):
    rules: tuple[PolicyRule, ...] = ()


class AggregationRule(Value):
    """Selectors of ClusterRoles whose rules are added; a role that one of them selects counts."""

    cluster_role_selectors: tuple[LabelSelector, ...] = ()


class ClusterRole(Object):
    rules: tuple[PolicyRule, ...] = ()
    aggregation_rule: AggregationRule | None = None


class Subject(Value):
    """Whom a binding grants a role: a User or a Group by its name, or a ServiceAccount in a namespace."""

    kind: str = ""
    api_group: str = ""
    name: str = ""
    namespace: str = ""


class RoleRef(Value):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class RoleBinding(Object):
    subjects: tuple[Subject, ...] = ()
    role_ref: RoleRef = RoleRef()


class ClusterRoleBinding(Object):
    subjects: tuple[Subject, ...] = ()
    role_ref: RoleRef = RoleRef()
