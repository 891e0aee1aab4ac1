"""Nobody gives what they do not have: who writes a role or a binding must hold every rule in it, or the right to give more.

Source  kubernetes, pkg/registry/rbac/{clusterrole,role,clusterrolebinding,rolebinding}/policybased/storage.go
"""

from __future__ import annotations

from typing import Final

from moorage.api.rbac import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding
from moorage.apiserver.access.authorizing import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Authorizer
from moorage.apiserver.access.rules import Attributes, merged, missing, shown
from moorage.apiserver.admission.preparing import read
from moorage.apiserver.vocabulary.kinds import Kind
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.statuses import ApiError, forbidden, not_found, quoted
from moorage.apiserver.vocabulary.users import MASTERS, User

__all__ = ["GUARDED", "check_escalation"]

#: The kinds whose objects give rights.
GUARDED: Final = frozenset([ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS])
_EVERYTHING: Final = (
    PolicyRule(verbs=("*",), api_groups=("*",), resources=("*",)), PolicyRule(verbs=("*",), paths=("*",)),
)  # fmt: skip


def check_escalation(authorizer: Authorizer, user: User, kind: Kind, before: Document | None, after: Document) -> None:
    """Pass a role or binding that its writer may write, or raise.

    Raises  ApiError 403 with the rules that the writer lacks, 404 for a binding to a role that is not there
    """
    if MASTERS in user.groups:
        return
    old = read(kind, before) if before is not None else None
    new = read(kind, after)
    if isinstance(new, (Role, ClusterRole)):
        _check_role(authorizer, user, kind, old, new)
    elif isinstance(new, (RoleBinding, ClusterRoleBinding)):
        _check_binding(authorizer, user, kind, old, new)


def _check_role(authorizer: Authorizer, user: User, kind: Kind, old: object, new: Role | ClusterRole) -> None:
    name, home = new.metadata.name, new.metadata.namespace
    if authorizer.judge(user, Attributes("escalate", kind.group, kind.resource, name=name, namespace=home)).allowed:
        return
    if isinstance(new, ClusterRole) and new.aggregation_rule is not None:
        kept = isinstance(old, ClusterRole) and old.aggregation_rule == new.aggregation_rule
        if not kept and missing(authorizer.rules_for(user, home), _EVERYTHING):
            raise forbidden(kind.resource, kind.group, name, "must have cluster-admin privileges to use an aggregationRule")
    if not isinstance(old, (Role, ClusterRole)) or old.rules != new.rules:
        _confirm(authorizer, user, kind, name, home, new.rules)


def _check_binding(
    authorizer: Authorizer, user: User, kind: Kind, old: object, new: RoleBinding | ClusterRoleBinding
) -> None:  # fmt: skip
    name, home, ref = new.metadata.name, new.metadata.namespace, new.role_ref
    if isinstance(old, type(new)) and old.subjects == new.subjects:
        return
    resource = "roles" if ref.kind == "Role" else "clusterroles"
    if authorizer.judge(user, Attributes("bind", kind.group, resource, name=ref.name, namespace=home)).allowed:
        return
    rules, fault = authorizer.role_of(ref, home)
    if fault:
        raise not_found(resource, kind.group, ref.name)
    _confirm(authorizer, user, kind, name, home, rules)


def _confirm(
    authorizer: Authorizer, user: User, kind: Kind, name: str, namespace: str, wanted: tuple[PolicyRule, ...]
) -> None:  # fmt: skip
    if lacking := missing(authorizer.rules_for(user, namespace), wanted):
        raise _escalation(user, kind, name, lacking)


def _escalation(user: User, kind: Kind, name: str, lacking: list[PolicyRule]) -> ApiError:
    groups = " ".join(quoted(group) for group in user.groups)
    who = f"user {quoted(user.name)} (groups=[{groups}])"
    listed = "\n".join(sorted(shown(rule) for rule in merged(lacking)))
    why = f"{who} is attempting to grant RBAC permissions not currently held:\n{listed}"
    return forbidden(kind.resource, kind.group, name, why)
