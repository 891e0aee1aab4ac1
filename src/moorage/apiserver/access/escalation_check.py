"""Refuse writes of roles and bindings that grant rights which the writer does not hold.

Every create and update is checked, whatever it changes: a label alone can add a role's rules to an aggregated role, and a
change of a binding's subjects grants the same rules to others. The check is skipped for members of ``system:masters``, for
users who may ``escalate`` the role or ``bind`` the role that a binding references, and for changes of owner references and
finalizers only, which the garbage collector makes.

Source  kubernetes, pkg/registry/rbac: {clusterrole,role,clusterrolebinding,rolebinding}/policybased/storage.go,
        escalation_check.go and helpers.go (IsOnlyMutatingGCFields)
"""

from __future__ import annotations

from typing import Final

from moorage.api.rbac import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding
from moorage.apiserver.access.rbac_authorizer import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Authorizer
from moorage.apiserver.access.rbac_rules import Attributes, comparisons, merged, missing, shown
from moorage.apiserver.admission.strategy import decode_document
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.request_targets import Target
from moorage.apiserver.vocabulary.statuses import ApiError, forbidden, not_found, quoted
from moorage.apiserver.vocabulary.users import MASTERS, User

__all__ = ["GUARDED", "MOST_COMPARISONS", "check_escalation"]

#: The kinds that grant rights.
GUARDED: Final = frozenset([ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS])
_EVERYTHING: Final = (
    PolicyRule(verbs=("*",), api_groups=("*",), resources=("*",)), PolicyRule(verbs=("*",), paths=("*",)),
)  # fmt: skip
#: Limit of the work to compare the rules of one write: about 100 ms, during which the server does nothing else.
MOST_COMPARISONS: Final = 400_000
#: Metadata fields that the garbage collector changes, or that the server maintains for every write.
_NOT_RIGHTS: Final = frozenset(["finalizers", "managedFields", "ownerReferences", "resourceVersion", "selfLink"])


def check_escalation(
    authorizer: Authorizer, user: User, target: Target, before: Document | None, after: Document
) -> None:  # fmt: skip
    """Check that a user may write a role or binding.

    Raises  ApiError 403 listing the rules that the user lacks, 404 for a binding to a role that does not exist
    """
    if MASTERS in user.groups or (before is not None and _without_upkeep(before) == _without_upkeep(after)):
        return
    new = decode_document(target.kind, after)
    if isinstance(new, (Role, ClusterRole)):
        old = decode_document(target.kind, before) if before is not None else None
        _check_role(authorizer, user, target, old, new)
    elif isinstance(new, (RoleBinding, ClusterRoleBinding)):
        _check_binding(authorizer, user, target, new)


def _without_upkeep(document: Document) -> Document:
    metadata = {name: value for name, value in document["metadata"].items() if name not in _NOT_RIGHTS}
    return {**document, "metadata": metadata}


def _check_role(authorizer: Authorizer, user: User, target: Target, old: object, new: Role | ClusterRole) -> None:
    kind, home = target.kind, target.namespace or ""
    if authorizer.judge(user, Attributes("escalate", kind.group, kind.resource, name=target.name, namespace=home)).allowed:
        return
    name = new.metadata.name
    _confirm(authorizer, user, target, name, new.rules)
    # An aggregation rule collects the rules of any role that is labelled later, and restores rules that a user removed.
    if (_aggregates(old) or _aggregates(new)) and missing(authorizer.rules_for(user, home), _EVERYTHING):
        raise forbidden(kind.resource, kind.group, name, "must have cluster-admin privileges to use the aggregationRule")


def _aggregates(role: object) -> bool:
    return isinstance(role, ClusterRole) and role.aggregation_rule is not None


def _check_binding(authorizer: Authorizer, user: User, target: Target, new: RoleBinding | ClusterRoleBinding) -> None:
    kind, home, ref = target.kind, target.namespace or "", new.role_ref
    resource = "roles" if ref.kind == "Role" else "clusterroles"
    if authorizer.judge(user, Attributes("bind", kind.group, resource, name=ref.name, namespace=home)).allowed:
        return
    rules, fault = authorizer.role_of(ref, home)
    if fault:
        raise not_found(resource, kind.group, ref.name)
    _confirm(authorizer, user, target, new.metadata.name, rules)


def _confirm(authorizer: Authorizer, user: User, target: Target, name: str, wanted: tuple[PolicyRule, ...]) -> None:
    held = authorizer.rules_for(user, target.namespace or "")
    if comparisons(held, wanted) > MOST_COMPARISONS:
        if not missing(held, _EVERYTHING):
            return
        why = "the rules have too many combinations of values to check that the user holds all of them; use several roles"
        raise forbidden(target.kind.resource, target.kind.group, name, why)
    if lacking := missing(held, wanted):
        raise _escalation(user, target, name, lacking)


def _escalation(user: User, target: Target, name: str, lacking: list[PolicyRule]) -> ApiError:
    groups = " ".join(quoted(group) for group in user.groups)
    who = f"user {quoted(user.name)} (groups=[{groups}])"
    listed = "\n".join(sorted(shown(rule) for rule in merged(lacking)))
    why = f"{who} is attempting to grant RBAC permissions not currently held:\n{listed}"
    return forbidden(target.kind.resource, target.kind.group, name, why)
