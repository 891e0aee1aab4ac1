"""Reserve, Unreserve and PreBind of DynamicResources: from the chosen node to written claims.

Reserve holds the devices in the ledger. PreBind writes the claims before the pod is bound: first the finalizer that protects
them, then the allocation and the pod as consumer. If devices have binding conditions, binding waits until they are ready.

Source  kube-scheduler 1.36: plugins/dynamicresources/dynamicresources.go, Reserve, Unreserve, PreBind, bindClaim
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from msgspec.structs import replace

from moorage.api.core import ExtendedResourceClaimStatus, Pod
from moorage.api.devices import (
    AllocatedDeviceStatus,
    AllocationResult,
    ClaimConsumer,
    DeviceAllocation,
    DeviceCondition,
    ResourceClaim,
    ResourceClaimStatus,
)
from moorage.errors import AttemptError
from moorage.framework.effects import Amend, Delete, Effect, Until, Write
from moorage.plugins.devices.allocation_results import allocations
from moorage.plugins.devices.claim_requests import DeviceGates
from moorage.plugins.devices.extended_resource_claims import SPECIAL_NAME, ContainerMapping, object_name
from moorage.plugins.devices.group_claims import is_reserved_for, without_user
from moorage.plugins.devices.pod_devices import PodDevices, WrittenClaims, taking
from moorage.state.pod_info import PodInfo

# Binding conditions: devices that must become ready on the node before the pod is bound to it.
#
# Source  kube-scheduler 1.36: plugins/dynamicresources/dynamicresources.go, isClaimReadyForBinding, isClaimTimeout


class BindingFailedError(Exception):
    """A device reports that it cannot become ready."""


def has_conditions(claim: ResourceClaim) -> bool:
    """Return whether any device of the claim has binding conditions."""
    allocation = claim.status.allocation
    return allocation is not None and any(result.binding_conditions for result in allocation.devices.results)


def is_ready(claim: ResourceClaim) -> bool:
    """Return whether all devices of a claim are ready.

    Raises  BindingFailedError if a device reports a failure
    """
    allocation = claim.status.allocation
    if allocation is None:
        return False
    for result in allocation.devices.results:
        if not result.binding_conditions:
            continue
        status = _status_of(claim, result)
        if status is None:
            return False
        failed = next(
            (c for name in result.binding_failure_conditions if (c := _condition(status, name)) and _is_true(c)), None
        )
        if failed is not None:
            message = '"' + failed.message.replace("\\", "\\\\").replace('"', '\\"') + '"'
            raise BindingFailedError(
                f"device binding failed: claim={claim.metadata.name}, reason={failed.reason}, message={message}"
            )
        if not all(_is_true(_condition(status, name)) for name in result.binding_conditions):
            return False
    return True


def is_late(claim: ResourceClaim, now: float, timeout_s: float) -> bool:
    """Return whether a claim's devices have had ``timeout_s`` to become ready. ``now`` is in Unix seconds."""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocation_timestamp is None or not has_conditions(claim):
        return False
    try:
        allocated = datetime.fromisoformat(allocation.allocation_timestamp).timestamp()
    except ValueError:
        return False
    return allocated + timeout_s < now


def _status_of(claim: ResourceClaim, result: DeviceAllocation) -> AllocatedDeviceStatus | None:
    wanted = (result.driver, result.pool, result.device)
    return next((s for s in claim.status.devices if (s.driver, s.pool, s.device) == wanted), None)


def _condition(status: AllocatedDeviceStatus, name: str) -> DeviceCondition | None:
    return next((c for c in status.conditions if c.type == name), None)


def _is_true(condition: DeviceCondition | None) -> bool:
    return condition is not None and condition.status == "True"


#: Finalizer that keeps the API server from removing a claim while its devices are in use.
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
#: How often the conditions of devices are looked at.
_LOOK_S: Final = 5.0
#: The maximum number of consumers of a claim (ResourceClaimReservedForMaxSize).
MAX_USERS: Final = 256


@dataclass(frozen=True, slots=True)
class _Reserved:
    """The result of Reserve for a pod: its claims with new allocations, by UID; and which container uses which request."""

    claims: dict[str, ResourceClaim]
    mappings: tuple[ContainerMapping, ...]


def deallocated(claim: ResourceClaim) -> ResourceClaim:
    """Return the claim deallocated, with an empty status."""
    return replace(claim, status=ResourceClaimStatus())


def deletion_of(claim: ResourceClaim) -> tuple[Effect, ...]:
    """Return the effects that delete a claim the scheduler created; removing the finalizer deletes it at once."""
    return Amend(claim, unprotected, or_gone=True), Delete(claim)


class Binder:
    """The reservations of pods between Reserve and the end of binding. Raises ValueError with kube-scheduler's texts."""

    def __init__(self, plugin: str, timeout_s: float, options: DeviceGates) -> None:
        self._plugin = plugin
        self._timeout_s = timeout_s
        self._options = options
        self._reserved: dict[str, _Reserved] = {}

    # -- Reserve ----------------------------------------------------------------------------------------------------------

    def reserve(self, wanted: PodDevices, pod: PodInfo, node: str, budget: int) -> None:
        """Hold the devices that the node provides for the pod's claims."""
        row = wanted.snapshot.table.row_of[node]
        kind = wanted.kind_on(row)
        settled: dict[str, ResourceClaim] = {}
        ledger = wanted.device_state.ledger
        for claim in wanted.claims:
            if (shared := wanted.shared.get(claim.metadata.uid)) is not None:
                settled[claim.metadata.uid] = _allocated(claim, shared)
                ledger.share(claim.metadata.uid, shared, pod.uid, pod.group_key)
        self._reserved[pod.uid] = _Reserved(settled, kind.extended.mappings if kind.extended is not None else ())
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
        for claim, allocation in zip(claims, allocations(answer.found, claims, node, self._options), strict=True):
            if claim.metadata.uid == (special.metadata.uid if special is not None else None) and not allocation.devices.results:
                continue  # the node has the extended resources itself
            settled[claim.metadata.uid] = _allocated(claim, allocation)
            ledger.pend(claim.metadata.uid, allocation, pod.uid, pod.group_key)

    def unreserve(self, wanted: PodDevices, pod: PodInfo, node: str) -> tuple[Effect, ...]:
        """Drop the reservation and return the effects that undo its writes. A second call does nothing.

        The effects remove the pod from the consumers of its claims and delete the claim for its extended resources. As in
        kube-scheduler, a claim whose allocation was written keeps its devices, for the next attempt or another pod. By now it
        is known which claims were written: see ``_on_outcome``.
        """
        self._reserved.pop(pod.uid, None)
        written = wanted.written
        for claim in wanted.claims:
            if claim.status.allocation is None:
                wanted.device_state.ledger.settle(claim.metadata.uid, pod.uid)
        known = wanted.snapshot.objects(ResourceClaim)
        effects: list[Effect] = []
        special = wanted.special
        for claim in wanted.claims:
            if claim is not special:
                latest = known.get(claim.key, claim)
                mine = claim.metadata.uid not in wanted.users
                if mine and (claim.metadata.uid in written.claims or is_reserved_for(latest, pod)):
                    effects.append(Amend(claim, partial(without_user, pod.uid), "status", or_gone=True))
        if special is not None and (written.made is not None or special.metadata.name != SPECIAL_NAME):
            effects += deletion_of(special if written.made is None else _by_name(written.made))
        if wanted.takes.get(node):
            effects.append(Amend(pod.pod, partial(taking, ()), "status", or_gone=True))
        return tuple(effects)

    # -- PreBind ----------------------------------------------------------------------------------------------------------

    def pre_bind(self, wanted: PodDevices, pod: PodInfo, node: str, unix_s: float) -> tuple[Effect, ...]:
        """Return the writes, and the wait for binding conditions."""
        reserved = self._reserved.pop(pod.uid, _Reserved({}, ()))
        effects: list[Effect] = []
        keys: list[str] = []
        waits = False
        of_special = ""
        for claim in wanted.claims:
            settled = reserved.claims.get(claim.metadata.uid)
            is_special = claim is wanted.special and claim.status.allocation is None
            if is_special and settled is None:
                continue
            if is_special and settled is not None and claim.metadata.name == SPECIAL_NAME:
                bound = self._created(settled, pod, unix_s)
                what = f"create claim for extended resources {pod.namespace}/"
                known = _on_outcome(wanted, claim, pod)
                effects.append(Write(bound, "status", what=what, settled=known, made=wanted.written.note_made))
                of_special = bound.key
            elif is_reserved_for(claim, pod, for_group=self._options.group_claims):
                bound = claim
            else:
                latest = wanted.snapshot.objects(ResourceClaim).get(claim.key)
                if latest is None or latest.metadata.uid != claim.metadata.uid:
                    raise self._failed(f"claim {claim.key} got deleted in the meantime")
                change = partial(self._bound, settled, pod, wanted.users.get(claim.metadata.uid), unix_s)
                bound = change(latest)
                what = f"add {'allocation and ' if settled is not None else ''}reservation to claim {claim.key}"
                late = _on_outcome(wanted, claim, pod) if settled is not None else None
                effects.append(Amend(latest, change, "status", what=what, settled=late))
            if is_special:
                what = f"update pod {pod.key} ExtendedResourceClaimStatus"
                show = partial(_with_extended_claim, wanted.written, bound, reserved.mappings)
                effects.append(Amend(pod.pod, show, "status", what=what))
            wanted.written.claims.add(claim.metadata.uid)
            keys.append(bound.key)
            waits = waits or has_conditions(bound)
        if takes := wanted.takes.get(node):
            what = f"updating pod {pod.key} NodeAllocatableResourceClaimStatuses"
            effects.append(Amend(pod.pod, partial(taking, takes), "status", what=what))
        if waits and self._options.binding_conditions:
            ready = self._all_ready(wanted, keys, of_special)
            event = "BindingConditionsPending", f"waiting for binding conditions for device on node {node}"
            effects.append(Until(ready, self._timeout_s, "device binding timeout", every_s=_LOOK_S, event=event))
        return tuple(effects)

    def _created(self, settled: ResourceClaim, pod: PodInfo, unix_s: float) -> ResourceClaim:
        """Return the claim for extended resources with a name, which counts where no API server chooses one."""
        metadata = replace(settled.metadata, name=object_name(settled, pod))
        return self._used(replace(settled, metadata=metadata), pod, None, unix_s)

    def _bound(
        self, settled: ResourceClaim | None, pod: PodInfo, user: ClaimConsumer | None, unix_s: float, latest: ResourceClaim
    ) -> ResourceClaim:
        """Return the latest version of a claim with its new allocation, if any, and with the pod or ``user`` as consumer.

        Pods of a group that share a claim write the same allocation: the first does, the others find it. Up to 1.36 a pod may
        have been placed elsewhere, so it fails, and its next attempt keeps to the devices.
        """
        if latest.metadata.deletion_timestamp is not None:
            raise self._failed(f"claim {latest.key} got deleted in the meantime")
        if settled is not None and not (self._options.rules.keeps_to_devices and _has_devices(latest, settled)):
            if latest.status.allocation is not None:
                raise self._failed(f"claim {latest.key} got allocated elsewhere in the meantime")
            latest = replace(_protected(latest), status=replace(latest.status, allocation=settled.status.allocation))
        elif latest.status.allocation is None:
            raise self._failed(f"claim {latest.key} got deallocated elsewhere in the meantime")
        if len(latest.status.reserved_for) >= MAX_USERS:
            raise self._failed(
                f'add reservation to claim {latest.key}: ResourceClaim.resource.k8s.io "{latest.metadata.name}" is invalid: '
                f"status.reservedFor: Too many: {len(latest.status.reserved_for) + 1}: must have at most {MAX_USERS} items"
            )
        return self._used(latest, pod, user, unix_s)

    def _used(self, claim: ResourceClaim, pod: PodInfo, user: ClaimConsumer | None, unix_s: float) -> ResourceClaim:
        """Return the claim with its consumer and, if its devices have a deadline, the allocation time."""
        user = user or ClaimConsumer(resource="pods", name=pod.name, uid=pod.uid)
        users = claim.status.reserved_for
        status = replace(claim.status, reserved_for=users if user in users else (*users, user))
        allocation = status.allocation
        if self._options.binding_conditions and allocation is not None and allocation.allocation_timestamp is None:
            stamp = datetime.fromtimestamp(int(unix_s), UTC).isoformat().replace("+00:00", "Z")
            status = replace(status, allocation=replace(allocation, allocation_timestamp=stamp))
        return replace(claim, status=status)

    def _all_ready(self, wanted: PodDevices, keys: list[str], of_special: str) -> Callable[[], bool]:
        """Return the condition that these claims are ready; the one called ``of_special`` may have got another name."""

        def ready() -> bool:
            claims, made = wanted.snapshot.objects(ResourceClaim), wanted.written.made
            for key in keys:
                claim = claims.get(made.key if made is not None and key == of_special else key)
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


def _allocated(claim: ResourceClaim, allocation: AllocationResult) -> ResourceClaim:
    return replace(_protected(claim), status=replace(claim.status, allocation=allocation))


def _has_devices(claim: ResourceClaim, settled: ResourceClaim) -> bool:
    """Return whether the claim has the devices of ``settled`` already, and is meant for several pods."""
    there, meant = claim.status.allocation, settled.status.allocation
    return there is not None and meant is not None and bool(claim.status.reserved_for) and there.devices == meant.devices


def _protected(claim: ResourceClaim) -> ResourceClaim:
    if FINALIZER in claim.metadata.finalizers:
        return claim
    return replace(claim, metadata=replace(claim.metadata, finalizers=(*claim.metadata.finalizers, FINALIZER)))


def _on_outcome(wanted: PodDevices, claim: ResourceClaim, pod: PodInfo) -> Callable[[], None]:
    """Return the callback for the outcome of a write: it drops the pending allocation, as the claim now shows its devices."""
    return partial(wanted.device_state.ledger.settle, claim.metadata.uid, pod.uid)


def _by_name(claim: ResourceClaim) -> ResourceClaim:
    """Return the created claim without its provisional UID: the API server has assigned another."""
    return replace(claim, metadata=replace(claim.metadata, uid=""))


def unprotected(claim: ResourceClaim) -> ResourceClaim:
    """Return the claim without the scheduler's finalizer; the same object if it has none."""
    if FINALIZER not in claim.metadata.finalizers:
        return claim
    left = tuple([name for name in claim.metadata.finalizers if name != FINALIZER])
    return replace(claim, metadata=replace(claim.metadata, finalizers=left))


def _with_extended_claim(written: WrittenClaims, claim: ResourceClaim, mappings: tuple[ContainerMapping, ...], pod: Pod) -> Pod:
    claim = claim if written.made is None else written.made
    used = tuple([{"containerName": m.container, "resourceName": m.resource, "requestName": m.request} for m in mappings])
    status = ExtendedResourceClaimStatus(resource_claim_name=claim.metadata.name, request_mappings=used)
    return replace(pod, status=replace(pod.status, extended_resource_claim_status=status))
