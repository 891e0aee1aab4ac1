"""The books of a simulated cluster: its pods by UID and by name, with their records and last attempts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import Any, NoReturn

from moorage.api.core import Pod
from moorage.engine.scheduler import Scheduler
from moorage.errors import CopyError
from moorage.simulator.pod_collector import PodCollector
from moorage.simulator.pod_record import ArrivalKind, PodRecord, State, bound_version
from moorage.simulator.under_way import LastAttempt
from moorage.state.pod_names import PodNames

__all__ = ["PodBooks"]


class PodBooks:
    """The base of ``SimulatedCluster``, which fills the books and adds the fields without a value here."""

    scheduler: Scheduler
    now: float
    durations: dict[str, float]
    records: dict[str, PodRecord]
    victims: dict[str, PodRecord]
    arrived: int
    _collector: PodCollector

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._numbers: dict[str, int] = {}
        #: The number of the first of some pods that arrived together, and their UIDs; ``_came`` moves them to ``_numbers``.
        self._unnumbered: list[tuple[int, list[str]]] = []
        self._arrivals = 0
        self._named = PodNames()
        self._last_attempts: dict[str, LastAttempt] = {}
        #: The last attempt that was entered for a pod without one; others at the same state share it.
        self._latest: LastAttempt | None = None
        #: UID → how often its work waited until the deadline.
        self._timeouts: dict[str, int] = {}

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise CopyError(
            "a simulation cannot be copied or pickled; call prepare(options) again and load the same objects: with the same"
            " seed it runs the same way"
        )

    @property
    def _came(self) -> dict[str, int]:
        """UID → the number of the pod in order of arrival. Many runs never need it."""
        while self._unnumbered:
            first, uids = self._unnumbered.pop()
            self._numbers.update(zip(uids, count(first), strict=False))
        return self._numbers

    def _arrival_of(self, uid: str) -> int:
        return self._came[uid]

    @property
    def pods(self) -> Mapping[str, Pod]:
        """All pods that exist, by UID."""
        return self._pods

    def pods_in_order(self) -> list[Pod]:
        """Return all pods that exist, in order of arrival."""
        return [self._pods[uid] for uid in sorted(self._pods, key=self._came.__getitem__)]

    def newest_first(self) -> Iterator[Pod]:
        """Yield the pods that exist, the last arrival first."""
        return reversed(self._pods.values())

    @property
    def arrivals(self) -> int:
        """The number of pods that have arrived, whether they exist or not."""
        return self._arrivals

    def arrived_after(self, arrivals: int) -> list[Pod]:
        """Return the pods that exist and arrived after so many others, in the order of their arrival.

        A pod is left out if a rollback put back an older one after it came.
        """
        newest = takewhile(lambda pod: self._came[pod.metadata.uid] > arrivals, self.newest_first())
        return sorted(newest, key=lambda pod: self._came[pod.metadata.uid])

    def pod_named(self, key: str) -> Pod | None:
        """Return the pod of this ``namespace/name``, if it exists."""
        namespace, _, name = key.partition("/")
        pod = self._pods.get(self._named.get(namespace, name) or "")
        return pod if pod is not None and pod.key == key else None

    def _new_names(self, pods: Sequence[Pod]) -> PodNames | None:
        """Return the names of the pods, if neither the UID nor the name of any is known, and none occurs twice."""
        names = self._named.of_new(pods)
        books: list[dict[str, Any]] = [book for book in (self._pods, self.records) if book]
        if names is None or not books:
            return names
        uids = names.uids()
        return names if all(book.keys().isdisjoint(uids) for book in books) else None

    def _take_together(self, kind: ArrivalKind, pods: Sequence[Any]) -> bool:
        """Report pods together, which takes less time. Return False if they must be reported one by one."""
        if kind is ArrivalKind.PLACED:
            return self._take_placed(pods)
        return kind is ArrivalKind.WAITING and self._take_waiting(pods)

    def _take_placed(self, pods: Sequence[Any]) -> bool:
        """Report pods on nodes together. Return False if one of them may concern more than its node."""
        names = None if self._collector.gone else self._new_names(pods)
        if names is None or not self.scheduler.observe_placed(pods, self.now):
            return False
        self._enter(pods, names)
        return True

    def _take_waiting(self, pods: Sequence[Any]) -> bool:
        """Report pods that want a node from us and use no resource claims together. Return False if not all of them are new."""
        names = None if self._collector.gone else self._new_names(pods)
        if names is None or not self.scheduler.observe_waiting(pods, self.now):
            return False
        self._enter(pods, names)
        now = self.now
        for pod in pods:
            self.records[pod.metadata.uid] = PodRecord(pod, now)
        self.arrived += len(pods)
        return True

    def _enter(self, pods: Sequence[Pod], names: PodNames) -> None:
        """Enter new pods, which have these names, in the books."""
        uids = [pod.metadata.uid for pod in pods]
        self._pods.update(zip(uids, pods, strict=True))
        self._unnumbered.append((self._arrivals + 1, uids))
        self._arrivals += len(pods)
        self._named.take(names)

    def _place(self, pod: Pod, node: str, now: float) -> Pod:
        """Record that a pod is bound. Return its bound version."""
        uid = pod.metadata.uid
        bound = self._pods[uid] = bound_version(pod, node)
        record = self.records.get(uid)
        if record is not None and record.state == State.PENDING:
            self._note_placed(record, node, now)
        return bound

    def _note_placed(self, record: PodRecord, node: str, now: float) -> None:
        """Record that a pending pod is placed. No other attempt follows."""
        record.state, record.node, record.placed_s = State.PLACED, node, now
        self._last_attempts.pop(record.pod.metadata.uid, None)

    def _note_attempt(self, record: PodRecord, message: str, attempt: LastAttempt) -> None:
        """Record an attempt for a pod."""
        record.attempts += 1
        record.message = message
        uid = record.pod.metadata.uid
        before = self._last_attempts.get(uid)
        if before is None:
            last = self._latest
            attempt = self._latest = last if last == attempt else attempt
        else:
            times = before.times + 1 if before.facts == attempt.facts else attempt.times
            attempt = LastAttempt(attempt.revision, attempt.facts, times)
        self._last_attempts[uid] = attempt

    def _forget(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        for book in (self.records, self.victims, self._last_attempts, self._timeouts, self.durations):
            book.pop(uid, None)
        self._named.drop(pod.metadata.namespace, pod.metadata.name, uid)
