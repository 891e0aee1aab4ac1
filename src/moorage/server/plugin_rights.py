"""The right of a cluster's own scheduler to the kinds that its plugins name, as an administrator grants it elsewhere.

No role of a kube-scheduler covers such kinds, and without the right to list one nothing is scheduled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from moorage.api.custom_objects import CustomKind
from moorage.apiserver.access.certificate_authority import SCHEDULER
from moorage.apiserver.storage.store import Store
from moorage.apiserver.vocabulary.served_kinds import served

__all__ = ["grant_kinds"]

_GROUP: Final = "rbac.authorization.k8s.io"
_ROLES, _BINDINGS = served("clusterroles", _GROUP), served("clusterrolebindings", _GROUP)
_NAME: Final = "moorage:plugin-kinds"
#: To follow them, and for effects that make, change or delete them.
_VERBS: Final = ("create", "delete", "get", "list", "update", "watch")


def grant_kinds(store: Store, kinds: Sequence[CustomKind]) -> None:
    """Let the scheduler read and write these kinds, and no others that an earlier start named."""
    for kind in (_BINDINGS, _ROLES):
        if store.find(kind, "", _NAME) is not None:
            store.delete(kind, "", _NAME)
    if not kinds:
        return
    rules = [
        {"apiGroups": [kind.group], "resources": [kind.plural, f"{kind.plural}/status"], "verbs": list(_VERBS)}
        for kind in kinds
    ]
    user = {"apiGroup": _GROUP, "kind": "User", "name": SCHEDULER.name}
    role = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": _NAME}
    store.create(_ROLES, "", _object("ClusterRole", rules=rules))
    store.create(_BINDINGS, "", _object("ClusterRoleBinding", subjects=[user], roleRef=role))


def _object(kind: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": f"{_GROUP}/v1", "kind": kind, "metadata": {"name": _NAME}, **content}
