"""Binding conditions: devices that must become ready on the node before the pod is bound to it.

Source  kube-scheduler 1.36: plugins/dynamicresources/dynamicresources.go, isClaimReadyForBinding, isClaimTimeout
"""

from __future__ import annotations

from datetime import datetime

from moorage.api.devices import AllocatedDeviceStatus, DeviceAllocation, DeviceCondition, ResourceClaim

__all__ = ["BindingFailedError", "has_conditions", "is_late", "is_ready"]


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
