"""Storage objects: volumes, claims, classes and CSI objects.

Sources of in-tree disks keep their wire form, as in ``moorage.api.core.Volume``; the volume plugins read the fields they need.
Field defaults are the API server's fixed ones.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import field

from moorage.api.core import NodeSelector
from moorage.api.meta import Int64, LabelSelector, Object, ObjectMeta, Quantity, ResourceList, Value

#: The finalizer of VolumeAttributesClasses; a controller removes it when no claim or volume uses the class.
ATTRIBUTES_PROTECTION: Final = "kubernetes.io/vac-protection"


class ObjectReference(Value):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class TypedReference(Value):
    """The data source of a claim. ``namespace`` is empty for an object in the claim's namespace."""

    api_group: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""


# -- volumes ------------------------------------------------------------------------------------------------------------


class VolumeNodeAffinity(Value):
    required: NodeSelector | None = None


class CSIPersistentVolumeSource(Value):
    driver: str = ""
    volume_handle: str = ""
    read_only: bool = False
    fs_type: str = ""
    volume_attributes: dict[str, str] = {}


class PersistentVolumeSpec(Value):
    capacity: ResourceList = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str = "Retain"
    storage_class_name: str = ""
    volume_mode: str | None = "Filesystem"
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None
    mount_options: tuple[str, ...] = ()
    csi: CSIPersistentVolumeSource | None = None
    local: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None
    nfs: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    azure_file: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    vsphere_volume: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None
    rbd: dict[str, Any] | None = None
    iscsi: dict[str, Any] | None = None
    fc: dict[str, Any] | None = None


class PersistentVolumeStatus(Value):
    phase: str = "Pending"


class PersistentVolume(Object):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def required_affinity(self) -> NodeSelector | None:
        """The nodes that can access the volume; None: all."""
        return None if self.spec.node_affinity is None else self.spec.node_affinity.required


# -- claims -------------------------------------------------------------------------------------------------------------


class VolumeResourceRequirements(Value):
    requests: ResourceList = {}
    limits: ResourceList = {}


class PersistentVolumeClaimSpec(Value):
    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: str = ""
    #: None means the cluster's default class, an empty text no class at all.
    storage_class_name: str | None = None
    volume_mode: str | None = "Filesystem"
    data_source: TypedReference | None = None
    data_source_ref: TypedReference | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(Value):
    phase: str = "Pending"
    access_modes: tuple[str, ...] = ()
    capacity: ResourceList = {}
    allocated_resources: ResourceList = {}
    current_volume_attributes_class_name: str | None = None


class PersistentVolumeClaim(Object):
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class PersistentVolumeClaimTemplate(Value):
    """The template of an ephemeral volume's claim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


# -- classes ------------------------------------------------------------------------------------------------------------


class TopologySelectorLabelRequirement(Value):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Value):
    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(Object):
    provisioner: str = ""
    parameters: dict[str, str] = {}
    reclaim_policy: str | None = "Delete"
    allow_volume_expansion: bool | None = None
    #: None only if a document says ``null``; VolumeBinding reports that as an error.
    volume_binding_mode: str | None = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()
    mount_options: tuple[str, ...] = ()


class VolumeAttributesClass(Object):
    """Parameters that a CSI driver applies to existing volumes. Scheduling does not read them."""

    driver_name: str = ""
    parameters: dict[str, str] = {}


# -- CSI ----------------------------------------------------------------------------------------------------------------


class VolumeNodeResources(Value):
    #: The maximum number of the driver's volumes on a node; None means no limit.
    count: Int64 | None = None


class CSINodeDriver(Value):
    name: str = ""
    node_id: str = field(name="nodeID", default="")
    topology_keys: tuple[str, ...] = ()
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Value):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Object):
    """Named like its node. The annotation ``storage.alpha.kubernetes.io/migrated-plugins`` lists migrated in-tree drivers."""

    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Value):
    attach_required: bool | None = True
    storage_capacity: bool | None = False
    volume_lifecycle_modes: tuple[str, ...] = ("Persistent",)
    node_allocatable_update_period_seconds: Int64 | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(Object):
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Object):
    #: None: the capacity is not reachable from any node.
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(Value):
    persistent_volume_name: str | None = None
    inline_volume_spec: PersistentVolumeSpec | None = None


class VolumeAttachmentSpec(Value):
    attacher: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()
    node_name: str = ""


class VolumeAttachmentStatus(Value):
    attached: bool = False


class VolumeAttachment(Object):
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()
