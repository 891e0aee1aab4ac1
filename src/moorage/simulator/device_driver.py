"""The device drivers of a simulated cluster: what has to be made ready on a node is ready at once.

They also keep books of the claims that get devices while the simulation runs, because they would be told of each.

Source  kubernetes, resource/v1 types: BindingConditions of a device, conditions of an allocated device
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from moorage.api.devices import AllocatedDeviceStatus, DeviceAllocation, DeviceCondition, ResourceClaim
from moorage.engine.facts import Done, Gone, News, Seen
from moorage.state.cluster import Snapshot

__all__ = ["DeviceDrivers"]


class DeviceDrivers:
    """``note`` them every fact, let them ``act`` before asking whether devices are ready. What they do is told by ``tell``."""

    def __init__(self, snapshot: Snapshot, tell: Callable[[News], None]) -> None:
        self._snapshot = snapshot
        self._tell = tell
        #: Keys of the claims that got devices since ``begin``, oldest first.
        self.allocated: dict[str, None] = {}
        self._with_devices: set[str] = set()
        self._fresh: dict[str, None] = {}

    def begin(self) -> None:
        """Take all that was noted so far for what was there from the start."""
        self.allocated.clear()

    def note(self, fact: News) -> None:
        """Take notice of something that happened; most of it is no concern of devices."""
        if isinstance(fact, Done) or not isinstance(fact.obj, ResourceClaim):
            return
        key = fact.obj.key
        if isinstance(fact, Gone) or fact.obj.status.allocation is None:
            self._with_devices.discard(key)
            self.allocated.pop(key, None)
            self._fresh.pop(key, None)
        elif key not in self._with_devices:
            self._with_devices.add(key)
            self.allocated[key] = self._fresh[key] = None

    def act(self) -> None:
        """Report ready what waits for it."""
        fresh, self._fresh = self._fresh, {}
        for key in fresh:
            claim = self._snapshot.objects(ResourceClaim)[key]
            ready = _made_ready(claim)
            if ready is not claim:
                self._tell(Seen(ready))


def _made_ready(claim: ResourceClaim) -> ResourceClaim:
    """Return the claim with the conditions that its drivers would report; the same claim if nothing waits for any."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    told = {(status.driver, status.pool, status.device) for status in claim.status.devices}
    fresh = tuple([_ready(one) for one in results if one.binding_conditions and (one.driver, one.pool, one.device) not in told])
    return replace(claim, status=replace(claim.status, devices=(*claim.status.devices, *fresh))) if fresh else claim


def _ready(device: DeviceAllocation) -> AllocatedDeviceStatus:
    conditions = tuple([DeviceCondition(type=name, status="True", reason="Simulated") for name in device.binding_conditions])
    return AllocatedDeviceStatus(
        driver=device.driver, pool=device.pool, device=device.device, share_id=device.share_id, conditions=conditions
    )
