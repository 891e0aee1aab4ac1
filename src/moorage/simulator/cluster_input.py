"""The input of a simulation: a cluster's objects by kind, and a report of what was read, ignored and missing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from moorage.api.admission import RuntimeClass
from moorage.api.core import LimitRange, Namespace, Node, Pod, ReplicationController, Service
from moorage.api.custom_objects import CustomObject
from moorage.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from moorage.api.meta import Object
from moorage.api.pod_groups import PodGroup
from moorage.api.quotas import ResourceQuota
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
from moorage.printable import one_line

__all__ = ["SLOTS", "ClusterInput", "InputReport", "Unused"]


@dataclass(frozen=True, slots=True)
class Unused:
    """Objects of one kind that are ignored, and why; ``unknown``: Moorage does not know the kind."""

    kind: str
    api_version: str
    count: int
    why: str
    unknown: bool = False

    def __str__(self) -> str:
        version = "" if self.api_version == "v1" else f" {self.api_version}"
        return one_line(f"{self.count} {self.kind}{version}: {self.why}")


@dataclass(frozen=True, slots=True)
class InputReport:
    """A report on the input: the number of objects of each kind, used and unused, and notes of one line.

    ``taken_at``        when the objects were read from a cluster, if that is known
    ``server_version``  the version of the cluster's API server, such as ``v1.34.1``, if that is known
    """

    read: tuple[tuple[str, int], ...] = ()
    unused: tuple[Unused, ...] = ()
    notes: tuple[str, ...] = ()
    taken_at: str = ""
    server_version: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", tuple(map(one_line, self.notes)))

    def lines(self) -> list[str]:
        """Return the report for the user, one sentence a line; empty if all of the input was used unchanged."""
        return [*map(str, self.unused), *self.notes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInput:
    """Every object that simulations read, each kind in the order it was given.

    ``others`` are objects of kinds without a field here, ``custom`` objects of kinds that plugins name.
    """

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    services: tuple[Service, ...] = ()
    replication_controllers: tuple[ReplicationController, ...] = ()
    limit_ranges: tuple[LimitRange, ...] = ()
    resource_quotas: tuple[ResourceQuota, ...] = ()
    deployments: tuple[Deployment, ...] = ()
    replica_sets: tuple[ReplicaSet, ...] = ()
    stateful_sets: tuple[StatefulSet, ...] = ()
    daemon_sets: tuple[DaemonSet, ...] = ()
    jobs: tuple[Job, ...] = ()
    cron_jobs: tuple[CronJob, ...] = ()
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    pod_groups: tuple[PodGroup, ...] = ()
    runtime_classes: tuple[RuntimeClass, ...] = ()
    persistent_volumes: tuple[PersistentVolume, ...] = ()
    persistent_volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    csi_nodes: tuple[CSINode, ...] = ()
    csi_drivers: tuple[CSIDriver, ...] = ()
    csi_storage_capacities: tuple[CSIStorageCapacity, ...] = ()
    volume_attachments: tuple[VolumeAttachment, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()
    resource_claim_templates: tuple[ResourceClaimTemplate, ...] = ()
    resource_slices: tuple[ResourceSlice, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    others: tuple[Object, ...] = ()
    custom: tuple[CustomObject, ...] = ()
    report: InputReport = InputReport()


#: The fields that hold the objects of one kind: ``Kind.slot``.
SLOTS: Final = frozenset(field.name for field in fields(ClusterInput)) - {"custom", "others", "report"}
