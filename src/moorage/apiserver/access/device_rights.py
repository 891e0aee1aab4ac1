"""Whose devices are whose is written by those who have a right to just that, and how they are by their drivers.

The right to a resource claim's status is not enough: what is allocated and for whom takes the same verb on
``resourceclaims/binding``, in the whole cluster; what is said of a driver's devices takes it on ``resourceclaims/driver`` under
the driver's name, as ``arbitrary-node:VERB``, or ``associated-node:VERB`` for a service account that is on the claim's node.

Source  kubernetes, pkg/registry/resource/utils.go
"""

from __future__ import annotations

from typing import Any, Final

from moorage.apiserver.access.rbac_authorizer import Authorizer, denied
from moorage.apiserver.access.rbac_rules import Attributes
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.request_targets import Target
from moorage.apiserver.vocabulary.statuses import invalid
from moorage.apiserver.vocabulary.users import User
from moorage.errors import Fault

__all__ = ["check_devices", "guards_devices"]

_CLAIMS: Final = "resourceclaims.resource.k8s.io"
_ACCOUNT: Final = "system:serviceaccount:"
_NODE: Final = "authentication.kubernetes.io/node-name"
_DEVICE: Final = ("driver", "pool", "device", "shareID")


def guards_devices(target: Target) -> bool:
    """Return True for what is asked to change which devices somebody has, or how they are."""
    return target.kind.qualified == _CLAIMS and target.subresource == "status"


def check_devices(authorizer: Authorizer, user: User, target: Target, verb: str, before: Document, after: Document) -> None:
    """Pass a claim's status that its writer may write, or raise.

    Raises  ApiError 422 for one that gives devices, or takes them, without the right to
    """
    held, given = (document.get("status") or {} for document in (before, after))
    faults = []
    gives = any(held.get(name) != given.get(name) for name in ("allocation", "reservedFor"))
    if gives and (why := _refusal(authorizer, user, target, verb, "binding")):
        needed = f'resource="resourceclaims/binding", verb="{verb}" permission: {why}'
        text = f"changing status.allocation or status.reservedFor requires {needed}"
        faults.append(Fault("Forbidden", "status.allocation", text))
    if given.get("allocation"):
        verbs = [f"associated-node:{verb}"] if _is_on(user, _node_of(given["allocation"])) else []
        verbs.append(f"arbitrary-node:{verb}")
        for driver in sorted(_drivers_of_changes(held, given)):
            refusals = [_refusal(authorizer, user, target, one, "driver", driver) for one in verbs]
            if all(refusals):
                needed = f'resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" permission: {refusals[0]}'
                faults.append(Fault("Forbidden", "status.devices", f"changing status.devices requires {needed}"))
    if faults:
        raise invalid(target.kind.kind, target.kind.group, target.name, faults)


def _refusal(authorizer: Authorizer, user: User, target: Target, verb: str, part: str, driver: str = "") -> str:
    """Return why a user has no such right; "" if they do. Rights to a driver's devices are those of the claim's namespace."""
    where = target.namespace or "" if driver else ""
    asked = Attributes(verb, target.kind.group, target.kind.resource, part, driver, where)
    verdict = authorizer.judge(user, asked)
    return "" if verdict.allowed else denied(user, asked, verdict.reason).message


def _drivers_of_changes(held: Document, given: Document) -> set[str]:
    """Return the drivers of devices of which something else is said than before."""
    old, new = (
        {tuple(one.get(key) for key in _DEVICE): one for one in status.get("devices") or ()} for status in (held, given)
    )
    return {str(key[0]) for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


def _node_of(allocation: Any) -> str:
    """Return the node that an allocation names as the only one where its devices are; "" if it names none."""
    match (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms"):
        case [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [str(node)]}], **rest}]:
            return "" if rest.get("matchExpressions") else node
    return ""


def _is_on(user: User, node: str) -> bool:
    return bool(node) and user.name.startswith(_ACCOUNT) and tuple(user.extra.get(_NODE, ())) == (node,)
