"""The resource claim controller of a simulated cluster: it creates claims for pods and cleans claims up after pods.

It acts on pods that are added, finish or are deleted during the run. Consumers of a claim that are not in the input stay: a
dump may leave out pods more often than claims.

Source  kubernetes, pkg/controller/resourceclaim/controller.go; the garbage collector for what a pod owned
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace as with_fields

from msgspec.structs import replace

from moorage.api.core import Pod, PodResourceClaim, PodResourceClaimStatus, Volume
from moorage.api.decode import decode
from moorage.api.devices import ResourceClaim, ResourceClaimTemplate
from moorage.api.meta import ObjectMeta
from moorage.api.storage import PersistentVolumeClaim, PersistentVolumeClaimTemplate
from moorage.cluster.controllers.machinery.object_fields import generated_name, stable_uid
from moorage.cluster.controllers.storage.pod_claims import made_ready
from moorage.core.engine.facts import Done, Gone, News, Seen
from moorage.plugins.devices.claim_cleanup import is_done, is_orphaned, owning_pod, without_stale_consumers
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.owners import is_active, owner_reference
from moorage.state.view import Snapshot

__all__ = ["ClaimController", "DeviceDrivers", "add_claims"]


# -- template claims ---------------------------------------------------------------------------------------------------
# Claims that belong to pods: of ephemeral volumes, and of resource claim templates.
#
# Source  kubernetes, pkg/controller/volume/ephemeral/controller.go; pkg/controller/resourceclaim/controller.go

_POD_CLAIM = "resource.kubernetes.io/pod-claim-name"


def add_claims(cluster: ClusterInput, more: Iterable[PersistentVolumeClaim] = ()) -> ClusterInput:
    """Add ``more`` claims to the cluster, and create missing claims for ephemeral volumes and for resource claim templates.

    A pod whose resource claim is created here gets the claim's name in its status, as from the real controller.
    Raises  InputError for a claim template that cannot be read
    """
    held = {claim.key: claim for claim in cluster.persistent_volume_claims}
    for claim in more:
        held.setdefault(claim.key, claim)
    templates = {template.key: template for template in cluster.resource_claim_templates}
    devices = {claim.key: claim for claim in cluster.resource_claims}
    pods = []
    for pod in cluster.pods:
        waiting = is_active(pod)
        if waiting and pod.spec.volumes:
            for claim in _ephemeral_claims(pod):
                held.setdefault(claim.key, claim)
        pods.append(with_device_claims(pod, templates, devices) if waiting and pod.spec.resource_claims else pod)
    return with_fields(
        cluster,
        pods=tuple(pods),
        persistent_volume_claims=tuple(held.values()),
        resource_claims=tuple(devices.values()),
    )


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


def with_device_claims(pod: Pod, templates: Mapping[str, ResourceClaimTemplate], devices: dict[str, ResourceClaim]) -> Pod:
    """Create the claims for a pod's resource claim templates, and record their names in its status."""
    known = {status.name: status for status in pod.status.resource_claim_statuses}
    for asked in pod.spec.resource_claims:
        template = templates.get(f"{pod.namespace}/{asked.resource_claim_template_name}")
        if asked.name in known or not asked.resource_claim_template_name or template is None:
            continue
        claim = _device_claim(pod, asked, template)
        devices.setdefault(claim.key, claim)
        known[asked.name] = PodResourceClaimStatus(name=asked.name, resource_claim_name=claim.metadata.name)
    if len(known) == len(pod.status.resource_claim_statuses):
        return pod
    return replace(pod, status=replace(pod.status, resource_claim_statuses=tuple(known.values())))


def _device_claim(pod: Pod, asked: PodResourceClaim, template: ResourceClaimTemplate) -> ResourceClaim:
    made = template.spec.metadata
    name = generated_name(f"{pod.name}-{asked.name}-", pod.namespace)
    metadata = ObjectMeta(
        name=name,
        namespace=pod.namespace,
        uid=stable_uid("ResourceClaim", pod.namespace, f"{name}/{pod.uid}"),
        labels=made.labels,
        annotations={**made.annotations, _POD_CLAIM: asked.name},
        owner_references=(owner_reference("v1", "Pod", pod.metadata),),
    )
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


# -- claim controller --------------------------------------------------------------------------------------------------


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
        self._removed: dict[str, Pod] = {}
        self._added: dict[str, None] = {}

    def note(self, fact: News) -> None:
        """Record a fact."""
        if isinstance(fact, Done):
            return
        obj = fact.obj
        if isinstance(obj, Pod):
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
            for pod in removed.values():
                for key in tuple(self._claims_of.get(pod.uid, ())):
                    self._clean_up(key, pod)
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

    def _clean_up(self, key: str, pod: Pod) -> None:
        """Remove a finished pod from a claim's consumers; delete the claim if it was generated for the pod."""
        claim = self._snapshot.objects(ResourceClaim).get(key)
        if claim is None:
            return
        left = without_stale_consumers(claim, lambda user: user.uid != pod.uid)
        owner = owning_pod(left)
        is_the_pods = owner is not None and owner[1] == pod.uid
        if left is not claim:
            self._tell(Seen(left))
        if is_the_pods and (pod.uid not in self._pods or is_orphaned(left, pod)):
            self._tell(Gone(left))

    def _create_claims(self, pod: Pod | None) -> None:
        if pod is None:
            return
        made: dict[str, ResourceClaim] = {}
        changed = with_device_claims(pod, self._snapshot.objects(ResourceClaimTemplate), made)
        for key, claim in made.items():
            if key not in self._snapshot.objects(ResourceClaim):
                self._tell(Seen(claim))
        if changed is not pod:
            self._tell(Seen(changed))


def _pods_of(claim: ResourceClaim) -> tuple[str, ...]:
    """Return the UIDs of the pods that use or own a claim."""
    owner = owning_pod(claim)
    users = [user.uid for user in claim.status.reserved_for]
    return tuple(dict.fromkeys([*users, *(() if owner is None else owner[1:])]))


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
