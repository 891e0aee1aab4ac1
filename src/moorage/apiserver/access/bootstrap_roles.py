"""The bootstrap roles of a cluster and their bindings.

Each rule is one line: groups, resources, verbs. The roles list only resources that this server has, except
``system:kube-scheduler`` and ``system:volume-scheduler``, which are complete so that a scheduler with these rights also
works on other clusters. One role, ``moorage:controllers``, replaces the separate roles of Kubernetes' controllers. There is
no node authorizer, so all nodes share ``system:node``, which can neither read secrets nor create tokens.

Source  kubernetes, plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go and namespace_policy.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind, served

__all__ = ["LABEL", "bootstrap_objects"]

_RBAC: Final = "rbac.authorization.k8s.io"
LABEL: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AGGREGATE: Final = "rbac.authorization.k8s.io/aggregate-to-"

Rule = dict[str, list[str]]

_READ: Final = "get list watch"
_WRITE: Final = "create delete deletecollection patch update"
_ALL: Final = f"{_READ} {_WRITE}"
_CHANGE: Final = "get list watch update patch"


def _on(groups: str, resources: str, verbs: str, names: str = "") -> Rule:
    """Return a rule for resources; ``core`` is the group with the empty name."""
    made = {
        "apiGroups": ["" if group == "core" else group for group in groups.split()],
        "resources": resources.split(),
        "verbs": verbs.split(),
    }
    return {**made, "resourceNames": names.split()} if names else made


def _at(paths: str) -> Rule:
    return {"nonResourceURLs": paths.split(), "verbs": ["get"]}


_SCALED: Final = "deployments deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale"

_VIEW: Final = [
    _on("core", "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers "
        "replicationcontrollers/scale serviceaccounts services services/status", _READ),
    _on("core", "bindings events limitranges namespaces namespaces/status pods/log pods/status "
        "replicationcontrollers/status resourcequotas resourcequotas/status", _READ),
    _on("events.k8s.io", "events", _READ),
    _on("apps", f"controllerrevisions daemonsets daemonsets/status {_SCALED} deployments/status replicasets/status "
        "statefulsets/status", _READ),
    _on("batch", "cronjobs cronjobs/status jobs jobs/status", _READ),
    _on("networking.k8s.io", "ingresses ingresses/status", _READ),
    _on("policy", "poddisruptionbudgets poddisruptionbudgets/status", _READ),
    _on("resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates", _READ),
    _on("metrics.k8s.io", "nodes pods", _READ),
]  # fmt: skip
_EDIT: Final = [
    _on("core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy", _READ),
    _on("core", "serviceaccounts", "impersonate"),
    _on("core", "pods pods/attach pods/exec pods/portforward pods/proxy", _WRITE),
    _on("core", "pods/eviction", "create"),
    _on("core", "configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets "
        "serviceaccounts services services/proxy", _WRITE),
    _on("core", "serviceaccounts/token", "create"),
    _on("apps", f"daemonsets {_SCALED} deployments/rollback", _WRITE),
    _on("batch", "cronjobs jobs", _WRITE),
    _on("networking.k8s.io", "ingresses", _WRITE),
    _on("policy", "poddisruptionbudgets", _WRITE),
    _on("coordination.k8s.io", "leases", _ALL),
    _on("resource.k8s.io", "resourceclaims resourceclaimtemplates", _WRITE),
]  # fmt: skip
_ADMIN: Final = [
    _on("authorization.k8s.io", "localsubjectaccessreviews", "create"),
    _on(_RBAC, "rolebindings roles", _ALL),
]
_SCHEDULER: Final = [
    _on("core events.k8s.io", "events", "create patch update"),
    _on("coordination.k8s.io", "leases", "create"),
    _on("coordination.k8s.io", "leases", "get list update watch", "kube-scheduler"),
    _on("coordination.k8s.io", "leasecandidates", _ALL),
    _on("core", "nodes", _READ),
    _on("core", "pods", "delete get list watch"),
    _on("core", "bindings pods/binding", "create"),
    _on("core", "pods/status", "patch update"),
    _on("core", "replicationcontrollers services", _READ),
    _on("apps extensions", "replicasets", _READ),
    _on("apps", "statefulsets", _READ),
    _on("policy", "poddisruptionbudgets", _READ),
    _on("core", "persistentvolumeclaims persistentvolumes", _READ),
    _on("authentication.k8s.io", "tokenreviews", "create"),
    _on("authorization.k8s.io", "subjectaccessreviews", "create"),
    _on("storage.k8s.io", "csinodes", _READ),
    _on("core", "namespaces", _READ),
    _on("storage.k8s.io", "csidrivers", _READ),
    _on("storage.k8s.io", "csistoragecapacities", _READ),
    _on("storage.k8s.io", "volumeattachments", _READ),
    _on("resource.k8s.io", "deviceclasses", _READ),
    _on("resource.k8s.io", "resourceclaims resourceclaims/status", _CHANGE),
    _on("resource.k8s.io", "resourceclaims/binding", "patch update"),
    _on("resource.k8s.io", "resourceclaims", "create delete"),
    _on("resource.k8s.io", "devicetaintrules resourceslices", _READ),
    _on("core", "pods/finalizers", "update"),
]
_VOLUMES: Final = [
    _on("core", "persistentvolumeclaims persistentvolumes", _CHANGE),
    _on("storage.k8s.io", "storageclasses", _READ),
]
_NODE: Final = [
    _on("authentication.k8s.io", "tokenreviews", "create"),
    _on("authorization.k8s.io", "localsubjectaccessreviews subjectaccessreviews", "create"),
    _on("core", "services", _READ),
    _on("core", "nodes", "create get list watch patch update"),
    _on("core", "nodes/status", "patch update"),
    _on("core events.k8s.io", "events", "create patch update"),
    _on("core", "pods", "create delete get list watch"),
    _on("core", "pods/status", "patch update"),
    _on("core", "pods/eviction", "create"),
    _on("core", "configmaps persistentvolumeclaims persistentvolumes endpoints", "get"),
    _on("coordination.k8s.io", "leases", "create delete get patch update"),
    _on("node.k8s.io", "runtimeclasses", _READ),
    _on("resource.k8s.io", "resourceclaims", "get"),
    _on("resource.k8s.io", "resourceslices", _ALL),
    _on("storage.k8s.io", "csidrivers", _READ),
    _on("storage.k8s.io", "csinodes", "create delete get patch update"),
    _on("storage.k8s.io", "volumeattachments", "get"),
]
_CONTROLLERS: Final = [
    _on("*", "*", _READ),
    _on("core events.k8s.io", "events", "create patch update"),
    _on("core", "pods persistentvolumeclaims persistentvolumes endpoints serviceaccounts", _WRITE),
    _on("core", "pods/eviction serviceaccounts/token", "create"),
    _on("core", "namespaces nodes", "delete patch update"),
    _on("core", "namespaces/finalize", "update"),
    _on("core", "secrets configmaps", "create delete patch update"),
    _on("apps", "controllerrevisions daemonsets deployments replicasets statefulsets", _WRITE),
    _on("batch", "cronjobs jobs", _WRITE),
    _on("policy", "poddisruptionbudgets", "patch update"),
    _on("resource.k8s.io", "resourceclaims", _WRITE),
    _on("storage.k8s.io", "volumeattachments", _WRITE),
    _on("coordination.k8s.io", "leases", "create delete patch update"),
    _on("*", "*/finalizers */scale */status", "patch update"),
    _on("authentication.k8s.io", "tokenreviews", "create"),
    _on("authorization.k8s.io", "subjectaccessreviews", "create"),
]

_CLUSTER_ROLES: Final[dict[str, list[Rule]]] = {
    "cluster-admin": [_on("*", "*", "*"), {"nonResourceURLs": ["*"], "verbs": ["*"]}],
    "system:discovery": [_at("/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/")],
    "system:public-info-viewer": [_at("/healthz /livez /readyz /version /version/")],
    "system:monitoring": [_at("/healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*")],
    "system:basic-user": [
        _on("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
        _on("authentication.k8s.io", "selfsubjectreviews", "create"),
    ],
    "system:auth-delegator": [
        _on("authentication.k8s.io", "tokenreviews", "create"),
        _on("authorization.k8s.io", "subjectaccessreviews", "create"),
    ],
    "system:kube-scheduler": _SCHEDULER,
    "system:volume-scheduler": _VOLUMES,
    "system:node": _NODE,
    "moorage:controllers": _CONTROLLERS,
    "system:aggregate-to-view": _VIEW,
    "system:aggregate-to-edit": _EDIT,
    "system:aggregate-to-admin": _ADMIN,
}
#: Target role of each aggregation label: editors have all rights of viewers, and admins all rights of editors.
_AGGREGATED: Final = {
    "system:aggregate-to-view": "view", "system:aggregate-to-edit": "edit", "system:aggregate-to-admin": "admin",
    "view": "edit", "edit": "admin",
}  # fmt: skip
_ROLES: Final[dict[str, list[Rule]]] = {
    "extension-apiserver-authentication-reader": [_on("core", "configmaps", _READ, "extension-apiserver-authentication")],
    "system::leader-locking-kube-scheduler": [
        _on("core", "configmaps", "watch"),
        _on("core", "configmaps", "get update", "kube-scheduler"),
    ],
}
_USERS: Final = {"system:kube-scheduler": "User", "system:kube-controller-manager": "User"}
_CLUSTER_BINDINGS: Final[dict[str, tuple[str, ...]]] = {
    "cluster-admin": ("system:masters",),
    "system:discovery": ("system:authenticated",),
    "system:basic-user": ("system:authenticated",),
    "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
    "system:monitoring": ("system:monitoring",),
    "system:kube-scheduler": ("system:kube-scheduler",),
    "system:volume-scheduler": ("system:kube-scheduler",),
    "system:node": ("system:nodes",),
    "moorage:controllers": ("system:kube-controller-manager",),
}
_BINDINGS: Final = {
    "system::extension-apiserver-authentication-reader": ("extension-apiserver-authentication-reader", tuple(_USERS)),
    "system::leader-locking-kube-scheduler": ("system::leader-locking-kube-scheduler", ("system:kube-scheduler",)),
}


#: Additional rules of bootstrap roles, by the feature gate that enables them.
_WITH_GATES: Final[dict[str, dict[str, list[Rule]]]] = {
    "GenericWorkload": {
        "system:kube-scheduler": [
            _on("scheduling.k8s.io", "podgroups", _READ),
            _on("scheduling.k8s.io", "podgroups/status", "patch update"),
        ],
        "moorage:controllers": [_on("scheduling.k8s.io", "podgroups workloads", "create update")],
        "system:aggregate-to-view": [_on("scheduling.k8s.io", "podgroups podgroups/status workloads", _READ)],
        "system:aggregate-to-edit": [_on("scheduling.k8s.io", "podgroups workloads", _WRITE)],
    },
}


def bootstrap_objects(gates: frozenset[str] = frozenset()) -> Iterator[tuple[ServedKind, Document]]:
    """Yield the bootstrap roles and bindings, roles before the bindings that reference them."""
    more = [roles for gate, roles in _WITH_GATES.items() if gate in gates]
    for name, rules in _CLUSTER_ROLES.items():
        added = [rule for roles in more for rule in roles.get(name, ())]
        yield served("clusterroles", _RBAC), _object("ClusterRole", name, rules=[*rules, *added])
    for name in ("view", "edit", "admin"):
        selectors = [{"matchLabels": {f"{_AGGREGATE}{name}": "true"}}]
        made = _object("ClusterRole", name, rules=[], aggregationRule={"clusterRoleSelectors": selectors})
        yield served("clusterroles", _RBAC), made
    for name, rules in _ROLES.items():
        yield served("roles", _RBAC), _object("Role", name, "kube-system", rules=rules)
    for name, subjects in _CLUSTER_BINDINGS.items():
        yield served("clusterrolebindings", _RBAC), _binding("ClusterRoleBinding", name, "", "ClusterRole", name, subjects)
    for name, (role, users) in _BINDINGS.items():
        yield served("rolebindings", _RBAC), _binding("RoleBinding", name, "kube-system", "Role", role, users)


def _binding(kind: str, name: str, namespace: str, role_kind: str, role: str, subjects: tuple[str, ...]) -> Document:
    listed = [{"kind": _USERS.get(one, "Group"), "apiGroup": _RBAC, "name": one} for one in subjects]
    return _object(kind, name, namespace, subjects=listed, roleRef={"apiGroup": _RBAC, "kind": role_kind, "name": role})


def _object(kind: str, name: str, namespace: str = "", **content: Any) -> Document:
    metadata: Document = {"name": name, "labels": dict(LABEL)}
    metadata["annotations"] = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
    if namespace:
        metadata["namespace"] = namespace
    if kind == "ClusterRole" and name in _AGGREGATED:
        metadata["labels"][f"{_AGGREGATE}{_AGGREGATED[name]}"] = "true"
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, **content}
