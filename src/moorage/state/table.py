"""The node table: one row per node, one column per attribute.

Everything that plugins may read of nodes is here, as an array over rows or as an inverted index from a value to its rows. Each
pod is counted on its node's row. Rows are dense: when a node is removed, the last row takes its place. ``changes`` logs every
row that changed, so that a cache judges only those again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from moorage.api.core import Node, Quantity, Taint
from moorage.api.pod_requests import PodRequests, amount
from moorage.state.change_log import ChangeLog
from moorage.state.columns import Column, IntArray, RowSpace, add_at
from moorage.state.counts import HeldTerm, HeldTerms, LabelClassKey, NotCounted, PodCounts
from moorage.state.distinct_rooms import DistinctRooms, Rooms
from moorage.state.labels import InternedColumn, LabelColumn, LabelColumns
from moorage.state.node_images import NodeImages
from moorage.state.node_orders import NodeTree, is_heartbeat, zone_of
from moorage.state.pod_info import HostPort, PodInfo
from moorage.state.ring import Ring
from moorage.state.usage import DivisorColumns, Divisors, Usage
from moorage.state.volume_use import VolumeUse

#: If more rows than this change between two uses of the ring, it is sorted again.
_RING_CHANGES = 8
#: How many distinct allocatable sets keep their number; more than there are machine types in any cluster.
_OFFERS_REMEMBERED = 4096


class NodeTable:
    """All nodes. Arrays have shape (rows,); plugins read them through ``NodeView``."""

    def __init__(self) -> None:
        space = self.space = RowSpace()
        self.changes = ChangeLog()
        self.nodes: list[Node] = []
        self.row_of: dict[str, int] = {}
        self.pods: list[dict[str, PodInfo]] = []
        self.labels = LabelColumns(space)
        self.taints: InternedColumn[tuple[Taint, ...]] = InternedColumn(space, ())
        self.features: InternedColumn[frozenset[str]] = InternedColumn(space, frozenset())
        #: 64-bit hash of each node's name, for tie-breaking that must not depend on the order of rows
        self.name_hash = space.column(np.uint64)
        #: a number that grows with each added node, for orders that must not depend on the order of rows
        self.arrival = space.column()
        #: the highest ``arrival`` at the time the row's node was added or updated
        self.described = space.column()
        self._descriptions_are_read = False
        self._tree = NodeTree()
        self._in_turn: tuple[int, npt.NDArray[np.intp]] | None = None
        self.unschedulable = space.column(np.bool_)
        self.allowed_pods = space.column()
        self.pod_count = space.column()
        self.nonzero_cpu = space.column()
        self.nonzero_memory = space.column()
        self.images = NodeImages(space)
        #: ``pod_counts``, once it was read.
        self.counted: PodCounts | NotCounted = NotCounted()
        self.required_affinity = HeldTerms(self.labels)
        self.required_anti_affinity = HeldTerms(self.labels)
        self.preferred_affinity = HeldTerms(self.labels)
        self.preferred_anti_affinity = HeldTerms(self.labels)
        #: (protocol, port) → address → row → holders
        self.host_ports: dict[tuple[str, int], dict[str, dict[int, int]]] = {}
        self.volume_use = VolumeUse()
        #: row with an open what-if → the number of holders before it of each port that it changed
        self._what_ifs: dict[int, dict[HostPort, int]] = {}
        self._arrived = 0
        self._ring: Ring | None = None
        #: The changes to apply to the ring before it is used again.
        self._ring_changes: list[Callable[[Ring], Ring]] = []
        self._ring_domains: dict[LabelColumn, npt.NDArray[np.intp]] = {}
        self._ring_version = self._ring_layout = -1
        self._ring_updates = 0
        self._divisors = DivisorColumns(self.allocatable)
        #: Returns the divisors for shares of a resource; valid until nodes are added or removed, or offer something else.
        self.divisors: Callable[[str], Divisors] = self._divisors.__getitem__
        #: The columns that ``allocatable`` and ``requested`` return, by resource, as far as they exist. Read them only.
        self.allocatable_columns: dict[str, Column] = {}
        self.requested_columns: dict[str, Column] = {}
        #: for each row a number of its node's allocatable set; rows with equal numbers have equal sets
        self._offer = space.column()
        self._offers: dict[tuple[tuple[str, Quantity], ...], int] = {}
        self._offered = 0
        #: The columns and amounts of pods' requests, by the requests' key.
        self._sums = [self._offer, self.pod_count, self.nonzero_cpu, self.nonzero_memory]
        #: A number for all that plugins with ``Scope.USAGE`` can read of a row: its allocatable set's number, and the sums.
        self.rooms = Rooms(space, self.changes, self._sums)
        self.distinct_rooms = DistinctRooms(space, self.changes, self.rooms, self.ring)
        self.usage = Usage(self)

    def __len__(self) -> int:
        return self.space.rows

    def allocatable(self, resource: str) -> Column:
        """Return nodes' allocatable amounts of a resource: cpu in millicores, memory and storage in bytes, others in counts."""
        column = self.allocatable_columns.get(resource)
        if column is None:
            column = self.allocatable_columns[resource] = self.space.column()
        return column

    def requested(self, resource: str) -> Column:
        """Return the sum of the pods' requests on each row, in the same units."""
        column = self.requested_columns.get(resource)
        if column is None:
            column = self.requested_columns[resource] = self.space.column()
            self._sums.append(column)
        return column

    @property
    def resources_requested(self) -> tuple[str, ...]:
        """Every resource that ``requested`` was called for or a pod has requested; new ones are last."""
        return tuple(self.requested_columns)

    @property
    def pod_counts(self) -> PodCounts:
        """How many pods a matcher selects. Pods are counted from the first call on: many clusters never need it."""
        counts = self.counted
        if isinstance(counts, NotCounted):
            counts = self.counted = PodCounts(self.space, self.labels)
            rows_of: dict[int, tuple[LabelClassKey, list[int]]] = {}  # by the ids of classes, which copies share
            for row, pods in enumerate(self.pods):
                for pod in pods.values():
                    found = rows_of.get(id(key := pod.label_class)) or rows_of.setdefault(id(key), (key, []))
                    found[1].append(row)
            for key, rows in rows_of.values():
                counts.add_all(rows, key)
        return counts

    @property
    def held_terms(self) -> tuple[HeldTerms, HeldTerms, HeldTerms, HeldTerms]:
        """The affinity terms of placed pods, of all four kinds."""
        return self.required_affinity, self.required_anti_affinity, self.preferred_affinity, self.preferred_anti_affinity

    def ring(self) -> Ring:
        """Return the rows in the order of their names' hashes; valid until a row is added or removed."""
        if self._ring is None:
            self._ring = Ring.of(self.name_hash.view.copy())
        elif self._ring_changes:
            for change in self._ring_changes:
                self._ring = change(self._ring)
            self._ring_changes.clear()
        return self._ring

    def _change_ring(self, change: Callable[[Ring], Ring]) -> None:
        if self._ring is not None:
            self._ring_changes.append(change)
            if len(self._ring_changes) > _RING_CHANGES:
                self._ring = None
                self._ring_changes.clear()

    def domains_in_ring(self, key: str) -> npt.NDArray[np.intp]:
        """Return the ids of a label's values (see ``LabelColumn``) in the order of the ring; another array once one changes.

        The dtype is ``intp``, which NumPy uses as an index without conversion.
        """
        if self._ring_version != self.changes.nodes:
            self._follow_labels()
        column = self.labels.column(key)
        ids = self._ring_domains.get(column)
        if ids is None:
            ids = self._ring_domains[column] = column.ids[self.ring().rows].astype(np.intp)
        return ids

    def _follow_labels(self) -> None:
        """Update ``_ring_domains`` for the labels of updated nodes; clear it after nodes were added or removed."""
        changes = self.changes
        rows = changes.updates.since(self._ring_updates) if self._ring_layout == changes.layout else None
        if rows is None:
            self._ring_domains.clear()
        for row in set(rows or ()):
            place = self.ring().place_at[row]
            for column, ids in tuple(self._ring_domains.items()):
                if ids.item(place) != column.id_at(row):
                    changed = self._ring_domains[column] = ids.copy()
                    changed[place] = column.id_at(row)
        self._ring_version, self._ring_layout, self._ring_updates = changes.nodes, changes.layout, changes.updates.position

    def rows_in_turn(self) -> npt.NDArray[np.intp]:
        """Return all rows in kube-scheduler's order (see ``node_orders``), as of the last time a node was added or removed."""
        if self._in_turn is None or self._in_turn[0] != self.changes.layout:
            rows = (self.row_of[name] for name in self._tree.names())
            self._in_turn = (self.changes.layout, np.fromiter(rows, dtype=np.intp, count=len(self)))
        return self._in_turn[1]

    # -- nodes --------------------------------------------------------------------------------------------------------

    def add_node(self, node: Node) -> int:
        """Append a node and return its row. The name must be new."""
        row = self.space.append()
        self.nodes.append(node)
        self.row_of[node.name] = row
        self.arrival.data[row] = self._arrived = self._arrived + 1
        self.pods.append({})
        self._tree.add(node)
        self.labels.append(node.labels)
        self.name_hash.data[row] = int.from_bytes(blake2b(node.name.encode(), digest_size=8).digest(), "little")
        row_hash = int(self.name_hash.data[row])
        self._change_ring(lambda ring: ring.with_row(row_hash))
        self._offer_resources(row, node)
        self._divisors.clear()
        self._describe(row, node)
        self.changes.rearranged()
        return row

    def update_node(self, node: Node) -> int:
        """Replace a node and return its row; the pods on it stay. A heartbeat invalidates nothing."""
        row = self.row_of[node.name]
        if is_heartbeat(self.nodes[row], node) and self._stays_described(row):
            self.nodes[row] = node
            return row
        sizes = self.images.drop(row, self.nodes[row])
        before = self.nodes[row]
        if node.labels != before.labels or node.spec.taints != before.spec.taints:
            self.changes.labels += 1
        if node.labels != before.labels:
            if zone_of(node.labels) != zone_of(before.labels):
                self.rows_in_turn()  # holds until a node is added or removed
                self._tree.update(before, node)
            self._relabel(row, node.labels)
        self.nodes[row] = node
        if node.status.allocatable != before.status.allocatable:
            for column in self.allocatable_columns.values():
                column.data[row] = 0
            self._offer_resources(row, node)
            self._divisors.clear()
        self._describe(row, node)
        self.changes.updates.note(row)
        held = self.images.holders
        if node.status.images != before.status.images or any(held[name].size != size for name, size in sizes.items()):
            self.changes.images += 1
        return row

    def _stays_described(self, row: int) -> bool:
        """Record that a row's node was updated. Return False if a plugin reads ``descriptions`` and the row's value changes."""
        if self._descriptions_are_read and self.described.data.item(row) != self._arrived:
            return False
        self.described.data[row] = self._arrived
        return True

    def descriptions(self) -> IntArray:
        """Return for each row the highest ``arrival`` at the time its node was added or updated."""
        self._descriptions_are_read = True
        return self.described.view

    def _relabel(self, row: int, labels: Mapping[str, str]) -> None:
        """Change a row's labels. Where pods are counted by a label that changes, those on the row are counted again."""
        before = self.labels.of(row)
        changed = {key for key, _ in before.items() ^ labels.items()}
        if all(changed.isdisjoint(counts.keys) for counts in (self.counted, *self.held_terms)):
            self.labels.replace(row, labels)
            return
        for pod in self.pods[row].values():
            self._uncount(row, pod)
        self.labels.replace(row, labels)
        for pod in self.pods[row].values():
            self._count(row, pod)

    def remove_node(self, name: str) -> list[PodInfo]:
        """Remove a node; return the pods that were on it, which the table no longer counts."""
        row = self.row_of[name]
        pods = list(self.pods[row].values())
        for pod in pods:  # their sums go with the row
            if pod.host_ports or pod.has_affinity or pod.volumes is not None:
                self._release_own(row, pod)
        self.counted.remove_row(row, pods)
        self.changes.note(row)
        self._tree.remove(self.nodes[row])
        self.images.drop(row, self.nodes[row])
        last = len(self) - 1
        if row != last:
            self._renumber(last, row)
        self.space.remove(row)
        self.labels.remove(row)
        self.nodes[row] = self.nodes[last]
        self.pods[row] = self.pods[last]
        self.nodes.pop()
        self.pods.pop()
        del self.row_of[name]
        if row != last:
            self.row_of[self.nodes[row].name] = row
            self.changes.note(row)
        self._change_ring(lambda ring: ring.without(row))
        self._divisors.clear()
        self.changes.moved += 1
        self.changes.nodes += 1
        self.changes.rearranged()
        return pods

    def _offer_resources(self, row: int, node: Node) -> None:
        self._offer.data[row] = self._number_of(tuple(sorted(node.status.allocatable.items())))
        for resource, quantity in node.status.allocatable.items():
            if resource == "pods":
                self.allowed_pods.data[row] = amount(resource, quantity)
            else:
                self.allocatable(resource).data[row] = amount(resource, quantity)
        if "pods" not in node.status.allocatable:
            self.allowed_pods.data[row] = 0

    def _describe(self, row: int, node: Node) -> None:
        self.described.data[row] = self._arrived
        self.unschedulable.data[row] = node.spec.unschedulable
        self.taints.set(row, node.spec.taints)
        self.features.set(row, frozenset(node.status.declared_features))
        self.images.add(row, node)
        self.changes.nodes += 1
        self.changes.note(row)

    def _renumber(self, old: int, new: int) -> None:
        self.images.move(old, new, self.nodes[old])
        pods = self.pods[old].values()
        for pod in pods:
            for port in pod.host_ports:
                holders = self.host_ports[port.protocol, port.port][port.ip]
                if old in holders:
                    holders[new] = holders.pop(old)
        self.volume_use.move(old, new)
        self.counted.move(old, new, pods)

    def _number_of(self, offer: tuple[tuple[str, Quantity], ...]) -> int:
        """Return the number of an allocatable set. A number is never reused, so the cache may be cleared."""
        number = self._offers.get(offer)
        if number is None:
            if len(self._offers) >= _OFFERS_REMEMBERED:
                self._offers.clear()
            self._offered += 1
            number = self._offers[offer] = self._offered
        return number

    # -- undoing changes of nodes -------------------------------------------------------------------------------------

    def put_back(self, row: int, node: Node) -> None:
        """Add a removed node at its former row, without its values; the node that has the row now moves to the end."""
        last = len(self)
        self.nodes.append(node)
        self.pods.append({})
        if row != last:
            self._renumber(row, last)
            self.nodes[row], self.nodes[last] = node, self.nodes[row]
            self.pods[row], self.pods[last] = self.pods[last], self.pods[row]
            self.row_of[self.nodes[last].name] = last
            self.changes.note(last)
            self.changes.moved += 1
        self.row_of[node.name] = row
        self.space.insert(row)
        self.labels.insert(row, node.labels)
        self._tree.add(node)
        self.images.add(row, node)
        self._ring = None
        self._ring_changes.clear()
        self.changes.nodes += 1
        self.changes.note(row)
        self.changes.rearranged()

    def save_row(self, row: int) -> Callable[[], None]:
        """Return a function that restores the values and pods of a row, once its node is back without them."""
        pods, volumes, values = self.pods[row].copy(), self.volume_use.save_order(row), self.space.save(row)

        def restore() -> None:
            self.pods[row] = pods
            for pod in pods.values():
                if pod.host_ports or pod.has_affinity or pod.volumes is not None:
                    self._acquire_own([row], pod)
            self.counted.add_row(row, pods.values())
            volumes()
            values()
            self._divisors.clear()
            self.changes.note(row)

        return restore

    def save_order(self, *nodes: Node) -> Callable[[], None]:
        """Return a function that restores the order of nodes, once the same nodes are in the same rows again.

        ``nodes``: all versions, earlier and later, of the nodes that are added, removed or updated meanwhile
        """
        tree, arrived = self._tree.save({zone_of(node.labels) for node in nodes}), self._arrived
        arrangement, ring = self.changes.save_arrangement(), None if self._ring_changes else self._ring
        in_turn = None if self._in_turn is None or self._in_turn[0] != self.changes.layout else self._in_turn[1]

        def restore() -> None:
            tree()
            self._arrived = arrived
            self._in_turn = None if in_turn is None else (self.changes.layout, in_turn)
            self._ring = ring
            self._ring_changes.clear()
            arrangement()

        return restore

    def save_node(self, row: int) -> Callable[[], None]:
        """Return a function that restores when a row's node was added and described, and the sizes of its images.

        Call the function once the same nodes are in the same rows again.
        """
        arrival, described = self.arrival.data.item(row), self.described.data.item(row)
        images = self.images.save_sizes(self.nodes[row])

        def restore() -> None:
            self.arrival.data[row], self.described.data[row] = arrival, described
            if images():
                self.changes.images += 1

        return restore

    # -- pods ---------------------------------------------------------------------------------------------------------

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Add a pod to a row. Its UID must be new to the row."""
        self.pods[row][pod.uid] = pod
        self.account(row, pod, 1)
        self._acquire(row, pod)

    def add_pods(self, placed: Iterable[tuple[int, PodInfo]]) -> None:
        """Do the same as ``add_pod`` for many pods, in less time: pods that share their derived data are counted together."""
        kin: dict[Hashable, tuple[PodInfo, list[int]]] = {}
        by_needs: dict[int, tuple[PodInfo, list[int]]] = {}
        by_labels: dict[LabelClassKey, list[int]] = {}
        held = self.pods
        for row, pod in placed:
            held[row][pod.uid] = pod
            key: Hashable = id(pod.__dict__)
            if (found := kin.get(key)) is None:
                if pod.volumes is None and not pod.has_affinity:  # as the pods of a DaemonSet, which share these alone
                    key = id(pod.needs), id(pod.host_ports), id(pod.label_class)
                found = kin[id(pod.__dict__)] = kin.setdefault(key, (pod, []))
            found[1].append(row)
        for pod, rows in {id(rows): (pod, rows) for pod, rows in kin.values()}.values():
            by_needs.setdefault(id(pod.needs), (pod, []))[1].extend(rows)
            if isinstance(self.counted, PodCounts):
                by_labels.setdefault(pod.label_class, []).extend(rows)
            if pod.host_ports or pod.has_affinity or pod.volumes is not None:
                self._acquire_own(rows, pod)
        for pod, rows in by_needs.values():
            add_at(self.shifts_of(pod.needs), rows)
        self.changes.note_each(row for _, rows in by_needs.values() for row in rows)
        for key, rows in by_labels.items():
            self.pod_counts.add_all(rows, key)

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        """Undo ``add_pod``; ``pod`` must be the same object that was added."""
        del self.pods[row][pod.uid]
        self.account(row, pod, -1)
        self._release(row, pod)

    def _count(self, row: int, pod: PodInfo) -> None:
        self.counted.add(row, pod)
        for terms, held in terms_held_by(self, pod):
            terms.add(row, held)

    def _uncount(self, row: int, pod: PodInfo) -> None:
        self.counted.remove(row, pod)
        if pod.has_affinity:
            for terms, held in terms_held_by(self, pod):
                terms.remove(row, held)

    def account(self, row: int, pod: PodInfo, by: int) -> None:
        """Add a pod to a row's sums (``by`` 1), or take it out of them (-1); nothing else changes."""
        needs, columns = pod.needs, self.requested_columns
        for resource, count in needs.requests.items():
            (columns.get(resource) or self.requested(resource)).shift(row, by * count)
        self.nonzero_cpu.shift(row, by * needs.nonzero_cpu)
        self.nonzero_memory.shift(row, by * needs.nonzero_memory)
        self.pod_count.cells[row] += by
        self.changes.note(row)

    def _acquire(self, row: int, pod: PodInfo) -> None:
        """Claim a pod's ports and volumes, and add it to pod counts. The sums of its row are unchanged."""
        self.counted.add(row, pod)
        if pod.host_ports or pod.has_affinity or pod.volumes is not None:
            self._acquire_own([row], pod)

    def _acquire_own(self, rows: Sequence[int], pod: PodInfo) -> None:
        """Claim the ports and volumes, and add the terms, of a pod on each of these rows."""
        for port in pod.host_ports:
            if len(rows) == 1 or self._what_ifs:
                for row in rows:
                    self.claim(row, port, 1)
                continue
            holders = self.host_ports.setdefault((port.protocol, port.port), {}).setdefault(port.ip, {})
            for row in rows:
                holders[row] = holders.get(row, 0) + 1
        if pod.has_affinity:
            for terms, held in terms_held_by(self, pod):
                for row in rows:
                    terms.add(row, held)
        if pod.volumes is not None:
            for row in rows:
                self.volume_use.add(row, pod)

    def _release(self, row: int, pod: PodInfo) -> None:
        """Undo ``_acquire``."""
        self.counted.remove(row, pod)
        if pod.host_ports or pod.has_affinity or pod.volumes is not None:
            self._release_own(row, pod)

    def _release_own(self, row: int, pod: PodInfo) -> None:
        for port in pod.host_ports:
            self.claim(row, port, -1)
        for terms, held in terms_held_by(self, pod):
            terms.remove(row, held)
        if pod.volumes is not None:
            self.volume_use.remove(row, pod)

    def shifts_of(self, needs: PodRequests) -> list[tuple[Column, int]]:
        """Return the columns of sums that a pod with these requests counts in, with its amounts."""
        columns = [(self.requested(resource), count) for resource, count in needs.requests.items()]
        nonzero = [(self.nonzero_cpu, needs.nonzero_cpu), (self.nonzero_memory, needs.nonzero_memory)]
        return [*columns, *nonzero, (self.pod_count, 1)]

    def claim(self, row: int, port: HostPort, by: int) -> None:
        """Change how many pods on a row hold a port."""
        held = self.host_ports.get((port.protocol, port.port), {}).get(port.ip, {}).get(row, 0)
        touched = self._what_ifs.get(row)
        if touched is None:
            self._hold(row, port, held + by)
            return
        touched.setdefault(port, held)
        self._hold(row, port, max(by, 0))

    def _hold(self, row: int, port: HostPort, holders: int) -> None:
        """Set how many pods on a row hold a port."""
        by_address = self.host_ports.setdefault((port.protocol, port.port), {})
        rows = by_address.setdefault(port.ip, {})
        if holders > 0:
            rows[row] = holders
            return
        rows.pop(row, None)
        if not rows:
            del by_address[port.ip]
        if not by_address:
            del self.host_ports[port.protocol, port.port]

    # -- what-ifs -----------------------------------------------------------------------------------------------------

    @property
    def rows_in_what_ifs(self) -> Collection[int]:
        """The rows with an open what-if, whose pods are restored afterwards."""
        return self._what_ifs.keys()

    @contextmanager
    def what_if(self, row: int) -> Iterator[None]:
        """Let the block add and remove pods on one row, then restore the row, with its pods in their old order.

        Within the block the change log records nothing, so caches must keep nothing computed there. A host port belongs to the
        node rather than to pods, as in kube-scheduler's copy of a node: removing one holder frees it, even if other pods use
        it. Blocks may be nested.
        """
        before = dict(self.pods[row])
        outer = self._what_ifs.get(row)
        first = not self._what_ifs
        if first:
            self._expect_return(True)
        touched = self._what_ifs[row] = {}
        try:
            yield
        finally:
            self._put_back(row, before)
            for port, holders in touched.items():
                self._hold(row, port, holders)
            if outer is None:
                del self._what_ifs[row]
            else:
                self._what_ifs[row] = outer
            if first:
                self._expect_return(False)

    def _put_back(self, row: int, before: dict[str, PodInfo]) -> None:
        now = self.pods[row]
        for uid, pod in list(now.items()):
            if before.get(uid) is not pod:
                self.remove_pod(row, pod)
        for uid, pod in before.items():
            if uid not in now:
                self.add_pod(row, pod)
        self.pods[row] = before

    def _expect_return(self, expected: bool) -> None:
        """Announce that pods removed from now on will return (True), or that they have returned (False)."""
        self.changes.muted = expected
        self.counted.keep_empty(expected)
        for terms in self.held_terms:
            terms.keep_empty(expected)


def terms_held_by(table: NodeTable, pod: PodInfo) -> Iterator[tuple[HeldTerms, HeldTerm]]:
    """Yield the affinity terms of a pod, each with the counts that a placed pod adds it to."""
    for term in pod.required_affinity:
        yield table.required_affinity, HeldTerm(term)
    for term in pod.required_anti_affinity:
        yield table.required_anti_affinity, HeldTerm(term)
    for weighted in pod.preferred_affinity:
        yield table.preferred_affinity, HeldTerm(weighted.term, weighted.weight)
    for weighted in pod.preferred_anti_affinity:
        yield table.preferred_anti_affinity, HeldTerm(weighted.term, weighted.weight)
