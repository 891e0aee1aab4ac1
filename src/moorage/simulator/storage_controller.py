"""The volume controller of a simulated cluster: it finds or provisions a volume for each claim, and binds the two.

A claim gets a volume at once if its class binds immediately, and after a node was selected for it if its class waits for the
first consumer. A volume that a user or the scheduler reserved for a claim goes to that claim, whatever its class. Everything
happens as soon as possible; a claim without a matching volume waits for a volume or class that helps.

Source  kubernetes, pkg/controller/volume/persistentvolume: pv_controller.go, syncUnboundClaim, syncVolume, bind; index.go
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Object, ObjectMeta
from moorage.api.devices import ResourceClaim
from moorage.api.pod_groups import PodGroup
from moorage.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.core.engine.facts import Gone, News, Seen
from moorage.plugins.volumes.volume_matching import MatchingError, VolumeIndex
from moorage.rules.volumes.bindings import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    class_of_claim,
    is_bound_to,
    is_fully_bound,
    suits,
    with_claim_ref,
)
from moorage.rules.volumes.volumes import made_for, makes_volumes
from moorage.state.view import Snapshot

_STORAGE: Final = (PersistentVolume, PersistentVolumeClaim, StorageClass)
#: The kinds, other than pods, of which the controllers take note.
NOTED: Final = (*_STORAGE, PodGroup, ResourceClaim)


@dataclass(frozen=True, slots=True)
class BoundClaim:
    """A claim that was bound during the run. ``made``: its volume was provisioned."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume
    made: bool

    @property
    def storage_class(self) -> str:
        """The storage class of the claim and its volume; empty if they have none."""
        return class_of_claim(self.claim)


class StorageController:
    """Watches volumes, claims and classes.

    Call ``note`` with every fact and ``act`` before each step of the scheduler. It reports its changes through ``tell``, which
    must apply them to the snapshot.
    """

    def __init__(self, snapshot: Snapshot, tell: Callable[[News], None]) -> None:
        self._snapshot = snapshot
        self._tell = tell
        self._volume_index = snapshot.index(VolumeIndex)
        #: Claim's key → the bound claim, in the order of binding.
        self.bound: dict[str, BoundClaim] = {}
        #: Changed volumes and claims to process, oldest first; and claims that wait for a new volume or class.
        self._volumes: dict[str, None] = {}
        self._claims: dict[str, None] = {}
        self._waiting: dict[str, None] = {}
        self._has_new_offers = False

    def note(self, fact: News) -> None:
        """Record a fact; only storage objects matter here."""
        if isinstance(fact, Seen) and isinstance(fact.obj, _STORAGE):
            self._seen(fact.obj)
        elif isinstance(fact, Gone) and isinstance(fact.obj, PersistentVolumeClaim):
            self._waiting.pop(fact.obj.key, None)

    def save(self) -> Callable[[], None]:
        """Return a function that restores the present state."""
        bound, has_new_offers = self.bound.copy(), self._has_new_offers
        volumes, claims, waiting = self._volumes.copy(), self._claims.copy(), self._waiting.copy()

        def restore() -> None:
            self.bound, self._has_new_offers = bound, has_new_offers
            self._volumes, self._claims, self._waiting = volumes, claims, waiting

        return restore

    def act(self) -> None:
        """Process everything that is possible now."""
        while self._volumes or self._claims or self._has_new_offers:
            volumes, self._volumes = self._volumes, {}
            known = self._snapshot.objects(PersistentVolume)
            for name in volumes:
                self._process_volume(known.get(name))
            if self._has_new_offers:
                self._claims |= self._waiting
                self._has_new_offers = False
            claims, self._claims = self._claims, {}
            held = self._snapshot.objects(PersistentVolumeClaim)
            for key in claims:
                self._process_claim(key, held.get(key))

    def _seen(self, obj: Object) -> None:
        if isinstance(obj, PersistentVolume):
            self._volumes[obj.name] = None
        elif isinstance(obj, PersistentVolumeClaim):
            self._claims[obj.key] = None
        else:
            self._has_new_offers = True

    def _process_volume(self, volume: PersistentVolume | None) -> None:
        if volume is None:
            return
        ref = volume.spec.claim_ref
        if ref is not None:
            self._claims[f"{ref.namespace}/{ref.name}"] = None
        elif volume.status.phase == "Pending":
            self._tell(Seen(_in_phase(volume, "Available")))
        else:
            self._has_new_offers = True

    def _process_claim(self, key: str, claim: PersistentVolumeClaim | None) -> None:
        self._waiting.pop(key, None)
        if claim is None or is_fully_bound(claim) or claim.metadata.deletion_timestamp is not None:
            return
        volume = self._named(claim) if claim.spec.volume_name else self._found(claim)
        if volume is not None:
            self._bind(claim, volume, made=False)
        elif claim.spec.volume_name or not self._make(claim):
            self._waiting[key] = None

    def _named(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """Return the volume that the claim names, if it can be bound to it."""
        volume = self._snapshot.objects(PersistentVolume).get(claim.spec.volume_name)
        if volume is None or volume.metadata.deletion_timestamp is not None:
            return None
        if volume.spec.claim_ref is None:
            return volume if suits(volume, claim) else None
        return volume if is_bound_to(volume, claim) else None

    def _found(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        try:
            return self._volume_index.best(claim, reserved_only=self._waits_for_pod(claim))
        except MatchingError:
            return None

    def _class(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        return self._snapshot.objects(StorageClass).get(class_of_claim(claim))

    def _waits_for_pod(self, claim: PersistentVolumeClaim) -> bool:
        if SELECTED_NODE in claim.metadata.annotations:
            return False
        storage_class = self._class(claim)
        return storage_class is not None and storage_class.volume_binding_mode != "Immediate"

    def _make(self, claim: PersistentVolumeClaim) -> bool:
        """Provision a volume, if the claim is ready for that and its class has a provisioner."""
        storage_class = self._class(claim)
        if storage_class is None or self._waits_for_pod(claim) or not makes_volumes(storage_class):
            return False
        volume = made_for(claim, storage_class, self._labels_of, self._snapshot.objects(CSINode).get)
        if volume is None or volume.name in self._snapshot.objects(PersistentVolume):
            return False
        self._bind(claim, volume, made=True)
        return True

    def _labels_of(self, node: str) -> Mapping[str, str] | None:
        info = self._snapshot.node(node)
        return None if info is None else info.labels

    def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume, *, made: bool) -> None:
        """Bind the claim and the volume to each other."""
        volume = _in_phase(with_claim_ref(volume, claim), "Bound")
        status = replace(
            claim.status, phase="Bound", access_modes=volume.spec.access_modes, capacity=dict(volume.spec.capacity)
        )
        metadata = _annotated(claim.metadata, BIND_COMPLETED)
        if not claim.spec.volume_name:
            metadata = _annotated(metadata, BOUND_BY_CONTROLLER)
        bound = replace(claim, metadata=metadata, spec=replace(claim.spec, volume_name=volume.name), status=status)
        self._tell(Seen(volume))
        self._tell(Seen(bound))
        self.bound[claim.key] = BoundClaim(bound, volume, made)


def _in_phase(volume: PersistentVolume, phase: str) -> PersistentVolume:
    return replace(volume, status=replace(volume.status, phase=phase))


def _annotated(metadata: ObjectMeta, key: str) -> ObjectMeta:
    return replace(metadata, annotations={**metadata.annotations, key: "yes"})
