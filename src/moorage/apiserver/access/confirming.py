"""Authorize writes for which the RBAC verb is not enough: privilege escalation and the status of devices.

The check runs inside the write, on the object that is about to be stored. It therefore covers every form of write (create,
replace, every patch type, apply, dry run), and nothing can change between the check and the write.
"""

from __future__ import annotations

from moorage.apiserver.access.device_rights import check_devices, writes_device_status
from moorage.apiserver.access.escalation_check import GUARDED, check_escalation
from moorage.apiserver.access.rbac_authorizer import Authorizer
from moorage.apiserver.vocabulary.records import Confirm, Document
from moorage.apiserver.vocabulary.request_targets import Target
from moorage.apiserver.vocabulary.users import User

__all__ = ["write_check"]


def write_check(authorizer: Authorizer, user: User, method: str, target: Target) -> Confirm | None:
    """Return the additional check for a user's write to a target, or None if the RBAC verb is enough."""
    if writes_device_status(target):
        return _devices(authorizer, user, target, "patch" if method == "PATCH" else "update")
    return _rights(authorizer, user, target) if target.kind in GUARDED else None


def _devices(authorizer: Authorizer, user: User, target: Target, verb: str) -> Confirm:
    def confirm(before: Document | None, after: Document) -> None:
        check_devices(authorizer, user, target, verb, before or {}, after)

    return confirm


def _rights(authorizer: Authorizer, user: User, target: Target) -> Confirm:
    def confirm(before: Document | None, after: Document) -> None:
        check_escalation(authorizer, user, target, before, after)

    return confirm
