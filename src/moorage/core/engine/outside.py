"""What plugins do beside the cluster: data from outside, its refreshes, and retries after a delay.

The engine does no I/O. It asks for the version of data that a plugin reads from outside. When that changes, it forgets what it
kept, and retries the pods that the plugin rejected. The driver runs the refreshes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Final

from moorage.errors import RAISED
from moorage.framework.handle import Refresh
from moorage.framework.profile import Profile
from moorage.state.pod_info import PodInfo

_UNKNOWN: Final = object()


class Retries:
    """Pods to retry at a time, on the engine's clock."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, tuple[PodInfo, ...]]] = []
        self._count = 0

    def add(self, pods: Iterable[PodInfo], when: float) -> None:
        self._count += 1
        heappush(self._due, (when, self._count, tuple(pods)))

    def next(self) -> float | None:
        """Return the time of the first retry; None if there is none."""
        return self._due[0][0] if self._due else None

    def __iter__(self) -> Iterator[tuple[float, tuple[PodInfo, ...]]]:
        """Yield the time and the pods of each retry, in no order."""
        return ((when, pods) for when, _, pods in self._due)

    def take(self, now: float) -> list[PodInfo]:
        """Remove the pods whose time has come, and return them."""
        found: list[PodInfo] = []
        while self._due and self._due[0][0] <= now:
            found += heappop(self._due)[2]
        return found

    def save(self) -> Callable[[], None]:
        """Return a function that brings back the retries of now."""
        due, count = self._due.copy(), self._count

        def restore() -> None:
            self._due[:], self._count = due, count

        return restore


class OutsideData:
    """The versions of outside data as of the last look, and the refreshes that plugins asked for."""

    def __init__(self) -> None:
        self.refreshes: list[Refresh] = []
        self._versions: dict[str, object] = {}

    def changed(self, profiles: Iterable[Profile]) -> frozenset[str]:
        """Return the plugins whose outside data has another version than at the last call, or cannot tell it."""
        found = set()
        for profile in profiles:
            for name, version in profile.outside.items():
                try:
                    now: object = version()
                except RAISED:  # the attempt reports it
                    now = _UNKNOWN
                if now != self._versions.setdefault(name, now):
                    self._versions[name] = now
                    found.add(name)
        return frozenset(found)
