"""The ledger of allocated devices: those of allocated claims, and those of allocations still to be written.

The ledger follows changes claim by claim, so a lookup costs the same however many claims exist. An allocation is *pending* from
the time a pod reserves it until its write succeeds or fails; its devices are held at once. After that, the claim in the
snapshot says which devices it holds.

Source  kube-scheduler 1.36: plugins/dynamicresources/allocateddevices.go, dra_manager.go
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Final

from moorage.api.devices import AllocationResult, ResourceClaim
from moorage.api.meta import Quantity
from moorage.api.quantity import QuantityError, parse
from moorage.plugins.devices.pools import DeviceId, PoolId
from moorage.state.cluster import Snapshot
from moorage.state.journal import Journal

#: Annotation of a claim that a scheduler created for a pod's extended resources.
EXTENDED_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"


@dataclass(slots=True)
class InFlightClaim:
    """An allocation still to be written, and the pods that need it: several if the pods of a group share the claim."""

    allocation: AllocationResult
    pods: frozenset[str]
    group: str | None = None


class Ledger:
    """Counts claims per device, and consumed capacity in nano-units. Several valid claims hold one device only by shares."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._journal: Journal = snapshot.changes_of(ResourceClaim)
        self._position = -1
        self._allocations: dict[str, AllocationResult] = {}
        self._pending: dict[str, InFlightClaim] = {}
        self._held: dict[DeviceId, int] = {}
        self._shares: dict[DeviceId, int] = {}
        self._consumed: dict[DeviceId, dict[str, int]] = {}
        self._tick = 0
        self._changed_at: dict[PoolId, int] = {}

    @property
    def tick(self) -> int:
        """The number of changes so far."""
        return self._tick

    def last_change(self, pools: list[PoolId]) -> int:
        """Return the tick of the last change to a device of one of these pools."""
        changed_at = self._changed_at
        return max([changed_at.get(pool, 0) for pool in pools], default=0)

    def changed_since(self, tick: int) -> Iterator[PoolId]:
        """Yield the pools whose devices changed after ``tick``, the latest first."""
        for pool, changed in reversed(self._changed_at.items()):
            if changed <= tick:
                return
            yield pool

    # -- queries ----------------------------------------------------------------------------------------------------------

    def is_held(self, device: DeviceId, shares: bool) -> bool:
        """Return whether a claim holds the whole device. If ``shares`` is False (gate off), a share counts as the device."""
        return device in self._held or (not shares and device in self._shares)

    def is_used(self, device: DeviceId) -> bool:
        """Return whether any claim holds the device or a share of it."""
        return device in self._held or device in self._shares or device in self._consumed

    def has_shares(self, device: DeviceId) -> bool:
        """Return whether a claim holds a share of the device, whatever it consumes."""
        return device in self._shares

    def consumed(self, device: DeviceId) -> Mapping[str, int] | None:
        """Return the capacity that the shares of a device consume; None if it has no shares."""
        return self._consumed.get(device)

    def pending(self, claim_uid: str) -> InFlightClaim | None:
        """Return the pending allocation of a claim, if any."""
        return self._pending.get(claim_uid)

    @property
    def pending_claims(self) -> Collection[str]:
        """The UIDs of claims with a pending allocation."""
        return self._pending.keys()

    @property
    def used(self) -> frozenset[DeviceId]:
        """All devices that a claim holds wholly or in part."""
        return frozenset([*self._held, *self._shares, *self._consumed])

    # -- updates ----------------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Apply the changes of claims since the last call."""
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

    def pend(self, claim_uid: str, allocation: AllocationResult, pod_uid: str, group: str | None = None) -> None:
        """Hold the devices of an allocation that is still to be written, for a pod and others of its group that share it."""
        self.release(claim_uid)
        self._hold(claim_uid, InFlightClaim(allocation, frozenset([pod_uid]), group))

    def _hold(self, claim_uid: str, held: InFlightClaim) -> None:
        self._pending[claim_uid] = held
        self._count(held.allocation, 1)

    def share(self, claim_uid: str, allocation: AllocationResult, pod_uid: str, group: str | None) -> None:
        """Hold the devices that another pod of the group has reserved for a claim for this pod too."""
        held = self._pending.get(claim_uid)
        if held is None:
            self.pend(claim_uid, allocation, pod_uid, group)
        else:
            self._pending[claim_uid] = with_fields(held, pods=held.pods | {pod_uid})

    def save(self) -> Callable[[], None]:
        """Return a function that restores the pending allocations; the snapshot says what its claims hold."""
        saved = self._pending.copy()

        def restore() -> None:
            for claim_uid in [uid for uid, held in self._pending.items() if saved.get(uid) is not held]:
                self.release(claim_uid)
            for claim_uid, held in saved.items():
                if claim_uid not in self._pending:
                    self._hold(claim_uid, held)

        return restore

    def settle(self, claim_uid: str, pod_uid: str) -> None:
        """Drop a pending allocation whose write has finished: from now on the snapshot says what the claim holds."""
        self.follow()
        self.release(claim_uid, pod_uid)

    def release(self, claim_uid: str, pod_uid: str | None = None) -> None:
        """Drop a pending allocation, written or abandoned. With ``pod_uid``, only once no other pod needs it."""
        pending = self._pending.get(claim_uid)
        if pending is None or (pod_uid is not None and pod_uid not in pending.pods):
            return
        others = pending.pods - {pod_uid} if pod_uid is not None else None
        if others:
            self._pending[claim_uid] = with_fields(pending, pods=others)
            return
        del self._pending[claim_uid]
        self._count(pending.allocation, -1)

    def _count(self, allocation: AllocationResult, by: int) -> None:
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            device = (result.driver, result.pool, result.device)
            self._tick += 1
            self._changed_at.pop(device[:2], None)  # so that the latest comes last
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
    """Return the provisional UID of the claim for a pod's extended resources, until the API server assigns one."""
    return f"{pod_uid}/extended-resources"


def _amount(quantity: Quantity) -> int:
    """Return nano-units; 0 for an invalid quantity, which no API server accepts."""
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
