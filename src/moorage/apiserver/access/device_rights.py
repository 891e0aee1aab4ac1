"""Check additional rights for writing the status of resource claims: ``resourceclaims/binding`` and
``resourceclaims/driver``.

The right to ``resourceclaims/status`` is not enough. A change of the allocation or of ``reservedFor`` also needs the same
verb on ``resourceclaims/binding``, cluster-wide. A change of a driver's entries in ``status.devices`` needs it on
``resourceclaims/driver`` with the driver's name, as ``arbitrary-node:VERB``, or as ``associated-node:VERB`` for a service
account on the claim's node.

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

__all__ = ["check_devices", "writes_device_status"]

_CLAIMS: Final = "resourceclaims.resource.k8s.io"
_ACCOUNT: Final = "system:serviceaccount:"
_NODE: Final = "authentication.kubernetes.io/node-name"
_DEVICE: Final = ("driver", "pool", "device", "shareID")


def writes_device_status(target: Target) -> bool:
    """Return True for requests that write the status of a resource claim."""
    return target.kind.qualified == _CLAIMS and target.subresource == "status"


def check_devices(authorizer: Authorizer, user: User, target: Target, verb: str, before: Document, after: Document) -> None:
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
        for driver in sorted(_drivers_of_changes(old_status, new_status)):
            refusals = [_refusal(authorizer, user, target, one, "driver", driver) for one in verbs]
            if all(refusals):
                needed = f'resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" permission: {refusals[0]}'
                faults.append(Fault("Forbidden", "status.devices", f"changing status.devices requires {needed}"))
    if faults:
        raise invalid(target.kind.kind, target.kind.group, target.name, faults)


def _refusal(authorizer: Authorizer, user: User, target: Target, verb: str, part: str, driver: str = "") -> str:
    """Return why a user lacks a right, or "". Driver rights are checked in the claim's namespace, binding rights
    cluster-wide.
    """
    where = target.namespace or "" if driver else ""
    attributes = Attributes(verb, target.kind.group, target.kind.resource, part, driver, where)
    verdict = authorizer.judge(user, attributes)
    return "" if verdict.allowed else denied(user, attributes, verdict.reason).message


def _drivers_of_changes(old_status: Document, new_status: Document) -> set[str]:
    """Return the drivers whose entries in ``status.devices`` differ."""
    old, new = (
        {tuple(one.get(key) for key in _DEVICE): one for one in status.get("devices") or ()}
        for status in (old_status, new_status)
    )
    return {str(key[0]) for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


def _node_of(allocation: Any) -> str:
    """Return the single node that an allocation's node selector names, or ""."""
    match (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms"):
        case [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [str(node)]}], **rest}]:
            return "" if rest.get("matchExpressions") else node
    return ""


def _is_on(user: User, node: str) -> bool:
    return bool(node) and user.name.startswith(_ACCOUNT) and tuple(user.extra.get(_NODE, ())) == (node,)
