"""Questions about callers, answered on the spot: who am I, whose token is this, may I.

Rights are not divided here: members of ``system:masters`` may do everything, other users may ask who they are and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moorage.apiserver.guarding import Guard, User
from moorage.apiserver.kinds import Review
from moorage.apiserver.records import Document

__all__ = ["answer", "may"]

_ADMINS = "system:masters"


def answer(review: Review, document: Document, user: User, guard: Guard) -> Document:
    """Return a review with its status filled in."""
    spec = document.get("spec")
    status = _status(review, spec if isinstance(spec, Mapping) else {}, user, guard)
    return {**document, "apiVersion": f"{review.group}/{review.version}", "kind": review.kind, "status": status}


def _status(review: Review, spec: Mapping[str, Any], user: User, guard: Guard) -> Document:
    match review.kind:
        case "SelfSubjectReview":
            return {"userInfo": _info(user)}
        case "TokenReview":
            found = guard.user_of(f"Bearer {spec.get('token', '')}")
            return {"authenticated": True, "user": _info(found)} if found else {"user": {}}
        case "SelfSubjectRulesReview":
            everything = ["*"]
            resources = [{"verbs": everything, "apiGroups": everything, "resources": everything}]
            return {
                "resourceRules": resources,
                "nonResourceRules": [{"verbs": everything, "nonResourceURLs": everything}],
                "incomplete": False,
            }
        case "SelfSubjectAccessReview":
            return _access(user.groups)
        case _:
            return _access(spec.get("groups") or ())


def may(groups: Any) -> bool:
    """Return True for members of a group with rights."""
    return isinstance(groups, (list, tuple)) and _ADMINS in groups


def _access(groups: Any) -> Document:
    if may(groups):
        return {"allowed": True}
    return {"allowed": False, "reason": f"only members of {_ADMINS} have rights here"}


def _info(user: User) -> Document:
    shown = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    return {key: value for key, value in shown.items() if value}
