"""What a scheduling queue tells of itself: its pods with their places, and the numbers that metrics show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from moorage.core.queue.active_queue import ActiveQueue
from moorage.core.queue.backoff import BackoffQueue
from moorage.core.queue.hints import Hints, HintTimer
from moorage.core.queue.in_flight import InFlight
from moorage.core.queue.queued_groups import GroupEntry
from moorage.core.queue.queued_pod import PendingPod, QueuedPod, QueuePlace
from moorage.core.queue.unschedulable_pods import Unschedulable
from moorage.state.group_trees import is_composite

_POD_POPPED = "PodPopped"


class QueueInspection:
    """The part of a scheduling queue that changes nothing."""

    _pods: dict[str, QueuedPod]
    _active: ActiveQueue
    _backoff: BackoffQueue
    _parked: Unschedulable
    _in_flight: InFlight
    _hints: Hints
    # As in ``GroupsOfPods``.
    incomplete: Iterator[QueuedPod]
    incoming: dict[tuple[str, str], int]
    members_in: Counter[tuple[str, str]]
    groups_in: Counter[tuple[str, str]]
    _groups: dict[str, GroupEntry] | None

    def __len__(self) -> int:
        """Count the pods in all places, including those in flight."""
        return len(self._pods)

    def get(self, uid: str) -> QueuedPod | None:
        return self._pods.get(uid)

    def counts(self) -> dict[QueuePlace, int]:
        """Return how many pods are in each place."""
        parked, gated = len(self._parked), self._parked.gated
        return {
            QueuePlace.ACTIVE: len(self._active),
            QueuePlace.BACKOFF: len(self._backoff),
            QueuePlace.UNSCHEDULABLE: parked - gated,
            QueuePlace.GATED: gated,
            QueuePlace.IN_FLIGHT: len(self._in_flight),
        }

    def counts_of_groups(self) -> dict[str, int]:
        """Return how many pods lack a group, and how many wait for the end of an attempt of theirs; {} in other releases."""
        if self._groups is None:
            return {}
        returned = sum(len(group.returned) for group in self._groups.values())
        return {"incomplete": sum(1 for _ in self.incomplete), "pending": returned}

    def incoming_entities(self) -> Iterable[tuple[tuple[str, str, str], int]]:
        """Yield how many pods without a group, and how many groups, entered each place: (place, event, kind) → number."""
        for kind, counts in (("pod", self.incoming), ("podgroup", self.groups_in)):
            yield from (((*place, kind), count) for place, count in counts.items())

    def entities(self) -> Mapping[tuple[QueuePlace, str], int]:
        """Return how many pods and groups wait: (place, ``pod`` or ``podgroup``) → number, if groups are queued as one.

        Neither trees of groups nor groups that do not exist count.
        """
        missing = {queued.entry for queued in self.incomplete}
        waiting = {(queued.place, queued.entry or queued.uid, bool(queued.entry)) for queued in self._pods.values()}
        kinds = ((place, grouped) for place, key, grouped in waiting if key not in missing and not is_composite(key))
        return Counter((place, "podgroup" if grouped else "pod") for place, grouped in kinds)

    @property
    def in_backoff(self) -> Iterator[QueuedPod]:
        """The pods that wait for their backoff."""
        return iter(self._backoff)

    @property
    def logged_events(self) -> int:
        """Number of events logged for pods in flight; none are logged while no pod is in flight."""
        return self._in_flight.logged

    def logged_labels(self) -> Mapping[str, int]:
        """Return how many events of each kind are logged, and under ``PodPopped`` how many pods are in flight."""
        counts = Counter(str(happening.event) for happening in self._in_flight)
        counts[_POD_POPPED] = len(self._in_flight)
        return counts

    def rejections(self) -> Mapping[tuple[str, str], int]:
        """Return how many waiting pods each plugin has rejected: (plugin, scheduler name) → pods; not those ``incomplete``."""
        missing = {queued.uid for queued in self.incomplete}
        away = QueuePlace.IN_FLIGHT
        waiting = (queued for queued in self._pods.values() if queued.place is not away and queued.uid not in missing)
        return Counter((plugin, queued.profile) for queued in waiting for plugin in queued.rejecters if plugin)

    def time_hints(self, clock: Callable[[], float], timer: HintTimer) -> None:
        """Measure every queueing hint from now on: call ``timer(plugin, event, answer, seconds)``."""
        self._hints = self._hints.timed(clock, timer)

    def pending(self) -> tuple[PendingPod, ...]:
        """Return every pod with its place and the reason: active ones in the order they would be popped, then the others."""
        flying = (queued for queued in self._pods.values() if queued.place is QueuePlace.IN_FLIGHT and not queued.deleted)
        return tuple(self._line(queued) for queued in (*self._active, *self._backoff, *self._parked, *flying))

    def ranked(self) -> list[QueuedPod]:
        """Return the waiting pods that no plugin gates, in the order they would be popped if all were active."""
        waiting = (q for q in self._pods.values() if q.place not in {QueuePlace.GATED, QueuePlace.IN_FLIGHT})
        return sorted(waiting, key=lambda queued: (self._active.rank(queued), queued.order))

    def _line(self, queued: QueuedPod) -> PendingPod:
        until = self._backoff.until(queued) if queued.place is QueuePlace.BACKOFF else None
        return PendingPod.of(queued, until)
