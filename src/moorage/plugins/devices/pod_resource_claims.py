"""Which claims a pod has, and whether they are fit for use.

A pod names a claim, or a template; then a controller makes a claim of the pod's own and notes its name in the pod's status.

Source  kube-scheduler 1.36: dynamic-resource-allocation/resourceclaim; plugins/dynamicresources, foreachPodResourceClaim
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from moorage.api.core import PodResourceClaim
from moorage.api.devices import DeviceClass, DeviceRequest, ResourceClaim
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["ClassFault", "claim_name", "claims_of", "class_faults", "is_reserved_for"]


def claims_of(pod: PodInfo, snapshot: Snapshot) -> list[ResourceClaim] | str:
    """Return the claims that the pod's spec asks for, in its order; or, as kube-scheduler words it, why it has to wait for one.

    A template that was meant to yield no claim is passed over.
    """
    known = snapshot.objects(ResourceClaim)
    found: list[ResourceClaim] = []
    for use in pod.spec.resource_claims:
        named = claim_name(pod, use)
        if isinstance(named, Missing):
            return named.why
        if named is None:
            continue
        key = f"{pod.namespace}/{named}"
        claim = known.get(key)
        if claim is None:
            return f'could not find ResourceClaim "{key}"'
        if claim.metadata.deletion_timestamp is not None:
            return f'resourceclaim "{claim.metadata.name}" is being deleted'
        if use.resource_claim_name is None and not _is_owned_by(claim, pod):
            return f"ResourceClaim {key} was not created for Pod {pod.key} (Pod is not owner)"
        found.append(claim)
    return found


class Missing:
    """A claim whose name cannot be told (yet)."""

    def __init__(self, why: str) -> None:
        self.why = why


def claim_name(pod: PodInfo, use: PodResourceClaim) -> str | Missing | None:
    """Return the name of the claim that an entry of the pod's spec stands for; None if it is meant to have none."""
    if use.resource_claim_name is not None:
        return use.resource_claim_name
    if use.resource_claim_template_name is None:
        return Missing(f'pod "{pod.key}", spec.resourceClaim "{use.name}": none of the supported fields are set')
    for status in pod.status.resource_claim_statuses:
        if status.name == use.name:
            return status.resource_claim_name
    return Missing(f'pod "{pod.key}": ResourceClaim not created yet')


def _is_owned_by(claim: ResourceClaim, pod: PodInfo) -> bool:
    """Say whether the claim's controlling owner is the pod."""
    controller = next((owner for owner in claim.metadata.owner_references if owner.controller), None)
    return controller is not None and controller.uid == pod.uid


def is_reserved_for(claim: ResourceClaim, pod: PodInfo) -> bool:
    """Say whether the pod is among those that the claim is reserved for."""
    return any(consumer.uid == pod.uid for consumer in claim.status.reserved_for)


class ClassFault(NamedTuple):
    """What a claim names that is not there. ``is_error``: it cannot be helped by anything that comes later."""

    text: str
    is_error: bool = False


def class_faults(claim: ResourceClaim, snapshot: Snapshot, *, prioritized_list: bool) -> ClassFault | None:
    """Return the first request of a claim that cannot be met because of its form, or because its class is missing."""
    for request in claim.spec.devices.requests:
        where = f"resource claim {claim.key}, request {request.name}"
        if request.exactly is None and not request.first_available:
            return ClassFault(f"{where}: unknown request type")
        if request.exactly is None and not prioritized_list:
            return ClassFault(f"{where}: has subrequests, but the DRAPrioritizedList feature is disabled")
        for name, device_class in _classes_of(request):
            if not device_class:
                return ClassFault(f"request {name}: unsupported request type", is_error=True)
            if device_class not in snapshot.objects(DeviceClass):
                return ClassFault(f"request {name}: device class {device_class} does not exist")
    return None


def _classes_of(request: DeviceRequest) -> Iterator[tuple[str, str]]:
    """Yield the request, or each of its alternatives, with the class it names."""
    if request.exactly is not None:
        yield request.name, request.exactly.device_class_name
        return
    for alternative in request.first_available:
        yield f"{request.name}/{alternative.name}", alternative.device_class_name
