"""The ledger: which devices are held, by claims that are written down and by those that are about to be.

It is kept current claim by claim, so that asking costs the same however many claims there are. A claim that a pod was given
devices for is *pending* until the API server tells of it with its allocation; its devices are held from the first moment.

Source  kube-scheduler 1.36: plugins/dynamicresources/allocateddevices.go, dra_manager.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from moorage.api.devices import AllocationResult, ResourceClaim
from moorage.api.meta import Quantity
from moorage.api.quantity import QuantityError, parse
from moorage.plugins.devices.offers import DeviceId, PoolId
from moorage.state.cluster import Snapshot
from moorage.state.journal import Journal

__all__ = ["EXTENDED_CLAIM", "Ledger", "Pending", "special_claim_uid"]

#: Marks the claim that a scheduler made for a pod's extended resources.
EXTENDED_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"


@dataclass(slots=True)
class Pending:
    """A claim as it is going to be, for the pod that caused it.

    ``written_on``: the version of the claim that it was written on; None until it is known to be written. ``protection``: what
    is written to the claim before its devices, in a version of its own.
    """

    claim: ResourceClaim
    pod_uid: str
    key: str
    protection: frozenset[str] = frozenset()
    written_on: str | None = None

    def is_past(self, claim: ResourceClaim) -> bool:
        """Say of a claim without devices whether it had them since: it is newer than what they were written on."""
        base, version = self.written_on, claim.metadata.resource_version
        if base is None or (self.protection and self.protection.issubset(claim.metadata.finalizers)):
            return False
        return int(version) > int(base) if base.isdecimal() and version.isdecimal() else version != base or not version


class Ledger:
    """Counts in nano-units; a device may be held by several claims only if those share it, or if somebody lies."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._journal: Journal = snapshot.changes_of(ResourceClaim)
        self._position = -1
        self._allocations: dict[str, AllocationResult] = {}
        self._pending: dict[str, Pending] = {}
        self._pending_at: dict[str, str] = {}
        self._held: dict[DeviceId, int] = {}
        self._shares: dict[DeviceId, int] = {}
        self._consumed: dict[DeviceId, dict[str, int]] = {}
        self._tick = 0
        self._changed_at: dict[PoolId, int] = {}

    @property
    def tick(self) -> int:
        """Grows with every change."""
        return self._tick

    def last_change(self, pools: list[PoolId]) -> int:
        """Return the tick at which a device of any of these pools changed hands last."""
        changed_at = self._changed_at
        return max([changed_at.get(pool, 0) for pool in pools], default=0)

    def changed_since(self, tick: int) -> Iterator[PoolId]:
        """Yield the pools of which a device has changed hands since then, the latest first."""
        for pool, changed in reversed(self._changed_at.items()):
            if changed <= tick:
                return
            yield pool

    # -- asking -----------------------------------------------------------------------------------------------------------

    def is_held(self, device: DeviceId, shares: bool) -> bool:
        """Say whether a claim has a device for itself. Without ``shares`` (gate closed) every share is the whole device."""
        return device in self._held or (not shares and device in self._shares)

    def is_used(self, device: DeviceId) -> bool:
        """Say whether any claim has a device or a share of it."""
        return device in self._held or device in self._shares or device in self._consumed

    def consumed(self, device: DeviceId) -> Mapping[str, int] | None:
        """Return what the shares of a device take of its capacity; None if there is no share."""
        return self._consumed.get(device)

    def pending(self, claim_uid: str) -> AllocationResult | None:
        """Return the allocation that is about to be written for a claim."""
        found = self._pending.get(claim_uid)
        return None if found is None else found.claim.status.allocation

    # -- keeping up -------------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Take in what has changed since the last time."""
        changed = self._journal.since(self._position) if self._position >= 0 else None
        claims = self._snapshot.objects(ResourceClaim)
        if changed is None:
            changed = list(dict.fromkeys([*self._allocations, *claims]))
        self._position = self._journal.position
        for key in dict.fromkeys(changed):
            claim = claims.get(key)
            self._account(key, None if claim is None else claim.status.allocation)
            if claim is not None and claim.status.allocation is not None:
                self.release(claim.metadata.uid)
                if claim.metadata.annotations.get(EXTENDED_CLAIM) == "true":
                    for owner in claim.metadata.owner_references:
                        self.release(special_claim_uid(owner.uid))
            else:
                self._come_to_nothing(key, claim)

    def _come_to_nothing(self, key: str, claim: ResourceClaim | None) -> None:
        """Give up what is pending for a claim that is gone, or that got its devices and lost them, all since the last time."""
        pending = self._pending.get(self._pending_at.get(key, ""))
        if pending is None:
            return
        is_another = claim is not None and pending.key == pending.claim.key and claim.metadata.uid != pending.claim.metadata.uid
        if claim is None or is_another or pending.is_past(claim):
            self.release(pending.claim.metadata.uid)

    def _account(self, key: str, allocation: AllocationResult | None) -> None:
        before = self._allocations.get(key)
        if before == allocation:
            return
        if before is not None:
            self._count(before, -1)
            del self._allocations[key]
        if allocation is not None:
            self._count(allocation, 1)
            self._allocations[key] = allocation

    def pend(self, claim_uid: str, claim: ResourceClaim, pod_uid: str, protection: frozenset[str] = frozenset()) -> None:
        """Hold the devices of an allocation that is not written yet. ``protection``: finalizers that are written before it."""
        self.release(claim_uid)
        self._pending[claim_uid] = Pending(claim, pod_uid, claim.key, protection)
        self._pending_at[claim.key] = claim_uid
        if claim.status.allocation is not None:
            self._count(claim.status.allocation, 1)

    def rename(self, claim_uid: str, key: str) -> None:
        """Take note of the name under which a claim is made for which devices are held."""
        pending = self._pending.get(claim_uid)
        if pending is not None:
            self._pending_at.pop(pending.key, None)
            pending.key = key
            self._pending_at[key] = claim_uid

    def settle(self, claim_uid: str, pod_uid: str, written_on: str) -> None:
        """Take note that a pending allocation is written, on this version of the claim: it shows soon, or has shown already."""
        pending = self._pending.get(claim_uid)
        if pending is None or pending.pod_uid != pod_uid:
            return
        pending.written_on = written_on
        claim = self._snapshot.objects(ResourceClaim).get(pending.key)
        if claim is not None and claim.status.allocation is None and pending.is_past(claim):
            self.release(claim_uid)

    def release(self, claim_uid: str, pod_uid: str | None = None, *, written: bool = True) -> None:
        """Give up a pending allocation: it is written, or will not be. With ``pod_uid``, only if it is that pod's.

        Not ``written``: only if it is not known to be written, for then it shows soon.
        """
        pending = self._pending.get(claim_uid)
        if pending is None or (pod_uid is not None and pending.pod_uid != pod_uid):
            return
        if pending.written_on is not None and not written:
            return
        del self._pending[claim_uid]
        if self._pending_at.get(pending.key) == claim_uid:
            del self._pending_at[pending.key]
        if pending.claim.status.allocation is not None:
            self._count(pending.claim.status.allocation, -1)

    def _count(self, allocation: AllocationResult, by: int) -> None:
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            device = (result.driver, result.pool, result.device)
            self._tick += 1
            self._changed_at.pop(device[:2], None)  # so that the latest stands last
            self._changed_at[device[:2]] = self._tick
            if result.share_id is None:
                _step(self._held, device, by)
                continue
            _step(self._shares, device, by)
            if result.consumed_capacity:
                self._consume(device, {name: by * _amount(amount) for name, amount in result.consumed_capacity.items()})

    def _consume(self, device: DeviceId, amounts: Mapping[str, int]) -> None:
        totals = self._consumed.setdefault(device, {})
        for name, amount in amounts.items():
            totals[name] = totals.get(name, 0) + amount
        if not any(totals.values()):
            del self._consumed[device]


def special_claim_uid(pod_uid: str) -> str:
    """Return what the claim for a pod's extended resources goes by until the API server has given it a UID."""
    return f"{pod_uid}/extended-resources"


def _amount(quantity: Quantity) -> int:
    """Return nano-units; none for what no API server would have taken."""
    try:
        return parse(quantity)
    except QuantityError:
        return 0


def _step(counts: dict[DeviceId, int], device: DeviceId, by: int) -> None:
    left = counts.get(device, 0) + by
    if left > 0:
        counts[device] = left
    else:
        counts.pop(device, None)
