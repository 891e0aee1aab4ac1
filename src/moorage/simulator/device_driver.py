"""The device drivers of a simulated cluster: devices with binding conditions become ready at once.

They also record the claims that get devices while the simulation runs, because they see every change of a claim.

Source  kubernetes, resource/v1 types: BindingConditions of a device, conditions of an allocated device
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.devices import ResourceClaim
from moorage.core.engine.facts import Done, Gone, News, Seen
from moorage.rules.volumes.pod_claims import made_ready
from moorage.state.view import Snapshot


class DeviceDrivers:
    """Call ``note`` with every fact and ``act`` before asking whether devices are ready. It calls ``tell`` with its changes."""

    def __init__(self, snapshot: Snapshot, tell: Callable[[News], None]) -> None:
        self._snapshot = snapshot
        self._tell = tell
        #: Keys of claims that got devices since ``begin``, oldest first.
        self.allocated: dict[str, None] = {}
        self._with_devices: set[str] = set()
        self._fresh: dict[str, None] = {}

    def begin(self) -> None:
        """Treat everything noted so far as part of the initial state."""
        self.allocated.clear()

    def note(self, fact: News) -> None:
        """Record a fact; only claims matter here."""
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

    def save(self, key: str) -> Callable[[], None]:
        """Return a function that undoes ``note`` of one fact about a claim."""
        books = (self.allocated, self._fresh)
        saved = [(book, book.copy()) for book in books if key in book]
        had_devices = key in self._with_devices

        def restore() -> None:
            for book in books:
                book.pop(key, None)
            for book, before in saved:
                book.clear()
                book.update(before)
            (self._with_devices.add if had_devices else self._with_devices.discard)(key)

        return restore

    def act(self) -> None:
        """Report devices of newly allocated claims as ready."""
        fresh, self._fresh = self._fresh, {}
        for key in fresh:
            claim = self._snapshot.objects(ResourceClaim)[key]
            ready = made_ready(claim)
            if ready is not claim:
                self._tell(Seen(ready))
