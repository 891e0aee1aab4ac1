"""A scheduling queue that a transaction can roll back: it saves its whole state before the first change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from moorage.core.queue import QueuedPod, QueuePlace, SchedulingQueue
from moorage.framework.events import ClusterEvent
from moorage.laboratory.trial.recorded_state import NO_LOG, UndoLog
from moorage.state.pod_info import PodInfo

__all__ = ["RecordedQueue"]


class RecordedQueue(SchedulingQueue):
    """A queue that saves its state before changes in a transaction. Calls that cannot change the queue save nothing."""

    log: UndoLog = NO_LOG
    #: True: events wake no pods.
    _is_deaf = False

    @property
    def heeds_events(self) -> bool:
        return not self._is_deaf and super().heeds_events

    @contextmanager
    def waking_nobody(self) -> Iterator[None]:
        """Until the block ends, events wake no pods: for changes that are rolled back before any waiting pod is looked at."""
        before, self._is_deaf = self._is_deaf, True
        try:
            yield
        finally:
            self._is_deaf = before

    def account(self) -> Iterator[Any]:
        """Yield all that decisions depend on, order included."""
        yield from ([*self._active], [*self._backoff], [*self._parked])
        yield [self._pods[uid] for uid in sorted(self._pods)]
        yield {node: self._nominator.on(node) for node in self._nominator.nodes()}
        yield self._order, self._next_scan

    def _touch(self) -> None:
        if self.log.is_new(self):
            self.log.add(self.save())

    def add(self, pod: PodInfo, now: float) -> QueuePlace:
        self._touch()
        return super().add(pod, now)

    def add_new(self, pods: Iterable[PodInfo], now: float) -> None:
        self._touch()
        super().add_new(pods, now)

    def update(self, old: PodInfo, new: PodInfo, now: float) -> QueuePlace:
        self._touch()
        return super().update(old, new, now)

    def delete(self, pod: PodInfo, now: float, *, bound: bool = False) -> QueuedPod | None:
        if self.get(pod.uid) is not None or self.nomination(pod.uid) is not None:
            self._touch()
        return super().delete(pod, now, bound=bound)

    def pop(self, now: float, state: int = 0) -> QueuedPod | None:
        self._touch()
        return super().pop(now, state)

    def pop_this(self, pod: PodInfo, now: float) -> QueuedPod | None:
        self._touch()
        return super().pop_this(pod, now)

    def done(self, uid: str) -> None:
        self._touch()
        super().done(uid)

    def pass_over(self, uid: str) -> None:
        self._touch()
        super().pass_over(uid)

    def requeue(
        self, queued: QueuedPod, now: float, *, rejected_by: Iterable[str] = (), pending_on: Iterable[str] = (),
        waits: bool = False,
    ) -> QueuePlace | None:  # fmt: skip
        self._touch()
        return super().requeue(queued, now, rejected_by=rejected_by, pending_on=pending_on, waits=waits)

    def event(self, event: ClusterEvent, old: Any, new: Any, now: float, only: Callable[[PodInfo], bool] | None = None) -> int:
        if self.heeds_events:
            self._touch()
        return super().event(event, old, new, now, only)

    def activate(self, pods: Iterable[PodInfo], now: float) -> None:
        self._touch()
        super().activate(pods, now)

    def nominate(self, pod: PodInfo, node: str | None) -> None:
        self._touch()
        super().nominate(pod, node)

    def end_nomination(self, uid: str) -> None:
        if self.nomination(uid) is not None:
            self._touch()
        super().end_nomination(uid)
