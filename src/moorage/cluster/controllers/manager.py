"""Run controllers: the store's watches fill the object index and the work queue, and keys are reconciled one after another.

Store, index and controllers share one thread, and a call of the store completes before it returns. So at each reconcile the
index equals the store, and controllers need no protection against a stale cache, unlike those of a real cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final, TypeVar

import msgspec

from moorage.api.documents.object_fields import EVENTS, copied, is_ending, name_of, namespace_of, stamp, uid_of
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.documents.statuses import ApiError, conflict
from moorage.api.fields.managed_fields import FieldManager
from moorage.basis.printable import clip
from moorage.cluster.apiserver.http.limits import is_heavy
from moorage.cluster.apiserver.http.worker import Worker
from moorage.cluster.controllers.nodes.kubelets import KUBELET
from moorage.cluster.controllers.upkeep.namespaces import Namespaces
from moorage.rules.store.definitions import AskOwner
from moorage.rules.store.deletion import DeleteOptions
from moorage.rules.store.detached_store import DetachedStore, StaleReadError
from moorage.rules.store.event_apis import EVENT_TTL_S
from moorage.rules.store.list_selection import ALL, Selection
from moorage.rules.store.store import Store
from moorage.rules.store.watches import Watch
from moorage.rules.workloads import steps
from moorage.rules.workloads.object_index import ObjectIndex

V = TypeVar("V")

# -- executor ----------------------------------------------------------------------------------------------------------
# Execute controllers' steps as calls of the store, under the field manager that the controller has in Kubernetes.

#: Number of events that are cached for aggregation. If an event recurs after it was evicted, a new object is created.
_REMEMBERED: Final = 4096
#: From this number of similar events on (equal except for the message), events are combined, until a pause of ten minutes.
_MOST_SIMILAR: Final = 10
_FORGOTTEN_S: Final = 600.0
#: Maximum number of attempts at a step on a large object; an attempt fails if an object that it read changes meanwhile.
_TRIES: Final = 5


class StepExecutor:
    """Executes steps on a store. Repeated events increase a count, and many similar ones are combined, as in event recorders.

    Source  client-go, tools/record/events_cache.go
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        #: The name of the event about each recent message, and when it was last written; the latest last.
        self._names: dict[tuple[str, ...], tuple[str, float]] = {}
        #: The messages of recent similar events about an object, and the time of the last one.
        self._similar: dict[tuple[str, ...], tuple[dict[str, None], float]] = {}

    def carry_out(self, step: steps.ExecutableStep, source: str) -> None:
        """Execute a step for the controller named ``source``.

        Raises  ApiError as the store does; 409 also if another object has taken the name
        """
        match step:
            case steps.Create(kind, document):
                self._create(step, kind, document, source)
            case steps.Update(kind, document, subresource):
                held = self._own(kind, document)["metadata"]
                document["metadata"] = {**document["metadata"], "resourceVersion": held["resourceVersion"]}
                document["metadata"].pop("managedFields", None)
                self._update(kind, document, source, subresource)
            case steps.SetStatus(kind, document, status):
                held = self._own(kind, document)
                if held.get("status") != status:
                    held["status"] = status
                    self._update(kind, held, source, "status" if kind.has_status else "")
            case steps.DeleteStep(kind, document):
                options = DeleteOptions(step.grace_s, uid_of(document), "", step.propagation)
                self._delete(kind, document, options)
            case steps.EventStep():
                self._record(step, source)

    def carry_out_detached(self, step: steps.ExecutableStep, source: str, ask: AskOwner) -> None:
        """Execute a step in a worker thread; ``ask`` calls functions on the store's thread. No other step may run meanwhile.

        Do nothing if the object has changed since the controller saw it: the change triggers another reconcile.

        Raises  ApiError as ``carry_out`` does
        """
        for _ in range(_TRIES):
            store = DetachedStore(self._store, ask)
            if not isinstance(step, steps.Create) and _is_outdated(store, step):
                return
            executor = copy(self)
            executor._store = store
            try:
                executor.carry_out(replace(step, document=copied(step.document)), source)
            except StaleReadError:
                if store.has_changed:
                    return
            else:
                return

    def _create(self, step: steps.Create, kind: ServedKind, document: Document, source: str) -> None:
        try:
            made = self._store.create(kind, namespace_of(document), document, manager=_manager(source, kind))
        except ApiError as error:
            is_closing = any(cause.reason == "NamespaceTerminating" for cause in error.causes)
            if is_closing or (step.or_keep and error.reason == "AlreadyExists"):
                return
            if step.owner is not None:
                prefix = step.event_texts[1] if step.event_texts else "Error creating: "
                self._record(steps.EventStep(*step.owner, "Warning", "FailedCreate", f"{prefix}{error}"), source)
            if step.otherwise is not None:
                self.carry_out(step.otherwise(str(error)), source)
            raise
        if step.owner is not None:
            text = step.event_texts[0] if step.event_texts else f"Created {kind.kind.lower()}: {made.name}"
            self._record(steps.EventStep(*step.owner, "Normal", "SuccessfulCreate", text), source)

    def _own(self, kind: ServedKind, document: Document) -> Document:
        """Return the stored object, if it still has the same UID."""
        held = self._store.get(kind, namespace_of(document), name_of(document)).document()
        if uid_of(held) != uid_of(document):
            raise conflict(kind.resource, kind.group, name_of(document), "another object has taken this name")
        return held

    def _update(self, kind: ServedKind, document: Document, source: str, subresource: str = "") -> None:
        manager = _manager(source, kind, subresource)
        self._store.update(kind, namespace_of(document), name_of(document), document, subresource=subresource, manager=manager)

    def _delete(self, kind: ServedKind, document: Document, options: DeleteOptions) -> None:
        try:
            self._store.delete(kind, namespace_of(document), name_of(document), options)
        except ApiError as error:
            if error.code != 404:
                raise

    # -- events ---------------------------------------------------------------------------------------------------------

    def _record(self, note: steps.EventStep, source: str) -> None:
        regarding = note.document
        key: tuple[str, ...] = (source, uid_of(regarding), note.type, note.reason, note.message)
        many = self._are_many(key)
        if many:
            note = replace(note, message=f"(combined from similar events): {note.message}")
            key = key[:-1]
        clock = self._store.clock()
        now = stamp(clock)
        namespace = namespace_of(regarding) or "default"
        known, _ = self._names.pop(key, ("", 0.0))
        held = self._store.find(EVENTS, namespace, known) if known else None
        _forget(self._names, clock - EVENT_TTL_S, lambda kept: kept[1])
        if held is not None:
            self._names[key] = known, clock
            event = held.document()
            event |= {"count": int(event.get("count") or 1) + 1, "lastTimestamp": now, "message": note.message}
            self._update(EVENTS, event, source)
            return
        try:
            # The store never issues a resource version twice, so the name is unique across restarts.
            mark = f"{int(self._store.clock() * 1e6):x}{self._store.version:x}"
            event = _event(note, source, now, namespace, mark)
            if many:
                event["reportingComponent"] = ""
            made = self._store.create(EVENTS, namespace, event, manager=_manager(source, EVENTS))
        except ApiError as error:
            if error.code not in {403, 404}:
                raise
            return  # its namespace is being deleted, with its events
        self._names[key] = made.name, clock

    def _are_many(self, key: tuple[str, ...]) -> bool:
        """Return True if similar events about an object are so many that this one is combined with them."""
        now = self._store.clock()
        texts, last = self._similar.pop(key[:-1], ({}, now))
        if now - last > _FORGOTTEN_S:
            texts = {}
        texts[key[-1]] = None
        _forget(self._similar, now - _FORGOTTEN_S, lambda kept: kept[1])
        self._similar[key[:-1]] = texts, now
        if len(texts) < _MOST_SIMILAR:
            return False
        del texts[next(iter(texts))]
        return True


def _forget(table: dict[tuple[str, ...], V], since: float, time_of: Callable[[V], float]) -> None:
    """Drop the entries of a table, the oldest of which come first, that are older than a time, or too many."""
    while table:
        first = next(iter(table))
        if len(table) < _REMEMBERED and time_of(table[first]) >= since:
            return
        del table[first]


def _is_outdated(store: Store, step: steps.ExecutableStep) -> bool:
    held = store.find(step.kind, namespace_of(step.document), name_of(step.document))
    seen = step.document["metadata"].get("resourceVersion")
    return held is not None and bool(seen) and seen != str(held.version)


@lru_cache(maxsize=512)  # a definition that changes makes another kind
def _manager(source: str, kind: ServedKind, subresource: str = "") -> FieldManager:
    """Return the field manager of a controller's writes: the Kubernetes program that the controller is part of."""
    return FieldManager(
        source if source == KUBELET else "kube-controller-manager", version=kind.api_version, subresource=subresource
    )


def _event(note: steps.EventStep, source: str, now: str, namespace: str, mark: str) -> Document:
    about = note.document
    regarding = {
        "kind": note.kind.kind, "apiVersion": note.kind.api_version, "name": name_of(about), "uid": uid_of(about),
        "resourceVersion": about["metadata"].get("resourceVersion", ""),
    }  # fmt: skip
    if namespace_of(about):
        regarding["namespace"] = namespace_of(about)
    return {
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": f"{name_of(about)}.{mark}", "namespace": namespace},
        "involvedObject": regarding, "reason": note.reason, "message": note.message, "type": note.type,
        "source": {"component": source}, "reportingComponent": source, "reportingInstance": "",
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    }  # fmt: skip


#: How long the manager works before it yields the thread to other tasks, in seconds.
_SLICE_S: Final = 0.02
#: The first steps of a reconcile, up to this number, are always executed in one turn, as they may depend on each other.
_FEW: Final = 4
#: The size of watch events that are processed at a time, in bytes.
_PIECE: Final = 256 << 10
#: Kinds that no controller needs and that change often.
_UNSEEN: Final = frozenset(["Event"])


class _Turn:
    """A time slice during which the manager keeps the thread."""

    def __init__(self) -> None:
        self._end = time.monotonic() + _SLICE_S

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._end

    async def end(self) -> None:
        """If the turn is over, let other tasks run and begin a new turn."""
        if self.is_over:
            await asyncio.sleep(0)
            self._end = time.monotonic() + _SLICE_S


class ControllerManager:
    """Runs controllers on a store. ``report`` receives errors; the failed keys are retried.

    ``worker`` executes steps on large objects while the manager runs.
    """

    def __init__(
        self, store: Store, controllers: Sequence[steps.Controller], report: Callable[[str], None] = lambda line: None,
        worker: Worker | None = None,
    ) -> None:  # fmt: skip
        self.world = ObjectIndex()
        #: Number of reconciles of each controller.
        self.looks: dict[str, int] = {one.name: 0 for one in controllers}
        self._store = store
        self._controllers = controllers
        self._report = report
        self._worker = worker
        #: The reason of the last failure of each failing key. Repeated failures with the same reason are reported once.
        self._reported: dict[tuple[int, str], str] = {}
        self._executor = StepExecutor(store)
        self._queue: steps.WorkQueue[tuple[int, str]] = steps.WorkQueue()
        self._woken = asyncio.Event()
        self._stale = True
        self._watches: dict[ServedKind, Watch] = {}
        store.empties_namespaces = not any(isinstance(one, Namespaces) for one in controllers)
        self._follow_kinds()

    def _watch(self, kind: ServedKind, version: str) -> Watch:
        return self._store.watch(kind, ALL, version, self._wake)

    def _follow_kinds(self) -> None:
        """Watch exactly the kinds that the store has now; remove objects of other kinds from the index."""
        if self._watches and self.world.kinds is self._store.kinds:
            return
        self.world.kinds = self._store.kinds
        fresh = {kind.qualified: kind for kind in self.world.kinds.stored if kind.native not in _UNSEEN}
        for kind in [kind for kind in self._watches if fresh.get(kind.qualified) is not kind]:
            self._replace(kind, fresh.get(kind.qualified))
        for kind in fresh.values():
            if kind not in self._watches:
                self._watches[kind] = self._watch(kind, "")

    def _replace(self, old: ServedKind, new: ServedKind | None) -> None:
        """Continue the watch of a custom kind under its changed definition ``new``; None if the definition was deleted."""
        watch = self._watches.pop(old)
        if new is None:
            for document in self.world.all(old):
                self._note(old, document, gone=True)
        else:
            self.world.rename(old, new)
            self._watches[new] = watch

    def _wake(self) -> None:
        self._stale = True
        self._woken.set()

    def close(self) -> None:
        """Stop watching. From then on the store deletes the content of namespaces itself."""
        self._store.empties_namespaces = True
        for kind, watch in self._watches.items():
            self._store.unwatch(kind, watch)

    # -- one reconcile at a time ----------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Process all pending watch events, and queue the keys that they concern."""
        for _ in self._refreshed():
            pass

    def _refreshed(self) -> Iterator[None]:
        """Process all pending watch events, and yield after each piece of them."""
        while self._stale or self.world.kinds is not self._store.kinds:
            self._stale = False
            self._follow_kinds()
            for kind, watch in list(self._watches.items()):
                while not (watch.idle or watch.closed):
                    for seen in watch.take(_PIECE):
                        self._note(kind, msgspec.json.decode(seen.record.body), seen.type == "DELETED")
                    yield
            for kind in [kind for kind, watch in self._watches.items() if watch.closed]:
                self._catch_up(kind)

    def _catch_up(self, kind: ServedKind) -> None:
        """Process the deletions that a watch missed because it fell too far behind, then restart it."""
        for document in self.world.all(kind):
            if self._store.find(kind, namespace_of(document), name_of(document)) is None:
                self._note(kind, document, gone=True)
        self._watches[kind] = self._watch(kind, "")
        self._stale = True

    def _note(self, kind: ServedKind, document: Document, gone: bool) -> None:
        event = self.world.note(kind, document, gone=gone)
        for number, controller in enumerate(self._controllers):
            for key in controller.keys(event, self.world):
                self._queue.add((number, key))

    def step(self) -> bool:
        """Reconcile the next key that is due; return False if none is."""
        self.refresh()
        now = self._store.clock()
        item = self._queue.take(now)
        if item is None:
            return False
        with self._reported_failures(item, now):
            for step in self._steps(item, now):
                self._executor.carry_out(step, self._controllers[item[0]].name)
        return True

    def _steps(self, item: tuple[int, str], now: float) -> Iterator[steps.ExecutableStep]:
        """Reconcile a key; yield the steps to execute."""
        number, key = item
        controller = self._controllers[number]
        self.looks[controller.name] += 1
        for step in list(controller.reconcile(key, self.world, now)):
            if isinstance(step, steps.Later):
                self._queue.add_at(item, now + step.delay_s)
            elif isinstance(step, steps.DeleteAll):
                yield from self._deletions(step)
            else:
                yield step

    def _deletions(self, step: steps.DeleteAll) -> Iterator[steps.DeleteStep]:
        """Yield the deletion of each object that is not being deleted yet."""
        if step.kind in self._watches:
            documents: Iterable[Document] = self.world.all(step.kind, step.namespace)
        else:
            records = list(self._store.all(step.kind, Selection(step.namespace)))
            documents = (record.document() for record in records)
        return (steps.DeleteStep(step.kind, one, propagation="Background") for one in documents if not is_ending(one))

    @contextmanager
    def _reported_failures(self, item: tuple[int, str], now: float) -> Iterator[None]:
        """Retry a key later if the block fails, and report why."""
        try:
            yield
        except ApiError as error:
            self._failed(item, error.reason, str(error), now)
        except Exception as error:  # a bug with one object must not stop all controllers
            self._failed(item, type(error).__name__, f"{type(error).__name__}: {error}", now)
        else:
            self._queue.forget_failures(item)
            self._reported.pop(item, None)

    def _failed(self, item: tuple[int, str], what: str, why: str, now: float) -> None:
        self._queue.add_failed(item, now)
        if self._reported.get(item) == what:
            return
        self._reported[item] = what
        number, key = item
        self._report(f"{self._controllers[number].name}: {key.strip('/')}: {clip(why)}; will be tried again")

    def next_time(self) -> float | None:
        """Return when the next key is due, on the store's clock; None if only a watch event can add work."""
        self.refresh()
        return self._store.clock() if len(self._queue) else self._queue.next_time()

    # -- running --------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            self._woken.clear()
            turn = _Turn()
            while busy := await self._step(turn):
                if turn.is_over:
                    break
            await asyncio.sleep(0)
            if not busy:
                due = self.next_time()
                try:
                    async with asyncio.timeout(None if due is None else max(0.0, due - self._store.clock())):
                        await self._woken.wait()
                except TimeoutError:
                    pass

    async def _step(self, turn: _Turn) -> bool:
        """Do the same as ``step``, but let other tasks run when the turn is over. Return False if no key is due.

        A reconcile with many steps stops when the turn is over and it has changed something, or when the worker has executed a
        step. The remaining steps may be outdated by then, so the key is reconciled again.
        """
        for _ in self._refreshed():
            await turn.end()
        now = self._store.clock()
        item = self._queue.take(now)
        if item is None:
            return False
        version, source = self._store.version, self._controllers[item[0]].name
        with self._reported_failures(item, now):
            for count, step in enumerate(self._steps(item, now), 1):
                is_large = await self._execute(step, source)
                if (is_large or (turn.is_over and count >= _FEW)) and self._store.version != version:
                    self._queue.add(item)
                    break
        return True

    async def _execute(self, step: steps.ExecutableStep, source: str) -> bool:
        """Execute a step, in the worker if its object is large; return whether it is."""
        if self._worker is None or isinstance(step, steps.EventStep) or not is_heavy(msgspec.json.encode(step.document)):
            self._executor.carry_out(step, source)
            return False
        await self._worker.run(source, partial(self._executor.carry_out_detached, step, source))
        return True
