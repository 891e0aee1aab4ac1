"""Check what a write makes, where the right to the verb is not enough: who gives rights must hold them, and so for devices.

The check runs inside the write, on the object that is about to be stored. So it sees the same object whatever form the write
has (create, replace, every kind of patch, apply, dry run), and nothing can change in between.
"""

from __future__ import annotations

from moorage.apiserver.access.device_rights import check_devices, guards_devices
from moorage.apiserver.access.escalation_check import GUARDED, check_escalation
from moorage.apiserver.access.rbac_authorizer import Authorizer
from moorage.apiserver.vocabulary.records import Confirm, Document
from moorage.apiserver.vocabulary.request_targets import Target
from moorage.apiserver.vocabulary.users import User

__all__ = ["confirmation"]


def confirmation(authorizer: Authorizer, user: User, method: str, target: Target) -> Confirm | None:
    """Return what a user's write to a target has to pass; None where the right to the verb is enough."""
    if guards_devices(target):
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
