"""The volume that a provisioner would create for a claim: its size, and the nodes that can reach it.

If a node was selected for the pod first, the volume can be reached from nodes with the same topology: the node's values of the
labels that the driver lists on its CSINode, or else of the keys in the class's allowed topologies. A volume that is created
before any pod has a node can be reached from all allowed topologies. A driver without topology creates volumes that every node
can reach.

Source  sig-storage-lib-external-provisioner, controller.go; external-provisioner, pkg/controller/topology.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from moorage.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from moorage.api.meta import ObjectMeta
from moorage.api.storage import (
    CSINode,
    CSIPersistentVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
    TopologySelectorTerm,
    VolumeNodeAffinity,
)
from moorage.controllers.machinery.generated_names import stable_uid
from moorage.plugins.volumes.claim_lookup import SELECTED_NODE
from moorage.plugins.volumes.csi_migration import driver_of
from moorage.plugins.volumes.provisioning import NOT_SUPPORTED

__all__ = ["asked_of", "made_for", "makes_volumes"]

#: Annotation of a volume: the provisioner that created it.
_PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"


def makes_volumes(storage_class: StorageClass) -> bool:
    """Return whether volumes of the class are provisioned dynamically."""
    return storage_class.provisioner not in {"", NOT_SUPPORTED}


def asked_of(storage_class: StorageClass) -> str:
    """Return the name of the class's provisioner; for an in-tree provisioner, the CSI driver that replaced it."""
    return driver_of(storage_class.provisioner) or storage_class.provisioner


def made_for(
    claim: PersistentVolumeClaim,
    storage_class: StorageClass,
    labels_of: Callable[[str], Mapping[str, str] | None],
    csi_node_of: Callable[[str], CSINode | None],
) -> PersistentVolume | None:
    """Return the volume to create for a claim; None if the node selected for it no longer exists.

    ``labels_of`` and ``csi_node_of`` return the labels and the CSINode of a node by name, None if there are none.
    """
    driver = asked_of(storage_class)
    selected = claim.metadata.annotations.get(SELECTED_NODE)
    if selected is None:
        affinity = _affinity(_terms(storage_class.allowed_topologies))
    else:
        labels = labels_of(selected)
        if labels is None:
            return None
        keys = _driver_keys(csi_node_of(selected), driver) or _class_keys(storage_class.allowed_topologies)
        affinity = _affinity([[(key, (labels[key],)) for key in keys if key in labels]])
    meta, spec = claim.metadata, claim.spec
    name = f"pvc-{meta.uid or stable_uid('PersistentVolumeClaim', meta.namespace, meta.name)}"
    return PersistentVolume(
        metadata=ObjectMeta(
            name=name,
            uid=stable_uid("PersistentVolume", "", name),
            annotations={_PROVISIONED_BY: storage_class.provisioner},
        ),
        spec=PersistentVolumeSpec(
            capacity={key: amount for key, amount in spec.resources.requests.items() if key == "storage"},
            access_modes=spec.access_modes,
            persistent_volume_reclaim_policy=storage_class.reclaim_policy or "Delete",
            storage_class_name=storage_class.name,
            volume_mode=spec.volume_mode,
            node_affinity=affinity,
            volume_attributes_class_name=spec.volume_attributes_class_name,
            mount_options=storage_class.mount_options,
            # The name of a driver cannot contain a slash; names of provisioners that are not CSI drivers can.
            csi=CSIPersistentVolumeSource(driver=driver.replace("/", "."), volume_handle=name),
        ),
    )


_Asked = list[tuple[str, tuple[str, ...]]]


def _terms(allowed: Iterable[TopologySelectorTerm]) -> list[_Asked]:
    return [[(one.key, one.values) for one in term.match_label_expressions] for term in allowed]


def _class_keys(allowed: Iterable[TopologySelectorTerm]) -> list[str]:
    return list(dict.fromkeys(key for term in _terms(allowed) for key, _ in term))


def _driver_keys(csi_node: CSINode | None, driver: str) -> tuple[str, ...]:
    drivers: Mapping[str, tuple[str, ...]] = {d.name: d.topology_keys for d in csi_node.spec.drivers} if csi_node else {}
    return drivers.get(driver, ())


def _affinity(terms: Iterable[_Asked]) -> VolumeNodeAffinity | None:
    """Return the affinity whose terms are alternatives; None if no term has a requirement."""
    selected = tuple(
        NodeSelectorTerm(
            match_expressions=tuple([NodeSelectorRequirement(key=key, operator="In", values=values) for key, values in term])
        )
        for term in terms
        if term
    )
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=selected)) if selected else None
