"""Claims that the pods of a group share: who consumes a claim, for whom it was made, and for whom it is reserved.

With the gate DRAWorkloadResourceClaims a pod group may request claims too. A claim that the pod requests under the same name
and from the same source as its group is the group's: it is made once, reserved for the group, and stays reserved until the
group is deleted, or cannot be placed.

Source  kube-scheduler 1.36: dynamic-resource-allocation/resourceclaim, BindTo, IsForPod, IsReservedForPod;
        plugins/dynamicresources/dynamicresources.go
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from msgspec.structs import replace

from moorage.api.core import OwnerReference, PodResourceClaim
from moorage.api.devices import ClaimConsumer, ResourceClaim
from moorage.api.pod_groups import PodGroup, PodGroupResourceClaim
from moorage.framework.effects import Amend, Effect
from moorage.state.view import PodInfo, Snapshot

GROUPS: Final = "podgroups"
_API_GROUP: Final = "scheduling.k8s.io"


def users_of(pod: PodInfo, claims: Iterable[ResourceClaim], snapshot: Snapshot) -> dict[str, ClaimConsumer] | str:
    """Return the pod's group for each of the claims that is the group's, by the claim's UID.

    If the group does not exist, kube-scheduler's text about that.
    """
    if pod.group_key is None:
        return {}
    group = snapshot.objects(PodGroup).get(pod.group_key)
    if group is None:
        return f'podgroup.{_API_GROUP} "{pod.group_key.partition("/")[2]}" not found'
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    shared = {
        use.resource_claim_name or made.get(use.name)
        for use in pod.spec.resource_claims
        if any(requests_same(use, one) for one in group.spec.resource_claims)
    }
    user = ClaimConsumer(api_group=_API_GROUP, resource=GROUPS, name=group.metadata.name, uid=group.metadata.uid)
    return {claim.metadata.uid: user for claim in claims if claim.metadata.name in shared}


def requests_same(use: PodResourceClaim, of_group: PodGroupResourceClaim) -> bool:
    """Return whether an entry of a pod's claims stands for one of its group's."""
    mine = use.name, use.resource_claim_name, use.resource_claim_template_name
    return mine == (of_group.name, of_group.resource_claim_name, of_group.resource_claim_template_name)


def is_of_group(owner: OwnerReference, pod: PodInfo) -> bool:
    """Return whether the controller of a claim is the pod's group; a pod knows its group by name only."""
    return (
        owner.kind == "PodGroup"
        and owner.api_version.startswith(f"{_API_GROUP}/")
        and f"{pod.namespace}/{owner.name}" == pod.group_key
    )


def is_reserved_for(claim: ResourceClaim, pod: PodInfo, *, for_group: bool = False) -> bool:
    """Return whether the claim is reserved for the pod or, with ``for_group``, for its group."""
    return any(
        user.uid == pod.uid
        or (
            for_group
            and (user.api_group, user.resource) == (_API_GROUP, GROUPS)
            and f"{pod.namespace}/{user.name}" == pod.group_key
        )
        for user in claim.status.reserved_for
    )


def without_user(uid: str, claim: ResourceClaim) -> ResourceClaim:
    """Return the claim without the consumer ``uid``; the same object if it is none."""
    users = tuple([user for user in claim.status.reserved_for if user.uid != uid])
    return claim if users == claim.status.reserved_for else replace(claim, status=replace(claim.status, reserved_for=users))


def release_from_group(pod: PodInfo, snapshot: Snapshot) -> Effect | None:
    """Return what releases a claim from the pod's group if none of its pods has a node: other devices may do then."""
    group = None if pod.group_key is None else snapshot.objects(PodGroup).get(pod.group_key)
    members = None if group is None else snapshot.group(pod.group_key or "")
    if group is None or (members is not None and members.scheduled_count):
        return None
    made = {one.name: one.resource_claim_name for one in group.status.resource_claim_statuses}
    for asked in group.spec.resource_claims:
        name = asked.resource_claim_name or made.get(asked.name)
        claim = snapshot.objects(ResourceClaim).get(f"{group.metadata.namespace}/{name}")
        if claim is not None and claim.status.allocation is not None and is_reserved_for(claim, pod, for_group=True):
            return Amend(claim, partial(without_user, group.metadata.uid), "status", or_gone=True)
    return None
