"""The served kinds: names, verbs, subresources and field selectors of each resource.

Source  kube-apiserver 1.36, discovery and pkg/registry/*/strategy.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from moorage.api.admission import RuntimeClass
from moorage.api.core import LimitRange, Namespace, Node, Pod, PodTemplate, ReplicationController, Service
from moorage.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from moorage.api.meta import Object
from moorage.api.names import check_dns1123_label, check_dns1123_subdomain
from moorage.api.pod_groups import PodGroup, Workload
from moorage.api.quotas import ResourceQuota
from moorage.api.rbac import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from moorage.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
    VolumeAttributesClass,
)
from moorage.api.workloads import (
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    StatefulSet,
)

__all__ = [
    "ALL_GATES",
    "KINDS",
    "MEASURED",
    "REVIEWS",
    "VERBS",
    "Review",
    "ServedKind",
    "enabled_kinds",
    "find_kind",
    "find_served",
    "served",
]  # fmt: skip

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, eq=False)
class ServedKind:
    """A resource whose objects are stored, or computed on request.

    ``struct`` is the type that scheduling decodes and that is validated; None for kinds whose metadata alone is validated.
    ``status_on_create`` is the initial status of a new object; None keeps the status that was sent. ``fields`` are the
    field selectors in addition to name and namespace, each with its default. ``gate`` is the feature gate that enables the
    kind, "" for none.
    """

    group: str
    kind: str
    resource: str
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    struct: type[Object] | None = None
    subresources: tuple[str, ...] = ()
    in_all: bool = False
    has_generation: bool = False
    status_on_create: dict[str, Any] | None = None
    fields: tuple[tuple[str, str], ...] = ()
    check_name: Callable[[str], list[str]] = check_dns1123_subdomain
    version: str = "v1"
    verbs: tuple[str, ...] = VERBS
    gate: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def go(self) -> str:
        """The internal Go type in kube-apiserver."""
        return f"{self.group.partition('.')[0] or 'core'}.{self.kind}"

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @cached_property
    def field_defaults(self) -> dict[str, str]:
        return dict(self.fields)

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    @property
    def qualified(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


@dataclass(frozen=True)
class Review:
    """A kind that is created and not stored: a review, or a pod binding."""

    group: str
    kind: str
    resource: str
    namespaced: bool = False
    version: str = "v1"
    verbs: tuple[str, ...] = ("create",)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


_STATUS: Final = ("status",)
_SCALE_AND_STATUS: Final = ("scale", "status")
_POD_SUBRESOURCES: Final = (
    "attach", "binding", "ephemeralcontainers", "eviction", "exec", "log", "portforward", "resize", "status",
)  # fmt: skip
_NODE_NAMES: Final = (("spec.unschedulable", "false"),)
_POD_FIELDS: Final = (
    ("spec.hostNetwork", "false"), ("spec.nodeName", ""), ("spec.restartPolicy", ""), ("spec.schedulerName", ""),
    ("spec.serviceAccountName", ""), ("status.nominatedNodeName", ""), ("status.phase", ""), ("status.podIP", ""),
    ("status.podIPs", ""),
)  # fmt: skip
_REFERENCE: Final = ("apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid")
_EVENT_FIELDS: Final = (
    *((f"involvedObject.{name}", "") for name in _REFERENCE),
    ("reason", ""), ("reportingComponent", ""), ("source", ""), ("type", ""),
)  # fmt: skip
_NEW_EVENT_FIELDS: Final = (
    *((f"regarding.{name}", "") for name in _REFERENCE), ("reason", ""), ("reportingController", ""), ("type", ""),
)  # fmt: skip


_APPS: Final = "apps"
_STORAGE: Final = "storage.k8s.io"
_RESOURCE: Final = "resource.k8s.io"
_EVENTS: Final = "events.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"
_SCHEDULING: Final = "scheduling.k8s.io"

KINDS: Final[tuple[ServedKind, ...]] = (
    ServedKind("", "ConfigMap", "configmaps", ("cm",)),
    ServedKind("", "Endpoints", "endpoints", ("ep",)),
    ServedKind("", "Event", "events", ("ev",), fields=_EVENT_FIELDS),
    ServedKind("", "LimitRange", "limitranges", ("limits",), struct=LimitRange),
    ServedKind(
        "",
        "Namespace",
        "namespaces",
        ("ns",),
        namespaced=False,
        struct=Namespace,
        subresources=("finalize", "status"),
        verbs=tuple(verb for verb in VERBS if verb != "deletecollection"),
        status_on_create={"phase": "Active"},
        fields=(("status.phase", ""),),
        check_name=check_dns1123_label,
    ),
    ServedKind("", "Node", "nodes", ("no",), namespaced=False, struct=Node, subresources=_STATUS, fields=_NODE_NAMES),
    ServedKind(
        "",
        "PersistentVolume",
        "persistentvolumes",
        ("pv",),
        namespaced=False,
        struct=PersistentVolume,
        subresources=_STATUS,
        status_on_create={"phase": "Pending"},
    ),
    ServedKind(
        "",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        ("pvc",),
        struct=PersistentVolumeClaim,
        subresources=_STATUS,
        status_on_create={"phase": "Pending"},
    ),
    ServedKind(
        "",
        "Pod",
        "pods",
        ("po",),
        struct=Pod,
        subresources=_POD_SUBRESOURCES,
        in_all=True,
        has_generation=True,
        status_on_create={"phase": "Pending"},
        fields=_POD_FIELDS,
    ),
    ServedKind("", "PodTemplate", "podtemplates", struct=PodTemplate, has_generation=True),
    ServedKind(
        "",
        "ReplicationController",
        "replicationcontrollers",
        ("rc",),
        struct=ReplicationController,
        subresources=_SCALE_AND_STATUS,
        in_all=True,
        has_generation=True,
        status_on_create={"replicas": 0},
        fields=(("status.replicas", "0"),),
    ),
    ServedKind(
        "", "ResourceQuota", "resourcequotas", ("quota",), struct=ResourceQuota, subresources=_STATUS, status_on_create={}
    ),
    ServedKind("", "Secret", "secrets", fields=(("type", ""),)),
    ServedKind(
        "",
        "Service",
        "services",
        ("svc",),
        struct=Service,
        subresources=_STATUS,
        in_all=True,
        status_on_create={"loadBalancer": {}},
        fields=(("spec.clusterIP", ""), ("spec.type", "")),
    ),
    ServedKind("", "ServiceAccount", "serviceaccounts", ("sa",), subresources=("token",)),
    ServedKind(_APPS, "ControllerRevision", "controllerrevisions"),
    ServedKind(
        _APPS,
        "DaemonSet",
        "daemonsets",
        ("ds",),
        struct=DaemonSet,
        subresources=_STATUS,
        in_all=True,
        has_generation=True,
        status_on_create={},
    ),
    ServedKind(
        _APPS,
        "Deployment",
        "deployments",
        ("deploy",),
        struct=Deployment,
        subresources=_SCALE_AND_STATUS,
        in_all=True,
        has_generation=True,
        status_on_create={},
    ),
    ServedKind(
        _APPS,
        "ReplicaSet",
        "replicasets",
        ("rs",),
        struct=ReplicaSet,
        subresources=_SCALE_AND_STATUS,
        in_all=True,
        has_generation=True,
        status_on_create={"replicas": 0},
    ),
    ServedKind(
        _APPS,
        "StatefulSet",
        "statefulsets",
        ("sts",),
        struct=StatefulSet,
        subresources=_SCALE_AND_STATUS,
        in_all=True,
        has_generation=True,
        status_on_create={"replicas": 0},
    ),
    ServedKind(
        "batch",
        "CronJob",
        "cronjobs",
        ("cj",),
        struct=CronJob,
        subresources=_STATUS,
        in_all=True,
        has_generation=True,
        status_on_create={},
    ),
    ServedKind(
        "batch",
        "Job",
        "jobs",
        struct=Job,
        subresources=_STATUS,
        in_all=True,
        has_generation=True,
        status_on_create={},
        fields=(("status.successful", "0"),),
    ),
    # No definition exists or can be created. kubectl lists them before it reports a kind as unknown.
    ServedKind(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        ("crd", "crds"),
        namespaced=False,
        verbs=("get", "list", "watch"),
    ),
    ServedKind("coordination.k8s.io", "Lease", "leases"),
    ServedKind(_EVENTS, "Event", "events", ("ev",), fields=_NEW_EVENT_FIELDS),
    ServedKind(
        "networking.k8s.io",
        "Ingress",
        "ingresses",
        ("ing",),
        subresources=_STATUS,
        has_generation=True,
        status_on_create={"loadBalancer": {}},
    ),
    ServedKind("node.k8s.io", "RuntimeClass", "runtimeclasses", namespaced=False, struct=RuntimeClass),
    ServedKind(
        "policy",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        ("pdb",),
        struct=PodDisruptionBudget,
        subresources=_STATUS,
        has_generation=True,
        status_on_create={"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0},
    ),
    ServedKind(_RBAC, "ClusterRole", "clusterroles", namespaced=False, struct=ClusterRole),
    ServedKind(_RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False, struct=ClusterRoleBinding),
    ServedKind(_RBAC, "Role", "roles", struct=Role),
    ServedKind(_RBAC, "RoleBinding", "rolebindings", struct=RoleBinding),
    ServedKind(_RESOURCE, "DeviceClass", "deviceclasses", namespaced=False, struct=DeviceClass, has_generation=True),
    ServedKind(_RESOURCE, "ResourceClaim", "resourceclaims", struct=ResourceClaim, subresources=_STATUS, status_on_create={}),
    ServedKind(_RESOURCE, "ResourceClaimTemplate", "resourceclaimtemplates", struct=ResourceClaimTemplate),
    ServedKind(
        _RESOURCE,
        "ResourceSlice",
        "resourceslices",
        namespaced=False,
        struct=ResourceSlice,
        has_generation=True,
        fields=(("spec.driver", ""), ("spec.nodeName", "")),
    ),
    ServedKind(
        _SCHEDULING,
        "PriorityClass",
        "priorityclasses",
        ("pc",),
        namespaced=False,
        struct=PriorityClass,
        has_generation=True,
    ),
    ServedKind(
        _SCHEDULING,
        "PodGroup",
        "podgroups",
        struct=PodGroup,
        subresources=_STATUS,
        status_on_create={},
        version="v1alpha2",
        gate="GenericWorkload",
    ),
    ServedKind(_SCHEDULING, "Workload", "workloads", struct=Workload, version="v1alpha2", gate="GenericWorkload"),
    ServedKind(_STORAGE, "CSIDriver", "csidrivers", namespaced=False, struct=CSIDriver),
    ServedKind(_STORAGE, "CSINode", "csinodes", namespaced=False, struct=CSINode),
    ServedKind(_STORAGE, "CSIStorageCapacity", "csistoragecapacities", struct=CSIStorageCapacity),
    ServedKind(_STORAGE, "StorageClass", "storageclasses", ("sc",), namespaced=False, struct=StorageClass),
    ServedKind(
        _STORAGE,
        "VolumeAttachment",
        "volumeattachments",
        namespaced=False,
        struct=VolumeAttachment,
        subresources=_STATUS,
        status_on_create={},
    ),
    ServedKind(
        _STORAGE,
        "VolumeAttributesClass",
        "volumeattributesclasses",
        ("vac",),
        namespaced=False,
        struct=VolumeAttributesClass,
    ),
)

REVIEWS: Final[tuple[Review, ...]] = (
    Review("", "Binding", "bindings", namespaced=True),
    Review("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews"),
    Review("authentication.k8s.io", "TokenReview", "tokenreviews"),
    Review("authorization.k8s.io", "LocalSubjectAccessReview", "localsubjectaccessreviews", namespaced=True),
    Review("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    Review("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    Review("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews"),
)

#: Kinds that are computed on request and not stored; see ``usage_metrics``.
MEASURED: Final[tuple[ServedKind, ...]] = (
    ServedKind("metrics.k8s.io", "NodeMetrics", "nodes", namespaced=False, version="v1beta1", verbs=("get", "list")),
    ServedKind("metrics.k8s.io", "PodMetrics", "pods", version="v1beta1", verbs=("get", "list")),
)

#: The gates that enable kinds.
ALL_GATES: Final = frozenset(kind.gate for kind in KINDS if kind.gate)


def enabled_kinds(gates: frozenset[str]) -> tuple[ServedKind, ...]:
    """Return the stored kinds that are served with these gates enabled."""
    return tuple(kind for kind in KINDS if not kind.gate or kind.gate in gates)


_BY_RESOURCE: Final = {(kind.group, kind.version, kind.resource): kind for kind in KINDS}


def find_kind(resource: str, group: str = "", version: str = "v1") -> ServedKind | None:
    """Return the stored kind of a resource name, or None."""
    return _BY_RESOURCE.get((group, version, resource))


_MEASURED_BY_RESOURCE: Final = {(kind.group, kind.version, kind.resource): kind for kind in MEASURED}


def find_served(resource: str, group: str = "", version: str = "v1") -> ServedKind | None:
    """Return the stored or computed kind of a resource name, or None."""
    return find_kind(resource, group, version) or _MEASURED_BY_RESOURCE.get((group, version, resource))


def served(resource: str, group: str = "", version: str = "v1") -> ServedKind:
    """Return the kind of a resource name that the server is known to have."""
    found = find_kind(resource, group, version)
    if found is None:
        raise LookupError(resource)
    return found
