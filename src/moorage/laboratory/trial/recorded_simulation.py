"""A simulation whose changes can be reversed: it writes the changes of its records and objects to an undo log.

Large books are reversed entry by entry. Small ones, such as the claims that wait for a volume, are saved as a whole before
their first change. Nothing is known of what plugins from elsewhere keep: for those the log gives up, and the state is rebuilt
from its history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Final

from moorage.api.core import Pod
from moorage.api.devices import ResourceClaim
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.core.engine.engine_state import EngineParts
from moorage.core.engine.facts import Done, News, Seen
from moorage.framework.profile import points_of
from moorage.laboratory.trial.recorded_state import NO_LOG, RecordedClusterState, RecordedQueue, UndoLog, saving
from moorage.plugins import builtin_registry
from moorage.plugins.devices.claim_shapes import DeviceState
from moorage.plugins.volumes.assume_cache import Assumptions
from moorage.simulator.simulation import PodRecord, SimulatedCluster
from moorage.simulator.storage_controller import StorageController

RECORDED_PARTS: Final = EngineParts(RecordedClusterState, RecordedQueue)
_STORAGE: Final = (PersistentVolume, PersistentVolumeClaim, StorageClass)
#: Points at which plugins may keep state about pods. Built-in plugins drop it with the pods.
_KEEPING: Final = frozenset(["reserve", "permit", "preBind", "bind", "postBind", "postFilter", "preEnqueue"])


_Books = tuple[dict[str, Any], ...]
_fields_of = attrgetter(*PodRecord.__struct_fields__)


@saving(lambda simulation, one: simulation.touch(one.pod.uid), "_note", "_note_revoked", "_nominate")
@saving(lambda simulation, effect: simulation.touch(effect.victim.uid), "_evict")
@saving(lambda simulation, pod: simulation.touch(pod.metadata.uid), "_delete_orphan")
@saving(lambda simulation, uid: simulation.touch(uid), "delete", "evict")
class RecordedSimulation(SimulatedCluster):
    """A simulation that records how to reverse its changes; see the module's description."""

    log: UndoLog = NO_LOG
    #: True if third-party plugins may keep state, which the undo log cannot restore.
    has_keepers = False

    def record(self, log: UndoLog) -> None:
        """Use this undo log from now on."""
        self.log = log
        cluster, queue = self.scheduler.cluster, self.scheduler.queue
        if isinstance(cluster, RecordedClusterState) and isinstance(queue, RecordedQueue):
            cluster.log = queue.log = log
        self.has_keepers = any(map(self._keeps, self.scheduler.profiles.values()))

    def _keeps(self, profile: Any) -> bool:
        shipped = builtin_registry(self.scheduler.gates.release)
        others = [plugin for name, plugin in profile.plugins.items() if name not in shipped]
        return any(not _KEEPING.isdisjoint(points_of(plugin)) for plugin in others)

    def account(self, pods: Mapping[str, Pod]) -> Iterator[Any]:
        """Yield everything that later events depend on. ``pods`` are a copy of its own.

        A function stands for values that never change; it computes them from copies, at any later time.
        """
        state, came = self.scheduler.state, self._came.copy()
        yield self.now, self.scheduler.cycle.order.start, state.revision, state.facts
        yield lambda: ([pods[uid] for uid in sorted(pods, key=came.__getitem__)],)
        for book in (self.records, self.victims):
            records = [(uid, copy(record)) for uid, record in book.items()]
            yield lambda records=records: (records,)
        yield [(uid, self._last_attempts[uid]) for uid in sorted(self._last_attempts)]
        yield [
            (time_s, type(fact).__name__, getattr(fact, "obj", None))
            for time_s, _, fact in sorted(self._events, key=itemgetter(0, 1))
        ]
        yield sorted(self._timeouts.items())
        yield sorted((when, [pod.uid for pod in waiting]) for when, waiting in state.retries)

    def plain_copies(self) -> Iterator[tuple[Any, Any]]:
        """Yield the large books, which hold only values that never change, each with its copy."""
        yield self._pods, self._pods.copy()
        yield self._came, self._came.copy()
        cluster = self.scheduler.cluster
        assert isinstance(cluster, RecordedClusterState)
        yield from cluster.plain_copies()

    def release(self) -> None:
        """Remove all pods one by one, so that other threads run meanwhile. Do not use the simulation afterwards."""
        cluster = self.scheduler.cluster
        assert isinstance(cluster, RecordedClusterState)
        books: tuple[dict[str, Any], ...] = (self.records, self.victims, self._last_attempts)
        for book in (*books, *cluster.table.pods, *self._large_books()):
            while book:
                book.popitem()

    def _large_books(self) -> tuple[dict[Any, Any], ...]:
        cluster = self.scheduler.cluster
        assert isinstance(cluster, RecordedClusterState)
        names = (self._named, self.scheduler.event_handlers.names)
        spaces = [space for one in names for space in one.spaces.values()]
        return self._pods, self._came, *spaces, cluster.placed_pods

    def begin(self) -> None:
        """Open a transaction: save what is small."""
        self.log.begin()
        if self.has_keepers:
            self.log.give_up()
        scheduler = self.scheduler
        books = (
            scheduler.state.bindings,
            scheduler.state.retries,
            scheduler.preemption,
            scheduler.snapshot.index(Assumptions),
            scheduler.snapshot.index(DeviceState).ledger,
            self._collector,
            self._claims,
        )
        for book in books:
            self.log.add(book.save())
        self.log.add(partial(self._restore, self._small()))

    def _small(self) -> tuple[Any, ...]:
        state, cycle, changes = self.scheduler.state, self.scheduler.cycle, self.scheduler.cluster.table.changes
        mine = (self.now, self._serial, self._arrivals, self._may_fit, self._until_s, self.overslept, len(self.faults))
        engine = (state.now, state.revision, state.facts, state.outbox.tickets)
        books = self._events.copy(), self.groups.copy(), self._waiting_work.copy()
        return mine, books, engine, cycle.order.start, (changes.position, changes.updates.position)

    def _restore(self, small: tuple[Any, ...]) -> None:
        state, changes = self.scheduler.state, self.scheduler.cluster.table.changes
        mine, books, engine, self.scheduler.cycle.order.start, (changed, updated) = small
        self._events, self.groups, self._waiting_work = books
        self.now, self._serial, self._arrivals, self._may_fit, self._until_s, self.overslept, faults = mine
        state.now, state.revision, state.facts, state.outbox.tickets = engine
        del self.faults[faults:]
        changes.note_undone(changed)
        changes.updates.note_undone(updated)

    # -- what changes -------------------------------------------------------------------------------------------------

    def _tell(self, fact: News) -> None:
        if self.log.is_open and not isinstance(fact, Done):
            obj = fact.obj
            if isinstance(obj, Pod):
                self.touch(obj.metadata.uid)
                self._touch_name(obj)
            elif isinstance(obj, ResourceClaim):
                after = obj if isinstance(fact, Seen) else None
                self.log.add(self._claims.save_claim(obj.key, after))
                self.log.add(self.devices.save(obj.key))
            elif isinstance(obj, _STORAGE) and self.log.is_new(StorageController):
                self.log.add(self.storage.save())
        super()._tell(fact)

    def _take_placed(self, pods: Sequence[Any]) -> bool:
        return not self.log.is_open and super()._take_placed(pods)

    def _take_waiting(self, pods: Sequence[Any]) -> bool:
        return not self.log.is_open and super()._take_waiting(pods)

    def touch(self, uid: str) -> None:
        """Save the records of a pod before their first change in a transaction."""
        if not self.log.is_new(uid):
            return
        books: _Books = (self._pods, self._came, self.records, self.victims, self._last_attempts, self._timeouts)
        values = [book.get(uid) for book in books]
        record = values[2] or values[3]
        self.log.add(partial(_restore_books, uid, books, values, record, None if record is None else _fields_of(record)))

    def _touch_name(self, pod: Pod) -> None:
        name = pod.metadata.namespace, pod.metadata.name
        if self.log.is_new(name):
            for names in (self._named, self.scheduler.event_handlers.names):
                self.log.add(partial(names.put, *name, names.get(*name)))


def _restore_books(
    uid: str, books: _Books, values: list[Any], record: PodRecord | None, fields: tuple[Any, ...] | None
) -> None:
    for book, value in zip(books, values, strict=True):
        if value is None:
            book.pop(uid, None)
        else:
            book[uid] = value
    if record is not None and fields is not None:
        for name, before in zip(PodRecord.__struct_fields__, fields, strict=True):
            setattr(record, name, before)
