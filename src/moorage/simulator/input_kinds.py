"""The kinds of objects that a simulation reads, and the kinds it ignores, with the reason.

Every object in a dump is of a kind that is read, that is known but ignored, or that is unknown. The report counts the latter
two, so that users see which objects took no part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from moorage.api.admission import RuntimeClass
from moorage.api.core import LimitRange, Namespace, Node, Pod, ReplicationController, Service
from moorage.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from moorage.api.pod_groups import PodGroup
from moorage.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
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

__all__ = ["KINDS", "InputKind", "find_kind", "why_unused"]


@dataclass(frozen=True, slots=True)
class InputKind:
    """A kind that is read. ``slot`` is the attribute of ``ClusterInput`` that holds its objects."""

    name: str
    group: str
    versions: tuple[str, ...]
    type: type[Any]
    slot: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``apiVersion`` in the current release."""
        return f"{self.group}/{self.versions[0]}" if self.group else self.versions[0]


_V1 = ("v1",)
_DEVICES = ("v1", "v1beta2")  # equal schemas

KINDS: Final = (
    InputKind("Node", "", _V1, Node, "nodes", namespaced=False),
    InputKind("Pod", "", _V1, Pod, "pods"),
    InputKind("Namespace", "", _V1, Namespace, "namespaces", namespaced=False),
    InputKind("Service", "", _V1, Service, "services"),
    InputKind("ReplicationController", "", _V1, ReplicationController, "replication_controllers"),
    InputKind("LimitRange", "", _V1, LimitRange, "limit_ranges"),
    InputKind("PersistentVolume", "", _V1, PersistentVolume, "persistent_volumes", namespaced=False),
    InputKind("PersistentVolumeClaim", "", _V1, PersistentVolumeClaim, "persistent_volume_claims"),
    InputKind("Deployment", "apps", _V1, Deployment, "deployments"),
    InputKind("ReplicaSet", "apps", _V1, ReplicaSet, "replica_sets"),
    InputKind("StatefulSet", "apps", _V1, StatefulSet, "stateful_sets"),
    InputKind("DaemonSet", "apps", _V1, DaemonSet, "daemon_sets"),
    InputKind("Job", "batch", _V1, Job, "jobs"),
    InputKind("CronJob", "batch", _V1, CronJob, "cron_jobs"),
    InputKind("PodDisruptionBudget", "policy", _V1, PodDisruptionBudget, "pod_disruption_budgets"),
    InputKind("PriorityClass", "scheduling.k8s.io", _V1, PriorityClass, "priority_classes", namespaced=False),
    InputKind("PodGroup", "scheduling.k8s.io", ("v1alpha2",), PodGroup, "pod_groups"),
    InputKind("RuntimeClass", "node.k8s.io", _V1, RuntimeClass, "runtime_classes", namespaced=False),
    InputKind("StorageClass", "storage.k8s.io", _V1, StorageClass, "storage_classes", namespaced=False),
    InputKind("CSINode", "storage.k8s.io", _V1, CSINode, "csi_nodes", namespaced=False),
    InputKind("CSIDriver", "storage.k8s.io", _V1, CSIDriver, "csi_drivers", namespaced=False),
    InputKind("CSIStorageCapacity", "storage.k8s.io", _V1, CSIStorageCapacity, "csi_storage_capacities"),
    InputKind("VolumeAttachment", "storage.k8s.io", _V1, VolumeAttachment, "volume_attachments", namespaced=False),
    InputKind("ResourceClaim", "resource.k8s.io", _DEVICES, ResourceClaim, "resource_claims"),
    InputKind("ResourceClaimTemplate", "resource.k8s.io", _DEVICES, ResourceClaimTemplate, "resource_claim_templates"),
    InputKind("ResourceSlice", "resource.k8s.io", _DEVICES, ResourceSlice, "resource_slices", namespaced=False),
    InputKind("DeviceClass", "resource.k8s.io", _DEVICES, DeviceClass, "device_classes", namespaced=False),
)

_BY_GROUP = {(kind.group, kind.name): kind for kind in KINDS}
_BY_VERSION = {
    (f"{kind.group}/{version}" if kind.group else version, kind.name): kind for kind in KINDS for version in kind.versions
}

_NOT_READ = "scheduling does not read it"
#: Kinds of a stock cluster that are ignored, by group.
_LEFT_ASIDE: Final = {
    "": ("Binding", "ComponentStatus", "ConfigMap", "Endpoints", "Event", "PodTemplate", "Secret", "ServiceAccount"),
    "admissionregistration.k8s.io": (
        "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
    ),
    "apiextensions.k8s.io": ("CustomResourceDefinition",),
    "apiregistration.k8s.io": ("APIService",),
    "apps": ("ControllerRevision",),
    "certificates.k8s.io": ("CertificateSigningRequest", "ClusterTrustBundle", "PodCertificateRequest"),
    "coordination.k8s.io": ("Lease", "LeaseCandidate"),
    "discovery.k8s.io": ("EndpointSlice",),
    "events.k8s.io": ("Event",),
    "flowcontrol.apiserver.k8s.io": ("FlowSchema", "PriorityLevelConfiguration"),
    "gateway.networking.k8s.io": ("Gateway", "GatewayClass", "HTTPRoute"),
    "metrics.k8s.io": ("NodeMetrics", "PodMetrics"),
    "networking.k8s.io": ("IPAddress", "Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR"),
    "rbac.authorization.k8s.io": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "storage.k8s.io": ("VolumeAttributesClass",),
}  # fmt: skip
_KNOWN = {(group, name) for group, names in _LEFT_ASIDE.items() for name in names}
_REASONS: Final = {
    ("", "ResourceQuota"): "quota is not enforced here",
    ("autoscaling", "HorizontalPodAutoscaler"): "replicas stay as they are given",
    ("resource.k8s.io", "DeviceTaintRule"): "device taints are read from resource slices alone",
    ("scheduling.k8s.io", "Workload"): "scheduling reads the pod groups that are made from it",
    ("kubescheduler.config.k8s.io", "KubeSchedulerConfiguration"): "give it with --config",
}


def find_kind(api_version: str, name: str) -> InputKind | None:
    """Return the kind for this ``apiVersion`` and ``kind`` if it is read."""
    return _BY_VERSION.get((api_version, name))


def why_unused(api_version: str, name: str) -> str:
    """Return why objects of this ``apiVersion`` and ``kind`` are ignored."""
    group, slash, _ = api_version.rpartition("/")
    known = _BY_GROUP.get((group if slash else "", name))
    if known is not None:
        return f"this version of the API is not read; convert it to {known.api_version}"
    if reason := _REASONS.get((group, name)):
        return reason
    if (group, name) in _KNOWN:
        return _NOT_READ
    moved = [kind.api_version for kind in KINDS if kind.name == name]
    return f"unknown kind; {name} is read as {moved[0]}" if moved else "unknown kind"
