"""Claims of pods: for ephemeral volumes, and for devices that are requested by template.

The pod owns its claims, so they are deleted with it. A pod group owns the claims that it requests itself (gate
DRAWorkloadResourceClaims), and its pods use those; a pod waits until its group exists. The controller removes deleted and ended
pods and deleted groups from the reservations of resource claims, and deallocates claims without reservations. Devices with
binding conditions become ready at once, because no driver runs.

Source  kubernetes, pkg/controller/volume/ephemeral/controller.go; pkg/controller/resourceclaim/controller.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES
from moorage.api.decode import decode
from moorage.api.devices import AllocatedDeviceStatus, DeviceAllocation, DeviceCondition, ResourceClaim
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.records import timestamp
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import Create, DeleteStep, EventStep, SetStatus, Step, Update

# Device binding conditions as drivers would report them: every device becomes ready.
#
# Source  kubernetes, resource/v1 types: BindingConditions of a device, conditions of an allocated device


def made_ready(claim: ResourceClaim, now: str | None = None) -> ResourceClaim:
    """Return the claim with the conditions that its drivers would report at a time; the same claim if no device needs one."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    reported = {(status.driver, status.pool, status.device) for status in claim.status.devices}
    missing = [one for one in results if one.binding_conditions and (one.driver, one.pool, one.device) not in reported]
    fresh = tuple([_ready(one, now) for one in missing])
    return replace(claim, status=replace(claim.status, devices=(*claim.status.devices, *fresh))) if fresh else claim


def _ready(device: DeviceAllocation, now: str | None) -> AllocatedDeviceStatus:
    conditions = tuple(
        DeviceCondition(type=name, status="True", reason="Simulated", last_transition_time=now)
        for name in device.binding_conditions
    )
    return AllocatedDeviceStatus(
        driver=device.driver, pool=device.pool, device=device.device, share_id=device.share_id, conditions=conditions
    )


_MARK: Final = "resource.kubernetes.io/pod-claim-name"
_PROTECTED: Final = "resource.kubernetes.io/delete-protection"


class EphemeralVolumes:
    name = "ephemeral-volume-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is k8s.PODS and event.old is None:
            yield k8s.key_of(event.latest)
        elif event.kind is k8s.CLAIMS and event.new is None and (owner := k8s.controller_of(event.latest)) is not None:
            yield f"{k8s.namespace_of(event.latest)}/{owner['name']}"

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        pod = world.find(k8s.PODS, key)
        if pod is None or not k8s.is_active(pod):
            return
        for volume in k8s.spec_of(pod).get("volumes") or ():
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
            if template is None:
                continue
            name = f"{k8s.name_of(pod)}-{volume['name']}"
            held = world.get(k8s.CLAIMS, k8s.namespace_of(pod), name)
            if held is None:
                made = _claim_of(pod, template, name=name)
                yield Create(k8s.CLAIMS, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **made})
            elif (owner := k8s.controller_of(held)) is None or owner["uid"] != k8s.uid_of(pod):
                text = f"PVC {k8s.key_of(held)} was not created for pod {k8s.key_of(pod)} (pod is not owner)"
                yield EventStep(k8s.PODS, pod, "Warning", "FailedBinding", text)


def _claim_of(owner: Document, template: Document, kind: ServedKind = k8s.PODS, **named: Any) -> Document:
    """Return the metadata and spec of a claim made from a template and owned by a pod, or by an object of another kind."""
    metadata = k8s.copied(template.get("metadata") or {})
    kept = {name: value for name, value in metadata.items() if name in {"labels", "annotations"} and value}
    owned = {"namespace": k8s.namespace_of(owner), "ownerReferences": [k8s.reference_to(kind, owner)]}
    return {"metadata": {**kept, **owned, **named}, "spec": k8s.copied(k8s.spec_of(template))}


class ResourceClaims:
    """Keys are ``pod:…``, ``claim:…`` and, if groups may request claims, ``group:…``."""

    name = "resource-claim-controller"

    def __init__(self, *, for_groups: bool = False) -> None:
        self._for_groups = for_groups

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is k8s.PODS:
            pod = event.latest
            if k8s.spec_of(pod).get("resourceClaims"):
                yield f"pod:{k8s.key_of(pod)}"
                yield from (f"claim:{k8s.namespace_of(pod)}/{name}" for name in _claims_of_pod(pod))
        elif event.kind is k8s.RESOURCE_CLAIMS:
            yield f"claim:{k8s.key_of(event.latest)}"
            owner, namespace = k8s.controller_of(event.latest), k8s.namespace_of(event.latest)
            if owner is not None and owner["kind"] == "Pod":
                yield f"pod:{namespace}/{owner['name']}"
            elif owner is not None and owner["kind"] == "PodGroup" and self._for_groups:
                yield f"group:{namespace}/{owner['name']}"
                yield from (
                    f"pod:{k8s.key_of(pod)}" for pod in world.all(k8s.PODS, namespace) if _group_name(pod) == owner["name"]
                )
        elif event.kind is k8s.RESOURCE_CLAIM_TEMPLATES:
            yield from _with_claims("pod", k8s.PODS, k8s.namespace_of(event.latest), world)
            if self._for_groups:
                yield from _with_claims("group", k8s.POD_GROUPS, k8s.namespace_of(event.latest), world)
        elif event.kind is k8s.POD_GROUPS and self._for_groups:
            yield from self._keys_of_group(event, world)

    def _keys_of_group(self, event: ObjectChange, world: ObjectIndex) -> Iterator[str]:
        group, namespace = event.latest, k8s.namespace_of(event.latest)
        if event.old is None:  # its pods waited for it
            waiting = (pod for pod in world.all(k8s.PODS, namespace) if _group_name(pod) == k8s.name_of(group))
            yield from (f"pod:{k8s.key_of(pod)}" for pod in waiting if k8s.spec_of(pod).get("resourceClaims"))
        if not k8s.spec_of(group).get("resourceClaims"):
            return
        yield f"group:{k8s.key_of(group)}"
        for claim in world.all(k8s.RESOURCE_CLAIMS, namespace) if event.new is None else ():
            if any(user.get("uid") == k8s.uid_of(group) for user in k8s.status_of(claim).get("reservedFor") or ()):
                yield f"claim:{k8s.key_of(claim)}"

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        what, _, place = key.partition(":")
        if what == "pod":
            pod = world.find(k8s.PODS, place)
            if pod is not None and k8s.is_active(pod):
                name = _group_name(pod) if self._for_groups else ""
                group = world.get(k8s.POD_GROUPS, k8s.namespace_of(pod), name) if name else None
                if group is not None or not name:
                    yield from _claims_for(pod, k8s.PODS, group, world)
            return
        if what == "group":
            group = world.find(k8s.POD_GROUPS, place)
            if group is not None and not k8s.is_ending(group):
                yield from _claims_for(group, k8s.POD_GROUPS, None, world)
            return
        claim = world.find(k8s.RESOURCE_CLAIMS, place)
        if claim is not None:
            yield from _sync_claim(claim, world, now)


def _with_claims(what: str, kind: ServedKind, namespace: str, world: ObjectIndex) -> Iterator[str]:
    return (f"{what}:{k8s.key_of(one)}" for one in world.all(kind, namespace) if k8s.spec_of(one).get("resourceClaims"))


def _group_name(pod: Document) -> str:
    return (k8s.spec_of(pod).get("schedulingGroup") or {}).get("podGroupName") or ""


def _claims_of_pod(pod: Document) -> Iterator[str]:
    """Yield the names of a pod's claims."""
    known = {one["name"]: one.get("resourceClaimName") for one in k8s.status_of(pod).get("resourceClaimStatuses") or ()}
    for asked in k8s.spec_of(pod).get("resourceClaims") or ():
        if name := asked.get("resourceClaimName") or known.get(asked["name"]):
            yield name


def _claims_for(pod: Document, kind: ServedKind, group: Document | None, world: ObjectIndex) -> Iterator[Step]:
    """Create the claims that a pod or a group requests by template, and write their names into its status.

    A pod uses the claims of its ``group`` that both request; they are created for the group.
    """
    known = {one["name"]: one for one in k8s.status_of(pod).get("resourceClaimStatuses") or ()}
    owned, of_group = _made_for(pod, world), _made_for(group, world)
    shared = [] if group is None else k8s.spec_of(group).get("resourceClaims") or []
    for asked in k8s.spec_of(pod).get("resourceClaims") or ():
        template_name = asked.get("resourceClaimTemplateName")
        if not template_name or _is_there(pod, known.get(asked["name"]), world):
            continue
        is_shared = asked in shared
        if (held := (of_group if is_shared else owned).get(asked["name"])) is not None:
            known[asked["name"]] = {"name": asked["name"], "resourceClaimName": k8s.name_of(held)}
        if held is not None or is_shared:
            continue
        template = world.get(k8s.RESOURCE_CLAIM_TEMPLATES, k8s.namespace_of(pod), template_name)
        if template is None:
            text = f'{kind.kind}ResourceClaim {asked["name"]}: resource claim template "{template_name}": not found'
            yield EventStep(kind, pod, "Warning", "FailedResourceClaimCreation", text)
            continue
        made = _claim_of(pod, k8s.spec_of(template), kind, generateName=f"{k8s.name_of(pod)}-{asked['name']}-")
        made["metadata"]["annotations"] = {**made["metadata"].get("annotations", {}), _MARK: asked["name"]}
        del made["metadata"]["ownerReferences"][0]["blockOwnerDeletion"]
        yield Create(k8s.RESOURCE_CLAIMS, {"apiVersion": k8s.RESOURCE_CLAIMS.api_version, "kind": "ResourceClaim", **made})
    statuses = list(known.values())
    if statuses != (k8s.status_of(pod).get("resourceClaimStatuses") or []):
        yield SetStatus(kind, pod, {**k8s.status_of(pod), "resourceClaimStatuses": statuses})


def _made_for(owner: Document | None, world: ObjectIndex) -> dict[str | None, Document]:
    """Return the claims that were made for a pod or a group, by the name under which it requests each."""
    claims = [] if owner is None else world.controlled(k8s.RESOURCE_CLAIMS, owner)
    return {k8s.annotations_of(one).get(_MARK): one for one in claims}


def _is_there(pod: Document, known: dict[str, Any] | None, world: ObjectIndex) -> bool:
    name = (known or {}).get("resourceClaimName")
    return bool(name) and world.get(k8s.RESOURCE_CLAIMS, k8s.namespace_of(pod), str(name)) is not None


def _sync_claim(claim: Document, world: ObjectIndex, now: float) -> Iterator[Step]:
    status = k8s.status_of(claim)
    users = status.get("reservedFor") or []
    left = [one for one in users if _still_uses(one, k8s.namespace_of(claim), world)]
    made = {name: value for name, value in status.items() if name != "reservedFor"}
    if left:
        made["reservedFor"] = left
    elif users or (k8s.is_ending(claim) and status.get("allocation")):
        made.pop("allocation", None)
        made.pop("devices", None)
    if made.get("allocation"):
        made = _with_devices_ready({**claim, "status": made}, now)
    if made != status:
        yield SetStatus(k8s.RESOURCE_CLAIMS, claim, made)
    finalizers = claim["metadata"].get("finalizers") or []
    # A scheduler adds the finalizer before the allocation, so keep it on a claim that is about to be allocated.
    is_over = (users and not left) or k8s.is_ending(claim)
    if _PROTECTED in finalizers and is_over and not made.get("allocation"):
        yield Update(k8s.RESOURCE_CLAIMS, k8s.revised(claim, finalizers=[one for one in finalizers if one != _PROTECTED]))
    owner = k8s.controller_of(claim)
    pod = world.by_uid(owner["uid"]) if owner is not None and owner["kind"] == "Pod" else None
    if users and not left and pod is not None and k8s.phase_of(pod[1]) in ENDED_PHASES:
        yield DeleteStep(k8s.RESOURCE_CLAIMS, claim)


def _still_uses(user: dict[str, Any], namespace: str, world: ObjectIndex) -> bool:
    if user.get("resource") == "podgroups" and user.get("apiGroup") == k8s.POD_GROUPS.group:
        group = world.get(k8s.POD_GROUPS, namespace, user.get("name", ""))
        return group is not None and k8s.uid_of(group) == user.get("uid")
    if user.get("resource") != "pods" or user.get("apiGroup"):
        return True  # another component's consumer, which removes itself
    pod = world.get(k8s.PODS, namespace, user.get("name", ""))
    if pod is None or k8s.uid_of(pod) != user.get("uid") or k8s.phase_of(pod) in ENDED_PHASES:
        return False
    return bool(k8s.spec_of(pod).get("nodeName")) or not k8s.is_ending(pod)


def _with_devices_ready(claim: Document, now: float) -> Document:
    """Return the claim's status with the conditions that drivers would report for its devices."""
    read = decode(claim, ResourceClaim, "")
    ready = made_ready(read, timestamp(now))
    if ready is read:
        return k8s.status_of(claim)
    reported: list[Document] = msgspec.json.decode(msgspec.json.encode(ready.status.devices[len(read.status.devices) :]))
    return {**k8s.status_of(claim), "devices": [*(k8s.status_of(claim).get("devices") or ()), *reported]}
