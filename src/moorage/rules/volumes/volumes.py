"""The persistent volume controller: bind volumes and claims, provision volumes, and protect both while they are in use.

Matching is shared with the plugins and with simulations (``moorage.plugins.volumes`` and ``provisioner``). A claim that waits
for its first consumer is left to the scheduler, which binds a volume or selects the node to provision for. Volumes of every
class with a real provisioner name are provisioned at once, because no driver runs.

Source  kubernetes, pkg/controller/volume/persistentvolume/pv_controller.go; pvcprotection; pvprotection
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from moorage.api import storage
from moorage.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta
from moorage.api.decode import decode
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.object_fields import labels_of
from moorage.api.documents.served_kinds import Document
from moorage.api.quantity import parse
from moorage.api.selectors import SelectorError, compile_label_selector
from moorage.rules.volumes.bindings import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    NOT_SUPPORTED,
    SELECTED_NODE,
    class_of_claim,
    is_bound_to,
    suits,
    with_claim_ref,
)
from moorage.rules.volumes.csi_migration import driver_of
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import Create, DeleteStep, EventStep, SetStatus, Step, Update

# The volume that a provisioner would create for a claim: its size, and the nodes that can reach it.
#
# If a node was selected for the pod first, the volume can be reached from nodes with the same topology: the node's values of
# the labels that the driver lists on its CSINode, or else of the keys in the class's allowed topologies. A volume that is
# created before any pod has a node can be reached from all allowed topologies. A driver without topology creates volumes that
# every node can reach; but the disks of clouds are in a zone, also where no CSINode says so, and so are those of `moorage up`.
#
# Source  sig-storage-lib-external-provisioner, controller.go; external-provisioner, pkg/controller/topology.go

#: Annotation of a volume: the provisioner that created it.
_PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
_ZONE: Final = "topology.kubernetes.io/zone"
#: The provisioner of the default class of `moorage up`.
PRETENDED: Final = "moorage.dev/pretended"
#: Provisioners whose volumes can be reached from one zone.
_ZONAL: Final = frozenset([PRETENDED, "disk.csi.azure.com", "ebs.csi.aws.com", "pd.csi.storage.gke.io", "vpc.block.csi.ibm.io"])


def makes_volumes(storage_class: storage.StorageClass) -> bool:
    """Return whether volumes of the class are provisioned dynamically."""
    return storage_class.provisioner not in {"", NOT_SUPPORTED}


def asked_of(storage_class: storage.StorageClass) -> str:
    """Return the name of the class's provisioner; for an in-tree provisioner, the CSI driver that replaced it."""
    return driver_of(storage_class.provisioner) or storage_class.provisioner


def made_for(
    claim: storage.PersistentVolumeClaim, storage_class: storage.StorageClass,
    labels_of: Callable[[str], Mapping[str, str] | None], csi_node_of: Callable[[str], storage.CSINode | None],
) -> storage.PersistentVolume | None:  # fmt: skip
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
        csi_node = csi_node_of(selected)
        by_driver = {one.name: one.topology_keys for one in csi_node.spec.drivers} if csi_node else {}
        of_class = dict.fromkeys(key for term in _terms(storage_class.allowed_topologies) for key, _ in term)
        keys = by_driver.get(driver) or tuple(of_class) or ((_ZONE,) if driver in _ZONAL else ())
        affinity = _affinity([[(key, (labels[key],)) for key in keys if key in labels]])
    meta, spec = claim.metadata, claim.spec
    name = f"pvc-{meta.uid or k8s.stable_uid('PersistentVolumeClaim', meta.namespace, meta.name)}"
    uid, marks = k8s.stable_uid("PersistentVolume", "", name), {_PROVISIONED_BY: storage_class.provisioner}
    # The name of a driver cannot contain a slash; names of provisioners that are not CSI drivers can.
    source = storage.CSIPersistentVolumeSource(driver=driver.replace("/", "."), volume_handle=name)
    made = storage.PersistentVolumeSpec(
        capacity={key: amount for key, amount in spec.resources.requests.items() if key == "storage"},
        access_modes=spec.access_modes, persistent_volume_reclaim_policy=storage_class.reclaim_policy or "Delete",
        storage_class_name=storage_class.name, volume_mode=spec.volume_mode, node_affinity=affinity,
        volume_attributes_class_name=spec.volume_attributes_class_name, mount_options=storage_class.mount_options, csi=source,
    )  # fmt: skip
    return storage.PersistentVolume(metadata=ObjectMeta(name=name, uid=uid, annotations=marks), spec=made)


_Asked = list[tuple[str, tuple[str, ...]]]


def _terms(allowed: Iterable[storage.TopologySelectorTerm]) -> list[_Asked]:
    return [[(one.key, one.values) for one in term.match_label_expressions] for term in allowed]


def _affinity(terms: Iterable[_Asked]) -> storage.VolumeNodeAffinity | None:
    """Return the affinity whose terms are alternatives; None if no term has a requirement."""
    wanted = [[NodeSelectorRequirement(key=key, operator="In", values=values) for key, values in term] for term in terms]
    selected = tuple([NodeSelectorTerm(match_expressions=tuple(one)) for one in wanted if one])
    return storage.VolumeNodeAffinity(required=NodeSelector(node_selector_terms=selected)) if selected else None


_CLAIM_IN_USE: Final = "kubernetes.io/pvc-protection"
_VOLUME_IN_USE: Final = "kubernetes.io/pv-protection"
#: The annotations of a claim that name its provisioner; the first one is the deprecated name.
_ASKED: Final = ("volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner")


class Volumes:
    """Keys are ``claim:NAMESPACE/NAME`` and ``volume:/NAME``."""

    name = "persistentvolume-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is k8s.CLAIMS:
            yield f"claim:{k8s.key_of(event.latest)}"
            if name := k8s.spec_of(event.latest).get("volumeName"):
                yield f"volume:/{name}"
        elif event.kind is k8s.VOLUMES:
            yield f"volume:{k8s.key_of(event.latest)}"
            if ref := k8s.spec_of(event.latest).get("claimRef"):
                yield f"claim:{ref.get('namespace')}/{ref.get('name')}"
            elif k8s.phase_of(event.latest) == "Available":
                yield from _waiting(world)
        elif event.kind is k8s.STORAGE_CLASSES:
            yield from _waiting(world)
        elif event.kind is k8s.PODS and (event.new is None or _is_over(event.new)):
            for name in k8s.claim_names(event.latest):
                yield f"claim:{k8s.namespace_of(event.latest)}/{name}"

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        what, _, place = key.partition(":")
        if what == "claim":
            claim = world.find(k8s.CLAIMS, place)
            if claim is not None:
                yield from _sync_claim(claim, world)
            return
        volume = world.find(k8s.VOLUMES, place)
        if volume is not None:
            yield from _sync_volume(volume, world)


def _waiting(world: ObjectIndex) -> Iterator[str]:
    for claim in world.all(k8s.CLAIMS):
        if k8s.phase_of(claim) == "Pending":
            yield f"claim:{k8s.key_of(claim)}"


# -- claims -------------------------------------------------------------------------------------------------------------


def _sync_claim(claim: Document, world: ObjectIndex) -> Iterator[Step]:
    finalizers = claim["metadata"].get("finalizers") or []
    if k8s.is_ending(claim):
        if _CLAIM_IN_USE in finalizers and not _is_used(claim, world):
            yield Update(k8s.CLAIMS, k8s.revised(claim, finalizers=[one for one in finalizers if one != _CLAIM_IN_USE]))
        return
    if _CLAIM_IN_USE not in finalizers:
        claim = k8s.revised(claim, finalizers=[*finalizers, _CLAIM_IN_USE])
        yield Update(k8s.CLAIMS, claim)
    if BIND_COMPLETED in k8s.annotations_of(claim):
        volume = world.get(k8s.VOLUMES, "", k8s.spec_of(claim).get("volumeName", ""))
        if volume is None and k8s.phase_of(claim) != "Lost":
            yield SetStatus(k8s.CLAIMS, claim, {**k8s.status_of(claim), "phase": "Lost"})
            text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
            yield EventStep(k8s.CLAIMS, claim, "Warning", "ClaimLost", text)
        return
    yield from _UnboundClaim(claim, world).steps()


def _is_used(claim: Document, world: ObjectIndex) -> bool:
    """Return whether a pod that has a node uses the claim. Ended pods count until they are deleted.

    A pod without a node does not count: a kubelet would not start it with a claim that is being deleted.
    """
    return any(_uses(pod, claim) for pod in world.all(k8s.PODS, k8s.namespace_of(claim)) if k8s.spec_of(pod).get("nodeName"))


def _uses(pod: Document, claim: Document) -> bool:
    for volume in k8s.spec_of(pod).get("volumes") or ():
        if source := volume.get("persistentVolumeClaim"):
            if source.get("claimName") == k8s.name_of(claim):
                return True
        elif "ephemeral" in volume and f"{k8s.name_of(pod)}-{volume['name']}" == k8s.name_of(claim):
            owner = k8s.controller_of(claim)
            if owner is not None and owner["uid"] == k8s.uid_of(pod) and not _is_over(pod):
                return True
    return False


def _is_over(pod: Document) -> bool:
    """Return whether a pod is being deleted and has stopped, so that only finalizers can still keep it."""
    return k8s.is_ending(pod) and pod["metadata"].get("deletionGracePeriodSeconds") == 0


class _UnboundClaim:
    """A claim without a volume, and the steps that bind or provision one."""

    def __init__(self, document: Document, world: ObjectIndex) -> None:
        self.document, self.world = document, world
        self.claim = decode(document, storage.PersistentVolumeClaim, "")
        self.class_name = class_of_claim(self.claim)
        held = world.get(k8s.STORAGE_CLASSES, "", self.class_name)
        self.storage_class = None if held is None else decode(held, storage.StorageClass, "")

    def steps(self) -> Iterator[Step]:
        name = self.claim.spec.volume_name
        volume = self._named(name) if name else self._best()
        if volume is not None:
            yield from self._bound(volume)
        elif not name and self.storage_class is not None and makes_volumes(self.storage_class) and not self._waits_for_pod():
            yield from self._made(self.storage_class)
        elif not name:
            yield from self._waiting_event()

    def _waits_for_pod(self) -> bool:
        held = self.storage_class
        waits = held is not None and held.volume_binding_mode == "WaitForFirstConsumer"
        return waits and SELECTED_NODE not in self.claim.metadata.annotations

    def _named(self, name: str) -> Document | None:
        found = self.world.get(k8s.VOLUMES, "", name)
        if found is None or k8s.is_ending(found):
            return None
        volume = decode(found, storage.PersistentVolume, "")
        fits = suits(volume, self.claim) if volume.spec.claim_ref is None else is_bound_to(volume, self.claim)
        return found if fits else None

    def _best(self) -> Document | None:
        """Return the volume that is already bound to the claim or, unless the claim waits for its pod, the smallest match."""
        free: list[tuple[int, str, Document]] = []
        for found in self.world.all(k8s.VOLUMES):
            ref = k8s.spec_of(found).get("claimRef")
            is_of_other = ref and f"{ref.get('namespace')}/{ref.get('name')}" != k8s.key_of(self.document)
            if k8s.is_ending(found) or is_of_other:
                continue
            volume = decode(found, storage.PersistentVolume, "")
            if is_bound_to(volume, self.claim):
                return found
            if volume.spec.claim_ref is None and volume.status.phase == "Available" and self._suits(volume):
                free.append((parse(volume.spec.capacity.get("storage", 0)), volume.name, found))
        return min(free, key=lambda one: one[:2])[2] if free and not self._waits_for_pod() else None

    def _suits(self, volume: storage.PersistentVolume) -> bool:
        if not suits(volume, self.claim):
            return False
        asked = self.claim.spec.selector
        try:
            return asked is None or compile_label_selector(asked).matches(volume.metadata.labels)
        except SelectorError:
            return False

    def _bound(self, volume: Document) -> Iterator[Step]:
        """Yield the updates that bind the volume and the claim to each other."""
        before = decode(volume, storage.PersistentVolume, "")
        after = with_claim_ref(before, self.claim)
        pointed = k8s.copied(volume)
        pointed["metadata"]["annotations"] = dict(after.metadata.annotations)
        pointed["spec"]["claimRef"] = {**k8s.copied(after.spec.claim_ref), "kind": "PersistentVolumeClaim", "apiVersion": "v1"}
        if after != before:
            yield Update(k8s.VOLUMES, pointed)
        if k8s.phase_of(volume) != "Bound":
            yield SetStatus(k8s.VOLUMES, volume, {**k8s.status_of(volume), "phase": "Bound"})
        marks = {**k8s.annotations_of(self.document), BIND_COMPLETED: "yes"}
        if not self.claim.spec.volume_name:
            marks[BOUND_BY_CONTROLLER] = "yes"
        held = k8s.revised(self.document, annotations=marks)
        yield Update(k8s.CLAIMS, {**held, "spec": {**k8s.spec_of(held), "volumeName": k8s.name_of(volume)}})
        spec = k8s.spec_of(volume)
        shown = {"phase": "Bound", "accessModes": spec.get("accessModes") or [], "capacity": spec.get("capacity") or {}}
        if (attributes := spec.get("volumeAttributesClassName")) is not None:
            shown["currentVolumeAttributesClassName"] = attributes
        yield SetStatus(k8s.CLAIMS, self.document, {**k8s.status_of(self.document), **shown})

    def _made(self, storage_class: storage.StorageClass) -> Iterator[Step]:
        volume = made_for(self.claim, storage_class, self._labels_of, self._csi_node_of)
        if volume is None:
            marks = {name: value for name, value in k8s.annotations_of(self.document).items() if name != SELECTED_NODE}
            yield Update(k8s.CLAIMS, k8s.revised(self.document, annotations=marks))
            return
        asked = dict.fromkeys(_ASKED, asked_of(storage_class))
        if not asked.items() <= k8s.annotations_of(self.document).items():
            yield from self._ask(asked)
            return
        made: Document = {"apiVersion": "v1", "kind": "PersistentVolume", **k8s.copied(with_claim_ref(volume, self.claim))}
        made["metadata"] = {"name": volume.name, "annotations": made["metadata"]["annotations"], "finalizers": [_VOLUME_IN_USE]}
        made["spec"]["claimRef"] |= {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
        yield Create(k8s.VOLUMES, made, or_keep=True)
        text = f"Successfully provisioned volume {volume.name}"
        yield EventStep(k8s.CLAIMS, self.document, "Normal", "ProvisioningSucceeded", text)

    def _ask(self, asked: dict[str, str]) -> Iterator[Step]:
        """Yield the update that annotates the claim with its provisioner. The next reconcile provisions the volume."""
        yield Update(k8s.CLAIMS, k8s.revised(self.document, annotations={**k8s.annotations_of(self.document), **asked}))
        text = (
            f"Waiting for a volume to be created either by the external provisioner '{asked[_ASKED[0]]}' or manually by the "
            "system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly "
            "registered."
        )
        yield EventStep(k8s.CLAIMS, self.document, "Normal", "ExternalProvisioning", text)

    def _labels_of(self, node: str) -> Mapping[str, str] | None:
        found = self.world.get(k8s.NODES, "", node)
        return None if found is None else labels_of(found)

    def _csi_node_of(self, node: str) -> storage.CSINode | None:
        found = self.world.get(k8s.CSI_NODES, "", node)
        return None if found is None else decode(found, storage.CSINode, "")

    def _waiting_event(self) -> Iterator[Step]:
        if self._waits_for_pod():
            text = "waiting for first consumer to be created before binding"
            yield EventStep(k8s.CLAIMS, self.document, "Normal", "WaitForFirstConsumer", text)
        elif not self.class_name:
            text = "no persistent volumes available for this claim and no storage class is set"
            yield EventStep(k8s.CLAIMS, self.document, "Normal", "FailedBinding", text)
        elif self.storage_class is None:
            text = f'storageclass.storage.k8s.io "{self.class_name}" not found'
            yield EventStep(k8s.CLAIMS, self.document, "Warning", "ProvisioningFailed", text)


def _sync_volume(volume: Document, world: ObjectIndex) -> Iterator[Step]:
    finalizers = volume["metadata"].get("finalizers") or []
    if k8s.is_ending(volume):
        if _VOLUME_IN_USE in finalizers and k8s.phase_of(volume) != "Bound":
            yield Update(k8s.VOLUMES, k8s.revised(volume, finalizers=[one for one in finalizers if one != _VOLUME_IN_USE]))
            return
    elif _VOLUME_IN_USE not in finalizers:
        yield Update(k8s.VOLUMES, k8s.revised(volume, finalizers=[*finalizers, _VOLUME_IN_USE]))
    ref = k8s.spec_of(volume).get("claimRef")
    if not ref or not ref.get("uid"):
        if k8s.phase_of(volume) == "Pending" or (not ref and k8s.phase_of(volume) == "Released"):
            yield SetStatus(k8s.VOLUMES, volume, {**k8s.status_of(volume), "phase": "Available"})
        return
    claim = world.get(k8s.CLAIMS, ref.get("namespace", ""), ref.get("name", ""))
    if claim is not None and k8s.uid_of(claim) == ref["uid"]:
        return
    if k8s.phase_of(volume) != "Released":
        yield SetStatus(k8s.VOLUMES, volume, {**k8s.status_of(volume), "phase": "Released"})
    elif k8s.spec_of(volume).get("persistentVolumeReclaimPolicy") == "Delete" and _PROVISIONED_BY in k8s.annotations_of(volume):
        yield DeleteStep(k8s.VOLUMES, volume)
