"""Device binding conditions as drivers would report them: every device becomes ready.

Source  kubernetes, resource/v1 types: BindingConditions of a device, conditions of an allocated device
"""

from __future__ import annotations

from msgspec.structs import replace

from moorage.api.devices import AllocatedDeviceStatus, DeviceAllocation, DeviceCondition, ResourceClaim

__all__ = ["made_ready"]


def made_ready(claim: ResourceClaim) -> ResourceClaim:
    """Return the claim with the conditions that its drivers would report; the same claim if no device needs one."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    reported = {(status.driver, status.pool, status.device) for status in claim.status.devices}
    missing = [one for one in results if one.binding_conditions and (one.driver, one.pool, one.device) not in reported]
    fresh = tuple(map(_ready, missing))
    return replace(claim, status=replace(claim.status, devices=(*claim.status.devices, *fresh))) if fresh else claim


def _ready(device: DeviceAllocation) -> AllocatedDeviceStatus:
    conditions = tuple([DeviceCondition(type=name, status="True", reason="Simulated") for name in device.binding_conditions])
    return AllocatedDeviceStatus(
        driver=device.driver, pool=device.pool, device=device.device, share_id=device.share_id, conditions=conditions
    )
