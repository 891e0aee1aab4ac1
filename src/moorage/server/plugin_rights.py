"""Grant the embedded cluster's scheduler access to the kinds that its plugins name, and to pods if a plugin changes them.

No default role covers custom kinds, and a scheduler that may not list one of them schedules nothing. kube-scheduler's role does
not allow changes of pods; a plugin that changes pods in PreBind sets ``writes_pods``.
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
#: The verbs that watching needs, and effects that create, change or delete objects.
_VERBS: Final = ("create", "delete", "get", "list", "update", "watch")


def grant_kinds(store: Store, kinds: Sequence[CustomKind], *, pods: bool = False) -> None:
    """Grant the scheduler access to these kinds, and to update ``pods``; revoke access that an earlier start granted."""
    for kind in (_BINDINGS, _ROLES):
        if store.find(kind, "", _NAME) is not None:
            store.delete(kind, "", _NAME)
    if not kinds and not pods:
        return
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "update"]}] if pods else []
    rules += [
        {"apiGroups": [kind.group], "resources": [kind.plural, f"{kind.plural}/status"], "verbs": list(_VERBS)}
        for kind in kinds
    ]
    user = {"apiGroup": _GROUP, "kind": "User", "name": SCHEDULER.name}
    role = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": _NAME}
    store.create(_ROLES, "", _object("ClusterRole", rules=rules))
    store.create(_BINDINGS, "", _object("ClusterRoleBinding", subjects=[user], roleRef=role))


def _object(kind: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": f"{_GROUP}/v1", "kind": kind, "metadata": {"name": _NAME}, **content}
