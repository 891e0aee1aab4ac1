"""The resource claim controller of a simulated cluster: it creates claims for pods and cleans claims up after pods.

It acts on pods that are added, finish or are deleted during the run. Consumers of a claim that are not in the input stay: a
dump may leave out pods more often than claims.

Source  kubernetes, pkg/controller/resourceclaim/controller.go; the garbage collector for what a pod owned
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Object, ObjectMeta, Pod, PodResourceClaimStatus, Volume
from moorage.api.decode import decode
from moorage.api.devices import ResourceClaim, ResourceClaimTemplate
from moorage.api.documents.object_fields import POD_GROUPS, generated_name, stable_uid
from moorage.api.pod_groups import PodGroup, PodGroupResourceClaimStatus
from moorage.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimTemplate, StorageClass
from moorage.core.engine.facts import Done, Gone, News, Seen
from moorage.plugins.devices.binding import is_done, is_orphaned, owner_of, without_stale_consumers
from moorage.plugins.devices.group_claims import requests_same
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
from moorage.rules.volumes.pod_claims import made_ready
from moorage.rules.volumes.volumes import made_for, makes_volumes
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.owners import is_active, owner_reference
from moorage.state.view import Snapshot

# -- template claims ---------------------------------------------------------------------------------------------------
# Claims that belong to pods: of ephemeral volumes, and of resource claim templates.
#
# Source  kubernetes, pkg/controller/volume/ephemeral/controller.go; pkg/controller/resourceclaim/controller.go

_POD_CLAIM = "resource.kubernetes.io/pod-claim-name"


def add_claims(cluster: ClusterInput, more: Iterable[PersistentVolumeClaim] = ()) -> ClusterInput:
    """Add ``more`` claims to the cluster, and create missing claims for ephemeral volumes and for resource claim templates.

    A pod or group whose resource claim is created here gets the claim's name in its status, as from the real controller.
    Raises  InputError for a claim template that cannot be read
    """
    held = {claim.key: claim for claim in cluster.persistent_volume_claims}
    for claim in more:
        held.setdefault(claim.key, claim)
    templates = {template.key: template for template in cluster.resource_claim_templates}
    devices = {claim.key: claim for claim in cluster.resource_claims}
    groups = {group.key: with_group_claims(group, templates, devices) for group in cluster.pod_groups}
    pods = list(cluster.pods)
    for at, pod in enumerate(cluster.pods):
        spec = pod.spec
        if (spec.volumes or spec.resource_claims) and is_active(pod):
            for claim in _ephemeral_claims(pod):
                held.setdefault(claim.key, claim)
            if spec.resource_claims:
                pods[at] = with_device_claims(pod, templates, devices, groups.get(_group_key(pod)))
    return with_fields(
        cluster,
        pods=tuple(pods),
        persistent_volume_claims=tuple(held.values()),
        resource_claims=tuple(devices.values()),
        pod_groups=tuple(groups.values()),
    )


def _group_key(pod: Pod) -> str:
    group = pod.spec.scheduling_group
    return "" if group is None else f"{pod.namespace}/{group.pod_group_name}"


def _ephemeral_claims(pod: Pod) -> Iterator[PersistentVolumeClaim]:
    for index, volume in enumerate(pod.spec.volumes):
        if volume.ephemeral is not None and volume.ephemeral.volume_claim_template is not None:
            yield _ephemeral_claim(pod, volume, volume.ephemeral.volume_claim_template, index)


def _ephemeral_claim(pod: Pod, volume: Volume, template: dict[str, object], index: int) -> PersistentVolumeClaim:
    where = f"Pod {pod.key}: spec.volumes[{index}].ephemeral.volumeClaimTemplate"
    made = decode(template, PersistentVolumeClaimTemplate, where)
    name = f"{pod.name}-{volume.name}"
    metadata = ObjectMeta(
        name=name,
        namespace=pod.namespace,
        uid=stable_uid("PersistentVolumeClaim", pod.namespace, name),
        labels=made.metadata.labels,
        annotations=made.metadata.annotations,
        owner_references=(owner_reference("v1", "Pod", pod.metadata),),
    )
    return PersistentVolumeClaim(metadata=metadata, spec=made.spec)


def with_device_claims(
    pod: Pod,
    templates: Mapping[str, ResourceClaimTemplate],
    devices: dict[str, ResourceClaim],
    group: PodGroup | None = None,
) -> Pod:
    """Create the claims for a pod's resource claim templates, and record their names in its status.

    The pod uses the claims of its ``group`` that both request.
    """
    known = {status.name: status for status in pod.status.resource_claim_statuses}
    of_group = {} if group is None else {one.name: one.resource_claim_name for one in group.status.resource_claim_statuses}
    for asked in pod.spec.resource_claims:
        template = templates.get(f"{pod.namespace}/{asked.resource_claim_template_name}")
        if asked.name in known or not asked.resource_claim_template_name or template is None:
            continue
        if group is not None and any(requests_same(asked, one) for one in group.spec.resource_claims):
            if (name := of_group.get(asked.name)) is not None:
                known[asked.name] = PodResourceClaimStatus(name=asked.name, resource_claim_name=name)
            continue
        claim = _device_claim("Pod", pod, asked.name, template)
        devices.setdefault(claim.key, claim)
        known[asked.name] = PodResourceClaimStatus(name=asked.name, resource_claim_name=claim.metadata.name)
    if len(known) == len(pod.status.resource_claim_statuses):
        return pod
    return replace(pod, status=replace(pod.status, resource_claim_statuses=tuple(known.values())))


def with_group_claims(
    group: PodGroup, templates: Mapping[str, ResourceClaimTemplate], devices: dict[str, ResourceClaim]
) -> PodGroup:
    """Create the claims for a group's resource claim templates, and record their names in its status."""
    known = {status.name: status for status in group.status.resource_claim_statuses}
    for asked in group.spec.resource_claims:
        template = templates.get(f"{group.metadata.namespace}/{asked.resource_claim_template_name}")
        if asked.name not in known and template is not None:
            claim = _device_claim("PodGroup", group, asked.name, template)
            devices.setdefault(claim.key, claim)
            known[asked.name] = PodGroupResourceClaimStatus(name=asked.name, resource_claim_name=claim.metadata.name)
    if len(known) == len(group.status.resource_claim_statuses):
        return group
    return replace(group, status=replace(group.status, resource_claim_statuses=tuple(known.values())))


def _device_claim(kind: str, owner: Object, asked: str, template: ResourceClaimTemplate) -> ResourceClaim:
    made, its = template.spec.metadata, owner.metadata
    name = generated_name(f"{its.name}-{asked}-", its.namespace)
    version = "v1" if kind == "Pod" else POD_GROUPS.api_version
    metadata = ObjectMeta(
        name=name,
        namespace=its.namespace,
        uid=stable_uid("ResourceClaim", its.namespace, f"{name}/{its.uid}"),
        labels=made.labels,
        annotations={**made.annotations, _POD_CLAIM: asked},
        owner_references=(owner_reference(version, kind, its),),
    )
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


class ClaimController:
    """Call ``note`` with every fact and ``act`` before each step of the scheduler. It reports its changes through ``tell``.

    ``pods``: all pods, by UID.
    """

    def __init__(self, snapshot: Snapshot, pods: Mapping[str, Pod], tell: Callable[[News], None]) -> None:
        self._snapshot = snapshot
        self._pods = pods
        self._tell = tell
        #: UID of a pod → keys of the claims it uses or owns.
        self._claims_of: dict[str, dict[str, None]] = {}
        self._pods_of: dict[str, tuple[str, ...]] = {}
        #: UID → pods that ended or are gone, and groups that are gone.
        self._removed: dict[str, Pod | PodGroup] = {}
        self._added: dict[str, None] = {}

    def note(self, fact: News) -> None:
        """Record a fact."""
        if isinstance(fact, Done):
            return
        obj = fact.obj
        if isinstance(obj, PodGroup) and isinstance(fact, Gone):
            self._removed[obj.metadata.uid] = obj
        elif isinstance(obj, Pod):
            if isinstance(fact, Gone) or is_done(obj):
                self._removed[obj.uid] = obj
            elif obj.spec.resource_claims and is_active(obj) and not obj.spec.node_name:
                self._added[obj.uid] = None
        elif isinstance(obj, ResourceClaim):
            self._file(obj.key, None if isinstance(fact, Gone) else obj)

    def save(self) -> Callable[[], None]:
        """Return a function that restores the set of pods to process. The index of claims is not restored."""
        removed, added = self._removed.copy(), self._added.copy()

        def restore() -> None:
            self._removed, self._added = removed, added

        return restore

    def save_claim(self, key: str, claim: ResourceClaim | None) -> Callable[[], None]:
        """Return a function that undoes ``note`` of one fact about a claim. ``claim``: its version after the fact, or None."""
        before, pods_of, claims_of = self._pods_of.get(key), self._pods_of, self._claims_of
        saved = {uid: dict(claims_of.get(uid, ())) for uid in {*(before or ()), *(() if claim is None else _pods_of(claim))}}

        def restore() -> None:
            if before is None:
                pods_of.pop(key, None)
            else:
                pods_of[key] = before
            for uid, claims in saved.items():
                if claims:
                    claims_of[uid] = claims
                else:
                    claims_of.pop(uid, None)

        return restore

    def act(self) -> None:
        """Process all recorded facts."""
        while self._removed or self._added:
            removed, self._removed = self._removed, {}
            for uid, user in removed.items():
                for key in tuple(self._claims_of.get(uid, ())):
                    self._clean_up(key, user)
            added, self._added = self._added, {}
            for uid in added:
                self._create_claims(self._pods.get(uid))

    def _file(self, key: str, claim: ResourceClaim | None) -> None:
        for uid in self._pods_of.pop(key, ()):
            claims = self._claims_of[uid]
            del claims[key]
            if not claims:
                del self._claims_of[uid]
        if claim is None:
            return
        self._pods_of[key] = _pods_of(claim)
        for uid in self._pods_of[key]:
            self._claims_of.setdefault(uid, {})[key] = None

    def _clean_up(self, key: str, user: Pod | PodGroup) -> None:
        """Remove a finished pod or a group from a claim's consumers; delete the claim if it was generated for it."""
        claim, uid = self._snapshot.objects(ResourceClaim).get(key), user.metadata.uid
        if claim is None:
            return
        left = without_stale_consumers(claim, lambda one: one.uid != uid)
        owner = owner_of(left)
        if left is not claim:
            self._tell(Seen(left))
        is_over = uid not in self._pods or (isinstance(user, Pod) and is_orphaned(left, user))
        if is_over and owner is not None and owner.uid == uid:
            self._tell(Gone(left))

    def _create_claims(self, pod: Pod | None) -> None:
        if pod is None:
            return
        made: dict[str, ResourceClaim] = {}
        templates = self._snapshot.objects(ResourceClaimTemplate)
        group = self._snapshot.objects(PodGroup).get(_group_key(pod))
        if group is not None and (with_claims := with_group_claims(group, templates, made)) is not group:
            self._tell(Seen(with_claims))
            group = with_claims
        changed = with_device_claims(pod, templates, made, group)
        for key, claim in made.items():
            if key not in self._snapshot.objects(ResourceClaim):
                self._tell(Seen(claim))
        if changed is not pod:
            self._tell(Seen(changed))


def _pods_of(claim: ResourceClaim) -> tuple[str, ...]:
    """Return the UIDs of the pods that use or own a claim."""
    owner = owner_of(claim)
    users = [user.uid for user in claim.status.reserved_for]
    return tuple(dict.fromkeys([*users, *(() if owner is None else (owner.uid,))]))


# -- device driver -----------------------------------------------------------------------------------------------------
# The device drivers of a simulated cluster: devices with binding conditions become ready at once.
#
# They also record the claims that get devices while the simulation runs, because they see every change of a claim.
#
# Source  kubernetes, resource/v1 types: BindingConditions of a device, conditions of an allocated device


class DeviceDrivers:
    """Call ``note`` with every fact and ``act`` before asking whether devices are ready. It calls ``tell`` with its changes."""

    def __init__(self, snapshot: Snapshot, tell: Callable[[News], None]) -> None:
        self._snapshot = snapshot
        self._tell = tell
        #: Keys of claims that got devices since ``begin``, oldest first.
        self.allocated: dict[str, None] = {}
        self._with_devices: set[str] = set()
        self._fresh: dict[str, None] = {}

    def begin(self) -> None:
        """Treat everything noted so far as part of the initial state."""
        self.allocated.clear()

    def note(self, fact: News) -> None:
        """Record a fact; only claims matter here."""
        if isinstance(fact, Done) or not isinstance(fact.obj, ResourceClaim):
            return
        key = fact.obj.key
        if isinstance(fact, Gone) or fact.obj.status.allocation is None:
            self._with_devices.discard(key)
            self.allocated.pop(key, None)
            self._fresh.pop(key, None)
        elif key not in self._with_devices:
            self._with_devices.add(key)
            self.allocated[key] = self._fresh[key] = None

    def save(self, key: str) -> Callable[[], None]:
        """Return a function that undoes ``note`` of one fact about a claim."""
        books = (self.allocated, self._fresh)
        saved = [(book, book.copy()) for book in books if key in book]
        had_devices = key in self._with_devices

        def restore() -> None:
            for book in books:
                book.pop(key, None)
            for book, before in saved:
                book.clear()
                book.update(before)
            (self._with_devices.add if had_devices else self._with_devices.discard)(key)

        return restore

    def act(self) -> None:
        """Report devices of newly allocated claims as ready."""
        fresh, self._fresh = self._fresh, {}
        for key in fresh:
            claim = self._snapshot.objects(ResourceClaim)[key]
            ready = made_ready(claim)
            if ready is not claim:
                self._tell(Seen(ready))


# -- storage controller ------------------------------------------------------------------------------------------------
# The volume controller of a simulated cluster: it finds or provisions a volume for each claim, and binds the two.
#
# A claim gets a volume at once if its class binds immediately, and after a node was selected for it if its class waits for the
# first consumer. A volume that a user or the scheduler reserved for a claim goes to that claim, whatever its class. Everything
# happens as soon as possible; a claim without a matching volume waits for a volume or class that helps.
#
# Source  kubernetes, pkg/controller/volume/persistentvolume: pv_controller.go, syncUnboundClaim, syncVolume, bind; index.go

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
