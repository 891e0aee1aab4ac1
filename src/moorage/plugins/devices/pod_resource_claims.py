"""The resource claims of a pod, and whether they can be used.

A pod names a claim or a template. For a template, a controller creates a claim and records its name in the pod's status.

Source  kube-scheduler 1.36: dynamic-resource-allocation/resourceclaim; plugins/dynamicresources, foreachPodResourceClaim
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from moorage.api.core import PodResourceClaim
from moorage.api.devices import (
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
)
from moorage.plugins.devices.claim_requests import NOT_OWNER
from moorage.plugins.devices.group_claims import is_of_group
from moorage.state.view import PodInfo, Snapshot

_NOR_GROUP: Final = "ResourceClaim {} was not created for Pod {} (neither Pod nor PodGroup {} is the owner)"


def claims_of(
    pod: PodInfo, snapshot: Snapshot, not_owner: str = NOT_OWNER, *, group_claims: bool = False
) -> list[ResourceClaim] | str:
    """Return the claims of the pod's spec, in its order; or kube-scheduler's text why the pod has to wait for one.

    A template for which the controller records that no claim is needed is skipped. ``not_owner``: see ``NOT_OWNER``.
    ``group_claims``: a claim may have been made for the pod's group.
    """
    known = snapshot.objects(ResourceClaim)
    found: list[ResourceClaim] = []
    for use in pod.spec.resource_claims:
        name = claim_name(pod, use)
        if isinstance(name, UnknownClaim):
            return name.why
        if name is None:
            continue
        key = f"{pod.namespace}/{name}"
        claim = known.get(key)
        if claim is None:
            return f'could not find ResourceClaim "{key}"'
        if claim.metadata.deletion_timestamp is not None:
            return f'resourceclaim "{claim.metadata.name}" is being deleted'
        if use.resource_claim_name is None and not _is_made_for(pod, claim, group_claims):
            named = pod.spec.scheduling_group if group_claims else None
            return not_owner.format(key, pod.key) if named is None else _NOR_GROUP.format(key, pod.key, named.pod_group_name)
        found.append(claim)
    return found


class UnknownClaim:
    """A claim whose name is not known (yet), and why."""

    def __init__(self, why: str) -> None:
        self.why = why


def claim_name(pod: PodInfo, use: PodResourceClaim) -> str | UnknownClaim | None:
    """Return the name of the claim of an entry of the pod's spec; None if it needs no claim."""
    if use.resource_claim_name is not None:
        return use.resource_claim_name
    if use.resource_claim_template_name is None:
        return UnknownClaim(f'pod "{pod.key}", spec.resourceClaim "{use.name}": none of the supported fields are set')
    for status in pod.status.resource_claim_statuses:
        if status.name == use.name:
            return status.resource_claim_name
    return UnknownClaim(f'pod "{pod.key}": ResourceClaim not created yet')


def _is_made_for(pod: PodInfo, claim: ResourceClaim, group_claims: bool) -> bool:
    """Return whether the claim's controller is the pod or, with ``group_claims``, its group."""
    controller = next((owner for owner in claim.metadata.owner_references if owner.controller), None)
    return controller is not None and (controller.uid == pod.uid or (group_claims and is_of_group(controller, pod)))


class ClassFault(NamedTuple):
    """A fault of a claim: an invalid request or a missing class. ``is_error``: no later event can cure it."""

    text: str
    is_error: bool = False


def class_faults(claim: ResourceClaim, snapshot: Snapshot, *, prioritized_list: bool) -> ClassFault | None:
    """Return the fault of a claim's first request that is invalid or whose class is missing; None if there is none."""
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
    """Yield the name and the device class of the request, or of each of its alternatives."""
    if request.exactly is not None:
        yield request.name, request.exactly.device_class_name
        return
    for alternative in request.first_available:
        yield f"{request.name}/{alternative.name}", alternative.device_class_name
