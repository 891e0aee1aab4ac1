"""The device drivers of a simulated cluster: what has to be made ready on a node is ready at once.

They also keep books of the claims that get devices while the simulation runs, because they would be told of each.

Source  kubernetes, resource/v1 types: BindingConditions of a device, conditions of an allocated device
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.devices import ResourceClaim
from moorage.controllers.storage.device_conditions import made_ready
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
            ready = made_ready(claim)
            if ready is not claim:
                self._tell(Seen(ready))
