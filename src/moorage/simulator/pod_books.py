"""The books of a simulated cluster: its pods by UID and by name, with their records and last attempts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from moorage.api.core import Pod
from moorage.engine.scheduler import Scheduler
from moorage.errors import CopyError
from moorage.simulator.pod_collector import PodCollector
from moorage.simulator.pod_record import PodRecord, State, bound_version
from moorage.simulator.under_way import LastAttempt

__all__ = ["PodBooks"]


class PodBooks:
    """The base of ``SimulatedCluster``, which fills the books and adds the fields without a value here."""

    scheduler: Scheduler
    now: float
    durations: dict[str, float]
    records: dict[str, PodRecord]
    victims: dict[str, PodRecord]
    _collector: PodCollector

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        #: UID → the number of the pod in order of arrival.
        self._came: dict[str, int] = {}
        self._arrivals = 0
        self._named: dict[tuple[str, str], str] = {}
        self._last_attempts: dict[str, LastAttempt] = {}
        #: UID → how often its work waited until the deadline.
        self._timeouts: dict[str, int] = {}

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise CopyError(
            "a simulation cannot be copied or pickled; call prepare(options) again and load the same objects: with the same"
            " seed it runs the same way"
        )

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

    def pod_named(self, key: str) -> Pod | None:
        """Return the pod of this ``namespace/name``, if it exists."""
        namespace, _, name = key.partition("/")
        pod = self._pods.get(self._named.get((namespace, name), ""))
        return pod if pod is not None and pod.key == key else None

    def _are_new(self, pods: Sequence[Pod]) -> bool:
        """Return whether neither the UID nor the name of any of the pods is known."""
        uids = [pod.metadata.uid for pod in pods]
        names = [(pod.metadata.namespace, pod.metadata.name) for pod in pods]
        return all(book.keys().isdisjoint(uids) for book in (self._pods, self.records)) and self._named.keys().isdisjoint(names)

    def _take_placed(self, pods: Sequence[Any]) -> bool:
        """Report pods on nodes together, which takes less time. Return False if one of them may concern more than its node."""
        if self._collector.gone or not self._are_new(pods) or not self.scheduler.observe_placed(pods, self.now):
            return False
        for arrival, pod in enumerate(pods, self._arrivals + 1):
            uid = pod.metadata.uid
            self._pods[uid] = pod
            self._came[uid] = arrival
            self._named[pod.metadata.namespace, pod.metadata.name] = uid
        self._arrivals += len(pods)
        return True

    def _place(self, pod: Pod, node: str, now: float) -> Pod:
        """Record that a pod is bound. Return its bound version."""
        uid = pod.metadata.uid
        bound = self._pods[uid] = bound_version(pod, node)
        record = self.records.get(uid)
        if record is not None and record.state == State.PENDING:
            record.state, record.node, record.placed_s = State.PLACED, node, now
        return bound

    def _note_attempt(self, record: PodRecord, message: str, attempt: LastAttempt) -> None:
        """Record an attempt for a pod."""
        record.attempts += 1
        record.message = message
        uid = record.pod.metadata.uid
        before = self._last_attempts.setdefault(uid, attempt)
        if before is not attempt:
            times = before.times + 1 if before.facts == attempt.facts else attempt.times
            self._last_attempts[uid] = LastAttempt(attempt.revision, attempt.facts, times)

    def _forget(self, pod: Pod) -> None:
        uid, name = pod.metadata.uid, (pod.metadata.namespace, pod.metadata.name)
        for book in (self.records, self.victims, self._last_attempts, self._timeouts, self.durations):
            book.pop(uid, None)
        if self._named.get(name) == uid:
            del self._named[name]
