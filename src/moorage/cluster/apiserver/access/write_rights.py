"""Authorize writes for which the RBAC verb is not enough: privilege escalation, and the status of resource claims.

The check runs inside the write, on the object that is about to be stored. It therefore covers every form of write (create,
replace, every patch type, apply, dry run), and nothing can change between the check and the write.
"""

from __future__ import annotations

from typing import Any, Final

from moorage.api.documents.http_messages import MASTERS, User
from moorage.api.documents.records import Confirm
from moorage.api.documents.request_targets import Target
from moorage.api.documents.served_kinds import Document
from moorage.api.documents.statuses import forbidden, invalid, not_found, quoted
from moorage.api.rbac import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding
from moorage.cluster.apiserver.access import rbac
from moorage.errors import Fault
from moorage.rules.admission.strategy import decode_document

# Check additional rights for writing the status of resource claims: ``resourceclaims/binding`` and
# ``resourceclaims/driver``.
#
# The right to ``resourceclaims/status`` is not enough. A change of the allocation or of ``reservedFor`` also needs the same
# verb on ``resourceclaims/binding``, cluster-wide. A change of a driver's entries in ``status.devices`` needs it on
# ``resourceclaims/driver`` with the driver's name, as ``arbitrary-node:VERB``, or as ``associated-node:VERB`` for a service
# account on the claim's node.
#
# Source  kubernetes, pkg/registry/resource/utils.go

_CLAIMS: Final = "resourceclaims.resource.k8s.io"
_ACCOUNT: Final = "system:serviceaccount:"
_NODE: Final = "authentication.kubernetes.io/node-name"
_DEVICE: Final = ("driver", "pool", "device", "shareID")


def check_devices(
    authorizer: rbac.Authorizer, user: User, target: Target, verb: str, before: Document, after: Document
) -> None:
    """Check that a user may make a change to a claim's status.

    Raises  ApiError 422 if the user lacks a right that the change needs
    """
    old_status, new_status = (document.get("status") or {} for document in (before, after))
    faults = []
    changes_allocation = any(old_status.get(name) != new_status.get(name) for name in ("allocation", "reservedFor"))
    if changes_allocation and (why := _refusal(authorizer, user, target, verb, "binding")):
        needed = f'resource="resourceclaims/binding", verb="{verb}" permission: {why}'
        text = f"changing status.allocation or status.reservedFor requires {needed}"
        faults.append(Fault("Forbidden", "status.allocation", text))
    if new_status.get("allocation"):
        verbs = [f"associated-node:{verb}"] if _is_on(user, _node_of(new_status["allocation"])) else []
        verbs.append(f"arbitrary-node:{verb}")
        held, given = (
            {tuple(one.get(key) for key in _DEVICE): one for one in status.get("devices") or ()}
            for status in (old_status, new_status)
        )
        for driver in sorted({str(key[0]) for key in held.keys() | given.keys() if held.get(key) != given.get(key)}):
            refusals = [_refusal(authorizer, user, target, one, "driver", driver) for one in verbs]
            if all(refusals):
                needed = f'resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" permission: {refusals[0]}'
                faults.append(Fault("Forbidden", "status.devices", f"changing status.devices requires {needed}"))
    if faults:
        raise invalid(target.kind.kind, target.kind.group, target.name, faults)


def _refusal(authorizer: rbac.Authorizer, user: User, target: Target, verb: str, part: str, driver: str = "") -> str:
    """Return why a user lacks a right, or "". Driver rights are checked in the claim's namespace, binding rights
    cluster-wide.
    """
    where = target.namespace or "" if driver else ""
    attributes = rbac.Attributes(verb, target.kind.group, target.kind.resource, part, driver, where)
    verdict = authorizer.judge(user, attributes)
    return "" if verdict.allowed else rbac.denied(user, attributes, verdict.reason).message


def _node_of(allocation: Any) -> str:
    """Return the single node that an allocation's node selector names, or ""."""
    match (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms"):
        case [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [str(node)]}], **rest}]:
            return "" if rest.get("matchExpressions") else node
    return ""


def _is_on(user: User, node: str) -> bool:
    return bool(node) and user.name.startswith(_ACCOUNT) and tuple(user.extra.get(_NODE, ())) == (node,)


# -- escalation check --------------------------------------------------------------------------------------------------
# Refuse writes of roles and bindings that grant rights which the writer does not hold.
#
# Every create and update is checked, whatever it changes: a label alone can add a role's rules to an aggregated role, and a
# change of a binding's subjects grants the same rules to others. The check is skipped for members of ``system:masters``, for
# users who may ``escalate`` the role or ``bind`` the role that a binding references, and for changes of owner references and
# finalizers only, which the garbage collector makes.
#
# Source  kubernetes, pkg/registry/rbac: {clusterrole,role,clusterrolebinding,rolebinding}/policybased/storage.go,
#         escalation_check.go and helpers.go (IsOnlyMutatingGCFields)

#: The kinds that grant rights.
GUARDED: Final = frozenset([rbac.ROLES, rbac.CLUSTER_ROLES, rbac.ROLE_BINDINGS, rbac.CLUSTER_ROLE_BINDINGS])
_EVERYTHING: Final = (
    PolicyRule(verbs=("*",), api_groups=("*",), resources=("*",)), PolicyRule(verbs=("*",), paths=("*",)),
)  # fmt: skip
#: Limit of the work to compare the rules of one write: about 100 ms, during which the server does nothing else.
MOST_COMPARISONS: Final = 400_000
#: Metadata fields that the garbage collector changes, or that the server maintains for every write.
_NOT_RIGHTS: Final = frozenset(["finalizers", "managedFields", "ownerReferences", "resourceVersion", "selfLink"])


def check_escalation(
    authorizer: rbac.Authorizer, user: User, target: Target, before: Document | None, after: Document
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


def _check_role(authorizer: rbac.Authorizer, user: User, target: Target, old: object, new: Role | ClusterRole) -> None:
    kind, home = target.kind, target.namespace or ""
    if authorizer.judge(user, rbac.Attributes("escalate", kind.group, kind.resource, name=target.name, namespace=home)).allowed:
        return
    name = new.metadata.name
    _confirm(authorizer, user, target, name, new.rules)
    # An aggregation rule collects the rules of any role that is labelled later, and restores rules that a user removed.
    if (_aggregates(old) or _aggregates(new)) and rbac.missing(authorizer.rules_for(user, home), _EVERYTHING):
        raise forbidden(kind.resource, kind.group, name, "must have cluster-admin privileges to use the aggregationRule")


def _aggregates(role: object) -> bool:
    return isinstance(role, ClusterRole) and role.aggregation_rule is not None


def _check_binding(authorizer: rbac.Authorizer, user: User, target: Target, new: RoleBinding | ClusterRoleBinding) -> None:
    kind, home, ref = target.kind, target.namespace or "", new.role_ref
    resource = "roles" if ref.kind == "Role" else "clusterroles"
    if authorizer.judge(user, rbac.Attributes("bind", kind.group, resource, name=ref.name, namespace=home)).allowed:
        return
    rules, fault = authorizer.role_of(ref, home)
    if fault:
        raise not_found(resource, kind.group, ref.name)
    _confirm(authorizer, user, target, new.metadata.name, rules)


def _confirm(authorizer: rbac.Authorizer, user: User, target: Target, name: str, wanted: tuple[PolicyRule, ...]) -> None:
    held = authorizer.rules_for(user, target.namespace or "")
    if rbac.comparisons(held, wanted) > MOST_COMPARISONS:
        if not rbac.missing(held, _EVERYTHING):
            return
        why = "the rules have too many combinations of values to check that the user holds all of them; use several roles"
        raise forbidden(target.kind.resource, target.kind.group, name, why)
    if lacking := rbac.missing(held, wanted):
        who = f"user {quoted(user.name)} (groups=[{' '.join(map(quoted, user.groups))}])"
        listed = "\n".join(sorted(rbac.shown(rule) for rule in rbac.merged(lacking)))
        why = f"{who} is attempting to grant RBAC permissions not currently held:\n{listed}"
        raise forbidden(target.kind.resource, target.kind.group, name, why)


def write_check(authorizer: rbac.Authorizer, user: User, method: str, target: Target) -> Confirm | None:
    """Return the additional check for a user's write to a target, or None if the RBAC verb is enough."""
    if target.kind.qualified == _CLAIMS and target.subresource == "status":
        verb = "patch" if method == "PATCH" else "update"
        return lambda before, after: check_devices(authorizer, user, target, verb, before or {}, after)
    if target.kind not in GUARDED:
        return None
    return lambda before, after: check_escalation(authorizer, user, target, before, after)
