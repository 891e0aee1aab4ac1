"""Validate the fields of API objects that scheduling reads, with the API server's rules.

``validate`` takes an object with defaults and returns all faults with their paths. It does not check parts that scheduling does
not read (images, probes, mounts, security), nor rules for updates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from moorage.api.admission import RuntimeClass
from moorage.api.core import LimitRange, Namespace, Node, Pod, PodTemplate, ReplicationController, ResourceQuota, Service
from moorage.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from moorage.api.meta import Value
from moorage.api.pod_groups import PodGroup, Workload
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
from moorage.api.validation import devices, nodes, pod_groups, rbac, storage, workloads
from moorage.api.validation import resources as quotas
from moorage.api.validation.faults import Faults, object_meta
from moorage.api.validation.pods import PodValidator, pod_faults
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
from moorage.errors import Fault

__all__ = ["PodValidator", "faults_of", "validate"]


def _in_namespace(found: Any) -> Faults:
    return object_meta(found.metadata, True)


def _cluster_wide(found: Any) -> Faults:
    return object_meta(found.metadata, False)


_CHECKS: Final[Mapping[type[Value], Callable[[Any], Faults]]] = {
    CSIDriver: _cluster_wide,
    CSINode: storage.csi_node_faults,
    CSIStorageCapacity: storage.capacity_faults,
    ClusterRole: rbac.cluster_role_faults,
    ClusterRoleBinding: rbac.role_binding_faults,
    CronJob: workloads.cron_job_faults,
    DaemonSet: workloads.daemon_set_faults,
    Deployment: workloads.deployment_faults,
    DeviceClass: devices.device_class_faults,
    Job: workloads.job_faults,
    LimitRange: nodes.limit_range_faults,
    Namespace: nodes.namespace_faults,
    Node: nodes.node_faults,
    PersistentVolume: storage.volume_faults,
    PersistentVolumeClaim: storage.claim_faults,
    Pod: pod_faults,
    PodDisruptionBudget: workloads.budget_faults,
    PodGroup: pod_groups.pod_group_faults,
    PodTemplate: workloads.pod_template_object_faults,
    PriorityClass: workloads.priority_class_faults,
    ReplicaSet: workloads.replica_set_faults,
    ReplicationController: workloads.replication_controller_faults,
    ResourceClaim: devices.resource_claim_faults,
    ResourceClaimTemplate: devices.resource_claim_template_faults,
    ResourceQuota: quotas.quota_faults,
    ResourceSlice: devices.resource_slice_faults,
    Role: rbac.role_faults,
    RoleBinding: rbac.role_binding_faults,
    RuntimeClass: _cluster_wide,
    Service: _in_namespace,
    StatefulSet: workloads.stateful_set_faults,
    StorageClass: storage.storage_class_faults,
    VolumeAttachment: _cluster_wide,
    VolumeAttributesClass: storage.attributes_class_faults,
    Workload: pod_groups.workload_faults,
}


def validate(found: Value) -> list[Fault]:
    """Return all faults of an object; none for kinds without rules.

    For many pods in a row, one ``PodValidator`` is faster.
    """
    return list(faults_of(found))


def faults_of(found: Value) -> Faults:
    """Yield the faults of an object, so that a caller can stop after some."""
    check = _CHECKS.get(type(found))
    return iter(()) if check is None else check(found)
