"""A cluster state that writes to an undo log how each change is reversed.

Nodes, pods and objects are put back by the ordinary methods, so all sums, counts and caches change as for any other change.
Then the saved order is restored: of rows, arrivals and turns of nodes, pods on a row, objects of a kind, and services by
selector. Versions only grow, so cache entries for a reversed state are not used again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, Final, TypeVar

from moorage.api.core import Node, Object, Pod, Service
from moorage.api.selectors import NOTHING, selector_from_map
from moorage.core.queue import QueuedPod, SchedulingQueue
from moorage.framework.events import ClusterEvent
from moorage.state.cluster import ClusterState
from moorage.state.node_orders import zone_of
from moorage.state.pod_groups import GroupPods, PodGroups, group_key
from moorage.state.pod_info import PodInfo

# The undo log: one entry for each change since a transaction began, oldest first, that reverses the change.
#
# The parts of a recorded simulation write to it while a transaction is open. Each entry restores one part, with its sums and
# order, to the state just before its change, provided that all later changes were reversed before. So a rollback runs the
# entries backwards.

Undo = Callable[[], None]
T = TypeVar("T")


class _Level:
    """One open transaction: the index of its first entry, the parts that were saved as a whole, and whether the log gave up."""

    __slots__ = ("begin", "saved", "too_few")

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.saved: set[Hashable] = set()
        self.too_few = False


class UndoLog:
    """The entries of all open transactions. ``depth`` is the number of open transactions."""

    def __init__(self) -> None:
        self._entries: list[Undo] = []
        self._levels: list[_Level] = []
        #: True while changes are reversed: what that changes in turn is not recorded.
        self._reverses = False

    @property
    def depth(self) -> int:
        return len(self._levels)

    @property
    def is_open(self) -> bool:
        return bool(self._levels)

    def begin(self) -> None:
        """Open a transaction, nested in the innermost open one if there is any."""
        self._levels.append(_Level(len(self._entries)))

    def add(self, undo: Undo) -> None:
        """Add an entry; a transaction must be open."""
        self._entries.append(undo)

    def is_new(self, part: Hashable) -> bool:
        """Return True if a transaction is open and this is the first call for this part in it."""
        if not self._levels or self._reverses or part in self._levels[-1].saved:
            return False
        self._levels[-1].saved.add(part)
        return True

    def give_up(self) -> None:
        """Record a change that no entry reverses, so that the state has to be rebuilt from its history."""
        if self._levels:
            self._levels[-1].too_few = True

    def commit(self) -> None:
        """Close the innermost transaction; its changes become part of the enclosing one."""
        closed = self._levels.pop()
        if self._levels:
            self._levels[-1].saved |= closed.saved
            self._levels[-1].too_few |= closed.too_few
        else:
            self._entries.clear()

    def roll_back(self) -> bool:
        """Close the innermost transaction and reverse its changes. Return False if they cannot be reversed."""
        closed = self._levels.pop()
        entries = self._entries[closed.begin :]
        del self._entries[closed.begin :]
        reversed_all = False
        self._reverses = True
        try:
            while entries and not closed.too_few:
                entries.pop()()
            reversed_all = not closed.too_few
        finally:
            self._reverses = False
            if not reversed_all and self._levels:
                self._levels[-1].too_few = True
        return reversed_all


NO_LOG: Final = UndoLog()


def saving(save: Callable[[Any, Any], None], *methods: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator of a class whose ``methods`` first call ``save``, with the object and their first argument."""

    def decorated(kind: type[T]) -> type[T]:
        for name in methods:
            setattr(kind, name, _saving(getattr(kind, name), save))
        return kind

    return decorated


def _saving(method: Callable[..., Any], save: Callable[[Any, Any], None]) -> Callable[..., Any]:
    @wraps(method)
    def saved(owner: Any, first: Any, /, *args: Any, **kwargs: Any) -> Any:
        save(owner, first)
        return method(owner, first, *args, **kwargs)

    return saved


@saving(lambda groups, pod: groups.save(pod), "note", "put", "take", "drop")
class RecordedGroups(PodGroups):
    """The pods of groups, each group saved before its first change in a transaction."""

    def __init__(self, cluster: RecordedClusterState) -> None:
        super().__init__()
        self._cluster = cluster

    def account(self) -> Iterator[Any]:
        """Yield all that decisions depend on, order included."""
        groups = sorted(self._groups.items())
        yield [(key, list(some.nodes.items()), [pod.uid for pod in some.unscheduled]) for key, some in groups]

    def save(self, pod: PodInfo) -> None:
        """Save the pod's group before its first change."""
        key = group_key(pod)
        if key is not None and self._cluster.log.is_new((self, key)):
            held = self._groups.get(key)
            self._cluster.log.add(partial(self._restore, key, held, None if held is None else held.save()))

    def _restore(self, key: str, held: GroupPods | None, restore: Callable[[], None] | None) -> None:
        if held is None or restore is None:
            self._groups.pop(key, None)
        else:
            self._groups[key] = held
            restore()


#: A pod with its node.
_Placed = tuple[PodInfo, str]


@saving(lambda state, one: state.record(state._undo_of_namespaces, one.metadata.name), "set_namespace")
@saving(lambda state, name: state.record(state._undo_of_namespaces, name), "remove_namespace")
@saving(lambda state, obj: state.record(state._undo_of_object, obj, False), "set_object")
@saving(lambda state, obj: state.record(state._undo_of_object, obj, True), "remove_object")
class RecordedClusterState(ClusterState):
    """A cluster state that records how to reverse its changes; see the module's description."""

    log: UndoLog = NO_LOG

    def __init__(self, *, keep_groups: bool = False) -> None:
        super().__init__()
        if keep_groups:
            self.groups = RecordedGroups(self)

    def record(self, undo_of: Callable[..., Undo], *change: Any) -> None:
        """Add the entry that reverses a change, if a transaction is open."""
        if self.log.is_open:
            self.log.add(undo_of(*change))

    def account(self, listed: Mapping[str, Pod]) -> Iterator[Any]:
        """Yield all that decisions depend on, order included. Of pods that are ``listed`` elsewhere, by UID, only the UID.

        A function stands for values that never change; it computes them from copies, at any later time.
        """
        table = self.table
        columns = [table.arrival, table.described, table.pod_count, table.nonzero_cpu, table.nonzero_memory]
        yield [column.view.tolist() for column in columns]
        yield {name: sums for name in table.resources_requested if any(sums := table.requested(name).view.tolist())}
        nodes = table.nodes.copy()
        yield lambda: (nodes,)
        yield partial(_by_row, [pods.copy() for pods in table.pods], listed)
        yield table.rows_in_turn().tolist()
        yield sorted((name, image.size, sorted(image.rows)) for name, image in table.images.holders.items())
        yield sorted(
            (*port, address, *sorted(rows.items())) for port, held in table.host_ports.items() for address, rows in held.items()
        )
        yield {name: list(pods.values()) for name, pods in self._nowhere.items()}
        yield self.namespaces
        yield self._services.listing()
        held = [list(some.values()) for _, some in sorted(self._objects.items(), key=lambda one: one[0].__name__) if some]
        yield lambda: held
        yield self._assumed
        if isinstance(self.groups, RecordedGroups):
            yield from self.groups.account()

    @property
    def placed_pods(self) -> dict[str, _Placed]:
        """Every pod on a node, by UID, with the node's name."""
        return self._placed

    def plain_copies(self) -> Iterator[tuple[Any, Any]]:
        """Yield the large parts, which hold only values that never change, each with its copy."""
        yield self._placed, self._placed.copy()
        rows = [pods.copy() for pods in self.table.pods]
        yield self.table.pods, rows
        yield from zip(self.table.pods, rows, strict=True)
        yield self.table.labels.by_row, self.table.labels.by_row.copy()

    # -- nodes --------------------------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> Node | None:
        if not self.log.is_open:
            return super().set_node(node)
        row = self.table.row_of.get(node.name)
        if row is None:
            self._add_node(node)
        else:
            old, save = self.table.nodes[row], self.table.save_node(row)
            moves = zone_of(old.labels) != zone_of(node.labels)
            order = self.table.save_order(old, node) if moves else None
            self.log.add(partial(self._unset_node, old, save, order))
            super().set_node(node)
        return None if row is None else old

    def _add_node(self, node: Node) -> None:
        table, nowhere = self.table, dict(self._nowhere.get(node.name, {}))
        note_step = table.changes.expect_step(len(table), len(table), adds=True)
        self.log.add(partial(self._unadd_node, node.name, table.save_order(node), nowhere))
        super().set_node(node)
        note_step()

    def _unadd_node(self, name: str, order: Callable[[], None], nowhere: dict[str, PodInfo]) -> None:
        self.table.remove_node(name)
        order()
        if nowhere:
            self._nowhere[name] = nowhere

    def _unset_node(self, old: Node, save: Callable[[], None], order: Callable[[], None] | None) -> None:
        self.table.update_node(old)
        save()
        if order is not None:
            order()

    def remove_node(self, name: str) -> Node | None:
        row = self.table.row_of.get(name)
        if row is None or not self.log.is_open:
            return super().remove_node(name)
        table = self.table
        node, note_step = table.nodes[row], table.changes.expect_step(row, len(table) - 1, adds=False)
        saved = (table.save_row(row), table.save_node(row), table.save_order(node))
        self.log.add(partial(self._put_node_back, row, node, saved))
        super().remove_node(name)
        note_step()
        return node

    def _put_node_back(self, row: int, node: Node, saved: tuple[Callable[[], None], ...]) -> None:
        self.table.put_back(row, node)
        self._nowhere.pop(node.name, None)
        for restore in saved:
            restore()

    # -- pods ---------------------------------------------------------------------------------------------------------

    def place(self, pod: PodInfo, node: str) -> PodInfo | None:
        if not self.log.is_open:
            return super().place(pod, node)
        undo = self._undo_of(pod.uid, node)
        before = self._placed.get(pod.uid)
        known = super().place(pod, node)
        if known is pod and before is not None:
            undo = partial(self._unconfirm, pod.uid, before)
        self.log.add(undo)
        return known

    def place_all(self, pods: Iterable[PodInfo]) -> None:
        if self.log.is_open:
            for pod in pods:
                self.place(pod, pod.spec.node_name)
        else:
            super().place_all(pods)

    def _unconfirm(self, uid: str, before: _Placed) -> None:
        pod, node = before
        self._placed[uid] = before
        self._assumed[uid] = node
        self.table.pods[self.table.row_of[node]][uid] = pod

    def assume(self, pod: PodInfo, node: str) -> None:
        if self.log.is_open:
            self.log.add(self._undo_of(pod.uid, node))
        super().assume(pod, node)

    def forget(self, uid: str) -> PodInfo | None:
        if self.log.is_open and uid in self._assumed:
            self.log.add(self._undo_of(uid))
        return super().forget(uid)

    def remove_pod(self, uid: str) -> PodInfo | None:
        if self.log.is_open and uid in self._placed:
            self.log.add(self._undo_of(uid))
        return super().remove_pod(uid)

    def _undo_of(self, uid: str, target: str | None = None) -> Callable[[], None]:
        """Return the undo entry that restores a pod's node and its position among the pods of that node and of ``target``."""
        placed = self._placed.get(uid)
        names = {name for name in (target, None if placed is None else placed[1]) if name is not None}
        return partial(self._restore_pod, uid, placed, self._assumed.get(uid), [self._save_pods(name) for name in names])

    def _save_pods(self, node: str) -> Callable[[], None]:
        row = self.table.row_of.get(node)
        if row is None:
            return partial(self._restore_nowhere, node, dict(self._nowhere.get(node, {})))
        volumes = self.table.volume_use.save_order(row) if self.table.volume_use.pods_on(row) else None
        return partial(self._restore_row, row, self.table.pods[row].copy(), volumes)

    def _restore_nowhere(self, node: str, pods: dict[str, PodInfo]) -> None:
        if pods:
            self._nowhere[node] = pods

    def _restore_row(self, row: int, pods: dict[str, PodInfo], volumes: Callable[[], None] | None) -> None:
        self.table.pods[row] = pods
        if volumes is not None:
            volumes()

    def _restore_pod(self, uid: str, placed: _Placed | None, assumed: str | None, order: list[Callable[[], None]]) -> None:
        if self._placed.get(uid) is not placed:
            self._take(uid)
            if placed is not None:
                self._put(*placed)
                self._placed[uid] = placed
        if assumed is not None:
            self._assumed[uid] = assumed
        else:
            self._assumed.pop(uid, None)
        for restore in order:
            restore()

    # -- everything else ----------------------------------------------------------------------------------------------

    def _undo_of_namespaces(self, name: str) -> Callable[[], None]:
        before = self.namespaces.copy()

        def undo() -> None:
            self.namespaces.clear()
            self.namespaces.update(before)
            self._namespaces_changed(name)

        return undo

    def _undo_of_object(self, obj: Object, removes: bool) -> Callable[[], None]:
        kind, key = type(obj), obj.key
        held: dict[str, Any] = self.objects(kind)
        old = held.get(key)
        before = held.copy() if removes and old is not None else None
        order = [self._services.save(*_place_of(s)) for s in (old, obj) if isinstance(s, Service)]

        def undo() -> None:
            if before is not None:
                held.clear()
                held.update(before)
            elif old is not None:
                held[key] = old
            else:
                held.pop(key, None)
            self._note(kind, key)
            for restore in order:
                restore()

        return undo


def _place_of(service: Service) -> tuple[frozenset[str], Any]:
    selector = selector_from_map(service.spec.selector) if service.spec.selector else NOTHING
    return frozenset([service.metadata.namespace]), selector


def _by_row(rows: Iterable[Mapping[str, PodInfo]], listed: Mapping[str, Pod]) -> Iterator[list[str | Pod]]:
    """Yield the pods of each row; of those that are ``listed`` elsewhere, only the UID."""
    for pods in rows:
        yield [uid if (other := listed.get(uid)) is pod.pod or other == pod.pod else pod.pod for uid, pod in pods.items()]


@saving(
    lambda queue, _: queue.touch(),
    "add", "add_new", "update", "pop", "pop_this", "done", "pass_over", "requeue", "activate", "nominate",
    "regroup", "end_without", "end_group",
)  # fmt: skip
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
        yield self._order, self._next_scan, self._groups

    def touch(self) -> None:
        """Save the state before its first change."""
        if self.log.is_new(self):
            self.log.add(self.save())

    def delete(self, pod: PodInfo, now: float, *, bound: bool = False) -> QueuedPod | None:
        if self.get(pod.uid) is not None or self.nomination(pod.uid) is not None:
            self.touch()
        return super().delete(pod, now, bound=bound)

    def event(self, event: ClusterEvent, old: Any, new: Any, now: float, only: Callable[[PodInfo], bool] | None = None) -> int:
        if self.heeds_events:
            self.touch()
        return super().event(event, old, new, now, only)

    def end_nomination(self, uid: str) -> None:
        if self.nomination(uid) is not None:
            self.touch()
        super().end_nomination(uid)
