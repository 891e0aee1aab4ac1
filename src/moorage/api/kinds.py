"""The table of kinds: one row for each kind of Kubernetes object, with its names and who reads it.

A new kind is one row here. From it a simulation reads the kind, a scheduler watches it, the embedded server stores and serves
it, and events name it. Readers add only what is theirs, such as the server's short names.

Source  kube-apiserver 1.36 and 1.37, discovery
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto
from functools import cache
from typing import Final

from moorage.api.admission import RuntimeClass
from moorage.api.core import LimitRange, Namespace, Node, Pod, PodTemplate, ReplicationController, ResourceQuota, Service
from moorage.api.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from moorage.api.meta import Object
from moorage.api.pod_groups import CompositePodGroup, PodGroup, Workload
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


class Reader(Flag):
    """Which programs read the objects of a kind, in addition to the embedded server."""

    NONE = 0
    SIMULATION = auto()
    SCHEDULER = auto()
    BOTH = SIMULATION | SCHEDULER


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object.

    ``resource``   its plural name in paths
    ``type``       the struct that its objects decode to; ``Object`` if only metadata is read
    ``versions``   the API versions that can be read; the first one is written
    ``gate``       the feature gate that must be enabled for the kind to be served, or the group and version that an API server
                   serves with ``--runtime-config``; "" if none
    ``readers``    which programs read it: a simulation from files, a scheduler by list and watch
    """

    group: str
    name: str
    resource: str
    type: type[Object] = Object
    namespaced: bool = True
    versions: tuple[str, ...] = ("v1",)
    gate: str = ""
    readers: Reader = Reader.NONE

    @property
    def api_version(self) -> str:
        return self.api_versions[0]

    @property
    def api_versions(self) -> tuple[str, ...]:
        return tuple(f"{self.group}/{version}" if self.group else version for version in self.versions)

    @property
    def slot(self) -> str:
        """The plural of its name as a Python identifier: ``csi_nodes``, ``priority_classes``."""
        return _slot(self.name)


@cache
def _slot(name: str) -> str:
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return re.sub(r"y$", "ie", f"{snake}e" if snake.endswith("s") else snake) + "s"


_ADMISSION: Final = "admissionregistration.k8s.io"
_APPS: Final = "apps"
_CERTIFICATES: Final = "certificates.k8s.io"
_LIFECYCLE: Final = "lifecycle.k8s.io"
_NETWORKING: Final = "networking.k8s.io"
_STORAGE: Final = "storage.k8s.io"
_RESOURCE: Final = "resource.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"
_SCHEDULING: Final = "scheduling.k8s.io"
#: 1.37 serves the later ones; ``disruptionMode`` and the reference to the workload differ in form.
_GROUP_VERSIONS: Final = ("v1alpha2", "v1alpha3", "v1beta1")
_DEVICE_VERSIONS: Final = ("v1", "v1beta2")  # both versions have the same fields


#: All kinds, by group; within a group in the order in which the server lists them.
KINDS: Final = (
    Kind("", "ComponentStatus", "componentstatuses", namespaced=False),
    Kind("", "ConfigMap", "configmaps"),
    Kind("", "Endpoints", "endpoints"),
    Kind("", "Event", "events"),
    Kind("", "LimitRange", "limitranges", LimitRange, readers=Reader.SIMULATION),
    Kind("", "Namespace", "namespaces", Namespace, readers=Reader.BOTH, namespaced=False),
    Kind("", "Node", "nodes", Node, readers=Reader.BOTH, namespaced=False),
    Kind("", "PersistentVolume", "persistentvolumes", PersistentVolume, readers=Reader.BOTH, namespaced=False),
    Kind("", "PersistentVolumeClaim", "persistentvolumeclaims", PersistentVolumeClaim, readers=Reader.BOTH),
    Kind("", "Pod", "pods", Pod, readers=Reader.BOTH),
    Kind("", "PodTemplate", "podtemplates", PodTemplate),
    Kind("", "ReplicationController", "replicationcontrollers", ReplicationController, readers=Reader.BOTH),
    Kind("", "ResourceQuota", "resourcequotas", ResourceQuota, readers=Reader.SIMULATION),
    Kind("", "Secret", "secrets"),
    Kind("", "Service", "services", Service, readers=Reader.BOTH),
    Kind("", "ServiceAccount", "serviceaccounts"),
    Kind(_ADMISSION, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", namespaced=False),
    Kind(_ADMISSION, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", namespaced=False),
    Kind(_ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False),
    Kind(_ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False),
    Kind(_ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", namespaced=False),
    Kind(_ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False),
    Kind("apiregistration.k8s.io", "APIService", "apiservices", namespaced=False),
    Kind(_APPS, "ControllerRevision", "controllerrevisions"),
    Kind(_APPS, "DaemonSet", "daemonsets", DaemonSet, readers=Reader.SIMULATION),
    Kind(_APPS, "Deployment", "deployments", Deployment, readers=Reader.SIMULATION),
    Kind(_APPS, "ReplicaSet", "replicasets", ReplicaSet, readers=Reader.BOTH),
    Kind(_APPS, "StatefulSet", "statefulsets", StatefulSet, readers=Reader.BOTH),
    Kind("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", versions=("v2",)),
    Kind("batch", "CronJob", "cronjobs", CronJob, readers=Reader.SIMULATION),
    Kind("batch", "Job", "jobs", Job, readers=Reader.SIMULATION),
    Kind("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False),
    Kind(_CERTIFICATES, "CertificateSigningRequest", "certificatesigningrequests", namespaced=False),
    Kind(
        _CERTIFICATES,
        "ClusterTrustBundle",
        "clustertrustbundles",
        namespaced=False,
    ),
    Kind(
        _CERTIFICATES,
        "PodCertificateRequest",
        "podcertificaterequests",
    ),
    Kind("coordination.k8s.io", "Lease", "leases"),
    Kind("coordination.k8s.io", "LeaseCandidate", "leasecandidates", versions=("v1beta1",), gate="CoordinatedLeaderElection"),
    Kind("discovery.k8s.io", "EndpointSlice", "endpointslices"),
    Kind("events.k8s.io", "Event", "events"),
    Kind("flowcontrol.apiserver.k8s.io", "FlowSchema", "flowschemas", namespaced=False),
    Kind("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", "prioritylevelconfigurations", namespaced=False),
    Kind(
        "internal.apiserver.k8s.io",
        "StorageVersion",
        "storageversions",
        namespaced=False,
        versions=("v1alpha1",),
        gate="StorageVersionAPI",
    ),
    Kind(_LIFECYCLE, "Eviction", "evictions", versions=("v1alpha1",), gate=f"{_LIFECYCLE}/v1alpha1"),
    Kind(_LIFECYCLE, "EvictionRequest", "evictionrequests", versions=("v1alpha1",), gate=f"{_LIFECYCLE}/v1alpha1"),
    Kind(_NETWORKING, "IPAddress", "ipaddresses", namespaced=False),
    Kind(_NETWORKING, "Ingress", "ingresses"),
    Kind(_NETWORKING, "IngressClass", "ingressclasses", namespaced=False),
    Kind(_NETWORKING, "NetworkPolicy", "networkpolicies"),
    Kind(_NETWORKING, "ServiceCIDR", "servicecidrs", namespaced=False),
    Kind("node.k8s.io", "RuntimeClass", "runtimeclasses", RuntimeClass, readers=Reader.SIMULATION, namespaced=False),
    Kind("policy", "PodDisruptionBudget", "poddisruptionbudgets", PodDisruptionBudget, readers=Reader.BOTH),
    Kind(_RBAC, "ClusterRole", "clusterroles", ClusterRole, namespaced=False),
    Kind(_RBAC, "ClusterRoleBinding", "clusterrolebindings", ClusterRoleBinding, namespaced=False),
    Kind(_RBAC, "Role", "roles", Role),
    Kind(_RBAC, "RoleBinding", "rolebindings", RoleBinding),
    Kind(
        _RESOURCE, "DeviceClass", "deviceclasses", DeviceClass, readers=Reader.BOTH, namespaced=False, versions=_DEVICE_VERSIONS
    ),
    Kind(
        _RESOURCE,
        "DeviceTaintRule",
        "devicetaintrules",
        DeviceTaintRule,
        readers=Reader.BOTH,
        namespaced=False,
        versions=(*_DEVICE_VERSIONS, "v1alpha3"),
        gate="DRADeviceTaintRules",
    ),
    Kind(_RESOURCE, "ResourceClaim", "resourceclaims", ResourceClaim, readers=Reader.BOTH, versions=_DEVICE_VERSIONS),
    Kind(
        _RESOURCE,
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        ResourceClaimTemplate,
        readers=Reader.SIMULATION,
        versions=_DEVICE_VERSIONS,
    ),
    Kind(
        _RESOURCE,
        "ResourcePoolStatusRequest",
        "resourcepoolstatusrequests",
        namespaced=False,
        versions=("v1alpha3",),
        gate="DRAResourcePoolStatus",
    ),
    Kind(
        _RESOURCE,
        "ResourceSlice",
        "resourceslices",
        ResourceSlice,
        readers=Reader.BOTH,
        namespaced=False,
        versions=_DEVICE_VERSIONS,
    ),
    Kind(_SCHEDULING, "PriorityClass", "priorityclasses", PriorityClass, readers=Reader.SIMULATION, namespaced=False),
    Kind(_SCHEDULING, "PodGroup", "podgroups", PodGroup, readers=Reader.BOTH, versions=_GROUP_VERSIONS, gate="GenericWorkload"),
    Kind(
        _SCHEDULING,
        "CompositePodGroup",
        "compositepodgroups",
        CompositePodGroup,
        readers=Reader.BOTH,
        versions=("v1alpha3",),
        gate="CompositePodGroup",
    ),
    Kind(_SCHEDULING, "Workload", "workloads", Workload, versions=_GROUP_VERSIONS, gate="GenericWorkload"),
    Kind(_STORAGE, "CSIDriver", "csidrivers", CSIDriver, readers=Reader.BOTH, namespaced=False),
    Kind(_STORAGE, "CSINode", "csinodes", CSINode, readers=Reader.BOTH, namespaced=False),
    Kind(_STORAGE, "CSIStorageCapacity", "csistoragecapacities", CSIStorageCapacity, readers=Reader.BOTH),
    Kind(_STORAGE, "StorageClass", "storageclasses", StorageClass, readers=Reader.BOTH, namespaced=False),
    Kind(_STORAGE, "VolumeAttachment", "volumeattachments", VolumeAttachment, readers=Reader.BOTH, namespaced=False),
    Kind(_STORAGE, "VolumeAttributesClass", "volumeattributesclasses", VolumeAttributesClass, namespaced=False),
    Kind(
        "storagemigration.k8s.io",
        "StorageVersionMigration",
        "storageversionmigrations",
        namespaced=False,
        gate="StorageVersionMigrator",
    ),
)

KIND_OF_TYPE: Final[Mapping[type[Object], Kind]] = {kind.type: kind for kind in KINDS if kind.type is not Object}


def find_kind(name: str, group: str = "") -> Kind:
    """Return the row of a kind.

    Raises  LookupError if the table has no such kind
    """
    found = next((kind for kind in KINDS if (kind.group, kind.name) == (group, name)), None)
    if found is None:
        raise LookupError(f"{name}.{group}".rstrip("."))
    return found
