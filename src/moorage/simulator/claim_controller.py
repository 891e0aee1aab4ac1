"""The resource claim controller of a simulated cluster: it creates claims for pods and cleans claims up after pods.

It acts on pods that are added, finish or are deleted during the run. Consumers of a claim that are not in the input stay: a
dump may leave out pods more often than claims.

Source  kubernetes, pkg/controller/resourceclaim/controller.go; the garbage collector for what a pod owned
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace as with_fields

from msgspec.structs import replace

from moorage.api.core import Object, ObjectMeta, Pod, PodResourceClaimStatus, Volume
from moorage.api.decode import decode
from moorage.api.devices import ResourceClaim, ResourceClaimTemplate
from moorage.api.documents.object_fields import POD_GROUPS, generated_name, stable_uid
from moorage.api.pod_groups import PodGroup, PodGroupResourceClaimStatus
from moorage.api.storage import PersistentVolumeClaim, PersistentVolumeClaimTemplate
from moorage.core.engine.facts import Done, Gone, News, Seen
from moorage.plugins.devices.claim_cleanup import is_done, is_orphaned, owner_of, without_stale_consumers
from moorage.plugins.devices.group_claims import requests_same
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.owners import is_active, owner_reference
from moorage.state.view import Snapshot

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
