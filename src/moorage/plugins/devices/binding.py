"""From a chosen node to claims that are written down: Reserve, Unreserve, PreBind.

Reserving holds the devices in the ledger. Before the pod is bound its claims are written: the finalizer that protects
them, then the allocation and the pod as their user. Where devices have to be made ready first, binding waits for that.

Source  kube-scheduler 1.36: plugins/dynamicresources/dynamicresources.go, Reserve, Unreserve, PreBind, bindClaim
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
from msgspec.structs import replace

from moorage.api.core import ExtendedResourceClaimStatus, Pod
from moorage.api.devices import ClaimConsumer, ResourceClaim, ResourceClaimStatus
from moorage.errors import AttemptError
from moorage.framework.effects import Effect, Until, Write
from moorage.plugins.devices.claims import is_reserved_for
from moorage.plugins.devices.extended import Mapped, named
from moorage.plugins.devices.readiness import BindingFailedError, has_conditions, is_ready
from moorage.plugins.devices.results import allocations
from moorage.plugins.devices.wanted import Wanted
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["FINALIZER", "MAX_USERS", "Binder", "without_devices"]

#: Keeps the API server from dropping a claim while its devices are in use.
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
#: How many users a claim may have (ResourceClaimReservedForMaxSize).
MAX_USERS: Final = 256


@dataclass(frozen=True, slots=True)
class _Reserved:
    """What Reserve settled for a pod: its claims with their new allocations, by UID; who uses which extended request."""

    claims: dict[str, ResourceClaim]
    mappings: tuple[Mapped, ...]


def without_devices(claim: ResourceClaim) -> ResourceClaim:
    """Return a claim that has given its devices back."""
    return replace(claim, status=ResourceClaimStatus())


class Binder:
    """What is under way for pods between Reserve and the end of binding. Raises ValueError with kube-scheduler's texts."""

    def __init__(self, plugin: str, timeout_s: float, conditions: bool) -> None:
        self._plugin = plugin
        self._timeout_s = timeout_s
        self._conditions = conditions
        self._reserved: dict[str, _Reserved] = {}

    # -- Reserve ----------------------------------------------------------------------------------------------------------

    def reserve(self, wanted: Wanted, pod: PodInfo, node: str, budget: int) -> None:
        """Hold the devices that the node gives for the pod's claims."""
        row = wanted.snapshot.table.row_of[node]
        kind = next(wanted.kinds(NodeView(wanted.snapshot, np.array([row], dtype=np.intp))))
        if kind.shape is None:
            return
        answer, _ = wanted.answer(kind, wanted.snapshot.table.nodes[row], budget)
        if answer.found is None:
            raise ValueError("claim allocation not found for node")
        claims = list(wanted.to_allocate)
        special = wanted.special
        if special is not None and kind.extended is not None:
            devices = replace(special.spec.devices, requests=kind.extended.requests)
            claims[-1] = replace(special, spec=replace(special.spec, devices=devices))
        settled: dict[str, ResourceClaim] = {}
        for claim, allocation in zip(claims, allocations(answer.found, claims, node, self._conditions), strict=True):
            if claim.metadata.uid == (special.metadata.uid if special is not None else None) and not allocation.devices.results:
                continue  # the node has the extended resources itself
            after = replace(_protected(claim), status=replace(claim.status, allocation=allocation))
            settled[claim.metadata.uid] = after
            wanted.book.ledger.pend(claim.metadata.uid, after, pod.uid)
        self._reserved[pod.uid] = _Reserved(settled, kind.extended.mappings if kind.extended is not None else ())

    def unreserve(self, wanted: Wanted, pod: PodInfo) -> None:
        """Give up what was reserved and is not written. Does nothing the second time."""
        self._reserved.pop(pod.uid, None)
        for claim in wanted.to_allocate:
            wanted.book.ledger.release(claim.metadata.uid, pod.uid)

    # -- PreBind ----------------------------------------------------------------------------------------------------------

    def pre_bind(self, wanted: Wanted, pod: PodInfo, now: float) -> tuple[Effect, ...]:
        """Return what is to be written, and what is to be waited for."""
        reserved = self._reserved.pop(pod.uid, _Reserved({}, ()))
        effects: list[Effect] = []
        keys: list[str] = []
        waits = False
        for claim in wanted.claims:
            settled = reserved.claims.get(claim.metadata.uid)
            if claim is wanted.special and claim.status.allocation is None:
                if settled is None:
                    continue
                bound = self._create(settled, pod, now)
                effects += _writes(None, bound)
                effects.append(Write(_with_extended_claim(pod, bound, reserved.mappings), "status"))
            elif is_reserved_for(claim, pod):
                bound = claim
            else:
                latest = wanted.snapshot.objects(ResourceClaim).get(claim.key)
                bound = self._bound(latest, settled, claim, pod, now)
                effects += _writes(latest, bound)
            keys.append(bound.key)
            waits = waits or has_conditions(bound)
        if waits and self._conditions:
            effects.append(Until(self._all_ready(wanted, keys), self._timeout_s, "device binding timeout"))
        return tuple(effects)

    def _create(self, settled: ResourceClaim, pod: PodInfo, now: float) -> ResourceClaim:
        """Return the claim for extended resources under a name of its own."""
        metadata = replace(settled.metadata, name=named(settled, pod), generate_name="", uid=settled.metadata.uid)
        return self._used(replace(settled, metadata=metadata), pod, now)

    def _bound(
        self, latest: ResourceClaim | None, settled: ResourceClaim | None, claim: ResourceClaim, pod: PodInfo, now: float
    ) -> ResourceClaim:
        if latest is None or latest.metadata.uid != claim.metadata.uid or latest.metadata.deletion_timestamp is not None:
            raise ValueError(f"claim {claim.key} got deleted in the meantime")
        if settled is not None:
            if latest.status.allocation is not None:
                raise ValueError(f"claim {claim.key} got allocated elsewhere in the meantime")
            latest = replace(_protected(latest), status=replace(latest.status, allocation=settled.status.allocation))
        elif latest.status.allocation is None:
            raise ValueError(f"claim {claim.key} got deallocated elsewhere in the meantime")
        if len(latest.status.reserved_for) >= MAX_USERS:
            raise ValueError(
                f'add reservation to claim {claim.key}: ResourceClaim.resource.k8s.io "{claim.metadata.name}" is invalid: '
                f"status.reservedFor: Too many: {len(latest.status.reserved_for) + 1}: must have at most {MAX_USERS} items"
            )
        return self._used(latest, pod, now)

    def _used(self, claim: ResourceClaim, pod: PodInfo, now: float) -> ResourceClaim:
        """Return the claim with the pod among its users and, where somebody may have to hurry, the time."""
        user = ClaimConsumer(resource="pods", name=pod.name, uid=pod.uid)
        status = replace(claim.status, reserved_for=(*claim.status.reserved_for, user))
        allocation = status.allocation
        if self._conditions and allocation is not None and allocation.allocation_timestamp is None:
            stamp = datetime.fromtimestamp(int(now), UTC).isoformat().replace("+00:00", "Z")
            status = replace(status, allocation=replace(allocation, allocation_timestamp=stamp))
        return replace(claim, status=status)

    def _all_ready(self, wanted: Wanted, keys: list[str]) -> Callable[[], bool]:
        def ready() -> bool:
            claims = wanted.snapshot.objects(ResourceClaim)
            for key in keys:
                claim = claims.get(key)
                if claim is None:
                    raise self._failed(f'could not find ResourceClaim "{key}"')
                try:
                    if not is_ready(claim):
                        return False
                except BindingFailedError as error:
                    raise self._failed(str(error)) from error
            return True

        return ready

    def _failed(self, text: str) -> AttemptError:
        return AttemptError(self._plugin, f'running PreBind plugin "{self._plugin}": {text}')


def _protected(claim: ResourceClaim) -> ResourceClaim:
    if FINALIZER in claim.metadata.finalizers:
        return claim
    return replace(claim, metadata=replace(claim.metadata, finalizers=(*claim.metadata.finalizers, FINALIZER)))


def _writes(before: ResourceClaim | None, after: ResourceClaim) -> Iterator[Write]:
    """Yield the writes that make one claim of the other: the object itself where it is new or changed, then its status."""
    if before is None or before.metadata != after.metadata:
        yield Write(replace(after, status=ResourceClaimStatus() if before is None else before.status))
    yield Write(after, "status")


def _with_extended_claim(pod: PodInfo, claim: ResourceClaim, mappings: tuple[Mapped, ...]) -> Pod:
    used = tuple([{"containerName": m.container, "resourceName": m.resource, "requestName": m.request} for m in mappings])
    status = ExtendedResourceClaimStatus(resource_claim_name=claim.metadata.name, request_mappings=used)
    return replace(pod.pod, status=replace(pod.pod.status, extended_resource_claim_status=status))
