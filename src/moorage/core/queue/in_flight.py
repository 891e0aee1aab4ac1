"""The log of cluster events that arrive while pods are in flight.

An attempt uses one snapshot. A later event may make room for the pod, so events are logged as long as any pod is in flight, and
a pod that is requeued reads the events logged since it was popped. The log drops the events from before the oldest attempt that
is still in progress.

Source  kube-scheduler, backend/queue/active_queue.go, inFlightEvents
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from moorage.framework.events import ClusterEvent


class Happening(NamedTuple):
    """A logged event, with its object before and after."""

    event: ClusterEvent
    old: Any = None
    new: Any = None


class InFlight:
    """The attempts in progress, and the log of events since the oldest of them began."""

    def __init__(self) -> None:
        self._log: list[Happening] = []
        #: Number of events ever dropped from the front of the log.
        self._dropped = 0
        #: UID → where its attempt's events begin in the log. Read it only.
        self.begun_at: dict[str, int] = {}
        #: Attempts in the order they began; those that ended are removed when they reach the front.
        self._order: deque[tuple[str, int]] = deque()

    def __len__(self) -> int:
        return len(self.begun_at)

    def __contains__(self, uid: str) -> bool:
        return uid in self.begun_at

    def __iter__(self) -> Iterator[Happening]:
        """Yield the logged events, oldest first."""
        return iter(self._log)

    @property
    def logged(self) -> int:
        """Number of events in the log."""
        return len(self._log)

    def save(self) -> Callable[[], None]:
        """Return a function that restores the attempts in progress and the log."""
        log, dropped, begun_at, order = self._log.copy(), self._dropped, self.begun_at.copy(), self._order.copy()

        def restore() -> None:
            self._log, self._dropped, self.begun_at, self._order = log, dropped, begun_at, order

        return restore

    def begin(self, uid: str) -> None:
        """Begin an attempt; the pod must not be in flight already."""
        at = self._dropped + len(self._log)
        self.begun_at[uid] = at
        self._order.append((uid, at))

    def record(self, event: ClusterEvent, old: Any, new: Any) -> None:
        """Log an event, if any pod is in flight."""
        if self.begun_at:
            self._log.append(Happening(event, old, new))

    def since(self, uid: str) -> list[Happening]:
        """Return the events since the pod was popped, oldest first."""
        return self._log[self.begun_at[uid] - self._dropped :]

    def end(self, uid: str) -> None:
        """End an attempt; do nothing if it has ended already."""
        if self.begun_at.pop(uid, None) is None:
            return
        order = self._order
        while order and self.begun_at.get(order[0][0]) != order[0][1]:
            order.popleft()
        oldest = order[0][1] if order else self._dropped + len(self._log)
        if oldest > self._dropped:
            del self._log[: oldest - self._dropped]
            self._dropped = oldest
