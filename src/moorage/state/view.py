"""The plugins' view of nodes: all rows of the table, or some of them, through the same interface.

Every array from a ``NodeView`` has one entry per row of the view, in its order. A view of all rows copies nothing; a view of
some rows copies only those. Arrays are read-only for plugins, which import pods, arrays and the snapshot from here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from moorage.api.core import Namespace, Node, Object, Service, Taint
from moorage.api.custom_objects import CustomObject, custom_type
from moorage.api.selectors import Selector
from moorage.errors import StateError
from moorage.state.columns import BoolArray, Column, IntArray
from moorage.state.counts import Counts, PodMatcher
from moorage.state.journal import Journal
from moorage.state.labels import Ids, InternedColumn, LabelColumn
from moorage.state.node_images import ImageHolders
from moorage.state.pod_groups import GroupPods, PodGroups
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable
from moorage.state.unheard_pods import Unheard
from moorage.state.usage import SomeUsage, Usage

__all__ = [
    "BoolArray", "FewRows", "IntArray", "KeptColumn", "NodeInfo", "NodeView", "PodInfo", "Snapshot", "domain_ids",
    "domain_sums", "domains_with", "rows_with_labels",
]  # fmt: skip


Rows = slice | npt.NDArray[np.intp]
D = TypeVar("D", bound=np.generic)
K = TypeVar("K", bound=Object)
T = TypeVar("T")
_EMPTY: Mapping[str, str] = {}


class SnapshotSource(Protocol):
    """The part of the cluster state that a snapshot reads; see ``moorage.state.cluster``."""

    @property
    def table(self) -> NodeTable: ...
    @property
    def groups(self) -> PodGroups | None: ...
    @property
    def namespaces(self) -> Mapping[str, Namespace]: ...
    @property
    def custom_kinds(self) -> frozenset[str] | None: ...
    @property
    def objects_changed(self) -> int: ...
    def namespaces_selected(self, selector: Selector, /) -> frozenset[str]: ...
    def services_selecting(self, pod: PodInfo, /) -> list[Service]: ...
    def objects(self, kind: type[K], /) -> Mapping[str, K]: ...
    def changes_of(self, kind: type[K], /) -> Journal: ...
    def index(self, kind: Callable[[Snapshot], T], /) -> T: ...
    def node_of(self, uid: str, /) -> str | None: ...


class Snapshot:
    """The state that plugins may read. It does not change during one scheduling attempt."""

    def __init__(self, cluster: SnapshotSource) -> None:
        self._cluster = cluster
        self.table: NodeTable = cluster.table
        #: Pods that the group being tried has assumed and whose affinity and claims do not count yet.
        self.unheard = Unheard()
        #: All nodes, as columns.
        self.nodes: NodeView = AllRows(self)
        self._infos: list[NodeInfo] = []

    def infos(self) -> list[NodeInfo]:
        """Return the nodes by row number, made once; there may be some for rows that are gone."""
        infos, table = self._infos, self.table
        if len(infos) < len(table):
            infos += [NodeInfo(table, row) for row in range(len(infos), len(table))]
        return infos

    @property
    def version(self) -> tuple[int, int, int]:
        """A value that changes whenever anything that plugins may look up changes, except the waiting pods of groups."""
        changes = self.table.changes
        return changes.position, changes.layout, self._cluster.objects_changed

    @property
    def objects_changed(self) -> int:
        """How often an object other than a node or a pod was added, updated or deleted."""
        return self._cluster.objects_changed

    def node(self, name: str) -> NodeInfo | None:
        """Return the node of this name; None if there is none."""
        row = self.table.row_of.get(name)
        return None if row is None else NodeInfo(self.table, row)

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace; empty if it is unknown."""
        found = self._cluster.namespaces.get(namespace)
        return _EMPTY if found is None else found.metadata.labels

    @property
    def namespaces(self) -> Mapping[str, Namespace]:
        """All known namespaces, by name."""
        return self._cluster.namespaces

    def namespaces_selected(self, selector: Selector) -> frozenset[str]:
        """Return the names of the known namespaces whose labels the selector matches."""
        return self._cluster.namespaces_selected(selector)

    def services_selecting(self, pod: PodInfo) -> list[Service]:
        """Return the services of the pod's namespace whose selector is not empty and matches the pod."""
        return self._cluster.services_selecting(pod)

    def group_of(self, pod: PodInfo) -> GroupPods | None:
        """Return the pods of a pod's group; None if it names no group, or groups are not kept (gate GenericWorkload)."""
        return None if self._cluster.groups is None else self._cluster.groups.of(pod)

    def group(self, key: str) -> GroupPods | None:
        """Return the pods that name the group ``namespace/name``; None if there are none, or groups are not kept."""
        return None if self._cluster.groups is None else self._cluster.groups.get(key)

    def objects(self, kind: type[K]) -> Mapping[str, K]:
        """Return all objects of a kind, by ``namespace/name`` (``name`` if cluster-scoped), in the order they were added."""
        return self._cluster.objects(kind)

    def custom(self, name: str) -> Mapping[str, CustomObject]:
        """Return all objects of a kind that a plugin's ``wakes_on`` names as ``plural.version.group``, keyed as ``objects``.

        Raises  StateError if no plugin names it: it is not watched then, and an empty answer would be misleading
        """
        named = self._cluster.custom_kinds
        if named is not None and name not in named:
            known = ", ".join(sorted(named)) or "none are"
            raise StateError(f"{name}: no plugin names this kind in wakes_on, so it is not watched ({known})")
        return self._cluster.objects(custom_type(name))

    def changes_of(self, kind: type[K]) -> Journal:
        """Return the journal of a kind: keys of its objects in the order they were added, updated or deleted."""
        return self._cluster.changes_of(kind)

    def index(self, kind: Callable[[Snapshot], T]) -> T:
        """Return the single index of a kind over this cluster, created at the first call.

        All plugins of all profiles share it, so each sees what the others record there.
        """
        return self._cluster.index(kind)

    def pods(self) -> Iterator[PodInfo]:
        """Yield every placed or assumed pod."""
        for on_row in self.table.pods:
            yield from on_row.values()

    def where(self, uid: str) -> str | None:
        """Return the name of the node that a pod is placed or assumed on; None if it is on no node."""
        return self._cluster.node_of(uid)


class NodeView:
    """Some rows of a node table, as columns. ``rows`` indexes any full-length column: ``column[view.rows]``."""

    __slots__ = ("rows", "snapshot", "table")
    #: False for views whose values differ from the table's.
    is_true: ClassVar[bool] = True

    def __init__(self, snapshot: Snapshot, rows: Rows) -> None:
        self.snapshot = snapshot
        self.table: NodeTable = snapshot.table
        self.rows = rows

    def __len__(self) -> int:
        return len(self.table) if isinstance(self.rows, slice) else len(self.rows)

    @property
    def is_whole(self) -> bool:
        """True if the view has all rows, in table order."""
        return isinstance(self.rows, slice)

    @property
    def row_numbers(self) -> npt.NDArray[np.intp]:
        """The rows of the view as numbers of the table's rows."""
        return np.arange(len(self.table)) if isinstance(self.rows, slice) else self.rows

    def only(self, keep: BoolArray) -> NodeView:
        """Return a view of the rows where ``keep`` (one entry per row of this view) is true."""
        return NodeView(self.snapshot, self.row_numbers[keep])

    def take(self, column: Column | npt.NDArray[D]) -> npt.NDArray[Any]:
        """Return this view's part of a full-length column."""
        if not isinstance(column, Column):
            return column[self.rows]
        if isinstance(self.rows, slice):
            return column.view
        return column.data[self.rows]

    def false(self) -> BoolArray:
        """Return a new array of False, one entry per row."""
        return np.zeros(len(self), dtype=bool)

    def zeros(self) -> IntArray:
        """Return a new int64 array of zeros, one entry per row."""
        return np.zeros(len(self), dtype=np.int64)

    def holding(self, rows: Collection[int]) -> BoolArray:
        """Return for each row of the view whether it is in ``rows`` (row numbers of the table)."""
        if not isinstance(self.rows, slice) and 8 * len(self.rows) < len(rows):  # a lookup costs about 8 times a fill
            return np.fromiter((int(row) in rows for row in self.rows), dtype=bool, count=len(self.rows))
        mask = np.zeros(len(self.table), dtype=bool)
        mask[np.fromiter(rows, dtype=np.intp, count=len(rows))] = True
        held: BoolArray = mask[self.rows]
        return held

    def named(self, names: Collection[str]) -> BoolArray:
        """Return for each row whether its node has one of these names."""
        row_of = self.table.row_of
        return self.holding({row_of[name] for name in names if name in row_of})

    # -- columns ------------------------------------------------------------------------------------------------------

    def allocatable(self, resource: str) -> IntArray:
        """Return each node's allocatable amount: cpu in millicores, memory and storage in bytes, others in counts."""
        return self.take(self.table.allocatable(resource))

    def divisors(self, resource: str) -> npt.NDArray[np.float64]:
        """Return the divisor for shares of a resource of each node: its allocatable amount, or 1 if that is 0."""
        return self.take(self.table.divisors(resource).amounts)

    def exact_divisors(self, resource: str) -> npt.NDArray[np.float64] | None:
        """Return ``divisors`` if percentages computed with them round down correctly; None if they may not."""
        divisors = self.table.divisors(resource)
        return self.take(divisors.amounts) if divisors.exact else None

    def is_offered_everywhere(self, resource: str) -> bool:
        """Return True if every node of the table offers some of a resource."""
        return self.table.divisors(resource).is_offered_everywhere

    def requested(self, resource: str) -> IntArray:
        """Return the sum of the pods' requests on each node, in the same units."""
        return self.take(self.table.requested(resource))

    @property
    def nonzero_cpu(self) -> IntArray:
        """Requested millicores, where a container that names none counts as 100."""
        return self.take(self.table.nonzero_cpu)

    @property
    def nonzero_memory(self) -> IntArray:
        """Requested bytes, where a container that names none counts as 200 MiB."""
        return self.take(self.table.nonzero_memory)

    @property
    def pod_count(self) -> IntArray:
        """How many pods are on each node."""
        return self.take(self.table.pod_count)

    @property
    def allowed_pods(self) -> IntArray:
        """How many pods each node may hold."""
        return self.take(self.table.allowed_pods)

    @property
    def unschedulable(self) -> BoolArray:
        """True for each node that is cordoned (``spec.unschedulable``)."""
        return self.take(self.table.unschedulable)

    @property
    def taints(self) -> InternedColumn[tuple[Taint, ...]]:
        """Taint sets: judge each distinct one, then spread with ``ids(view.taints)``."""
        return self.table.taints

    @property
    def features(self) -> InternedColumn[frozenset[str]]:
        """Declared feature sets, interned like taints."""
        return self.table.features

    def label(self, key: str) -> LabelColumn:
        """Return the column of one label key; id 0 means "absent"."""
        return self.table.labels.column(key)

    def domains_held(self, key: str) -> BoolArray:
        """Return for each value of a label whether a row of the view has it; shape (values,), False for id 0. Read-only."""
        column = self.label(key)
        if self.is_whole:
            return column.domains
        held = np.zeros(len(column.values), dtype=bool)
        held[self.ids(column)] = True
        held[0] = False
        return held

    def ids(self, column: InternedColumn[Any]) -> Ids:
        """Return this view's ids of an interned column."""
        return column.ids[self.rows]

    @property
    def images(self) -> Mapping[str, ImageHolders]:
        """Image name → the nodes that have it, and its size."""
        return self.table.images.holders

    @property
    def host_ports(self) -> Mapping[tuple[str, int], Mapping[str, Mapping[int, int]]]:
        """(protocol, port) → address → row → holders; use ``holding`` to make a mask of the rows."""
        return self.table.host_ports

    def pods_matching(self, matcher: PodMatcher) -> Counts:
        """Return how many pods on each row the matcher selects."""
        return self.take(self.table.pod_counts.of(matcher))

    def usage(self) -> Usage | SomeUsage | None:
        """Return CPU, memory and places for pods of the rows, ready for scores; None for a view of which they do not hold."""
        return None

    # -- nodes one by one ---------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of the nodes."""
        nodes = self.table.nodes
        return [nodes[row].metadata.name for row in self.row_numbers]

    def __iter__(self) -> Iterator[NodeInfo]:
        return map(self.snapshot.infos().__getitem__, self.row_numbers.tolist())

    def at(self, row: int) -> NodeView:
        """Return the view of a single row, given by its number in the table."""
        return NodeView(self.snapshot, np.array([row], dtype=np.intp))

    @property
    def first(self) -> NodeInfo:
        """The node of the view's first row."""
        return NodeInfo(self.table, int(self.row_numbers[0]))

    def one(self, row: int) -> NodeInfo:
        """Return the node at a row number of the table."""
        return NodeInfo(self.table, row)


class AllRows(NodeView):
    """The view of all rows. It answers as ``NodeView`` does, with fewer steps."""

    __slots__ = ("_space",)

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot, slice(None))
        self._space = self.table.space

    def __len__(self) -> int:
        return self._space.rows

    def take(self, column: Column | npt.NDArray[D]) -> npt.NDArray[Any]:
        return column.data[: self._space.rows] if isinstance(column, Column) else column[:]

    def usage(self) -> Usage | None:
        usage = self.table.usage
        return None if usage.changes.muted or not usage.follow() else usage  # a what-if is undone afterwards


class FewRows(NodeView):
    """A view of some rows that copies each column at most once. Use it only while the table does not change."""

    __slots__ = ("_taken", "_usage")

    def __init__(self, snapshot: Snapshot, rows: npt.NDArray[np.intp]) -> None:
        super().__init__(snapshot, rows)
        self._usage: SomeUsage | None = None
        #: By the id of a column's array: the array, which keeps its id in use, and the copy.
        self._taken: dict[int, tuple[npt.NDArray[Any], npt.NDArray[Any]]] = {}

    def __len__(self) -> int:
        return len(self.rows)  # type: ignore[arg-type]

    def take(self, column: Column | npt.NDArray[D]) -> npt.NDArray[Any]:
        data = column.data if isinstance(column, Column) else column
        taken = self._taken.get(id(data))
        if taken is None:
            taken = self._taken[id(data)] = data, data[self.rows]
        return taken[1]

    def usage(self) -> SomeUsage | None:
        whole = self.snapshot.nodes.usage() if self._usage is None else None
        if isinstance(whole, Usage) and isinstance(self.rows, np.ndarray):
            self._usage = whole.of(self.rows)
        return self._usage


#: Plugin authors know one class, so error messages name it.
AllRows.__name__ = FewRows.__name__ = NodeView.__name__


class NodeInfo:
    """One node, for plugins that judge one node at a time."""

    __slots__ = ("_table", "row")

    def __init__(self, table: NodeTable, row: int) -> None:
        self._table = table
        self.row = row

    @property
    def node(self) -> Node:
        """The node object as the scheduler has it."""
        return self._table.nodes[self.row]

    @property
    def name(self) -> str:
        """The name of the node."""
        return self._table.nodes[self.row].metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the node."""
        return self._table.nodes[self.row].metadata.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations of the node."""
        return self.node.metadata.annotations

    @property
    def pods(self) -> list[PodInfo]:
        """Pods on the node, bound or assumed, in the order they were added."""
        return list(self._table.pods[self.row].values())

    @property
    def pod_count(self) -> int:
        """The number of pods on the node, bound or assumed."""
        return self._table.pod_count.cells[self.row]

    @property
    def allowed_pods(self) -> int:
        """The number of pods that the node allows."""
        return self._table.allowed_pods.cells[self.row]

    def domain(self, key: str) -> int:
        """Return the id of the node's value of a label, as in ``NodeView.label``; 0 means "absent"."""
        return int(self._table.labels.column(key).ids[self.row])

    def allocatable(self, resource: str) -> int:
        """Return the node's allocatable amount: cpu in millicores, memory and storage in bytes, others in counts."""
        column = self._table.allocatable_columns.get(resource)
        return (self._table.allocatable(resource) if column is None else column).cells[self.row]

    def requested(self, resource: str) -> int:
        """Return the sum of the requests of the pods on the node, in the units of ``allocatable``."""
        column = self._table.requested_columns.get(resource)
        return (self._table.requested(resource) if column is None else column).cells[self.row]

    @property
    def nonzero_cpu(self) -> int:
        """The requested cpu in millicores, with kube-scheduler's 100m for containers without a request."""
        return self._table.nonzero_cpu.cells[self.row]

    @property
    def nonzero_memory(self) -> int:
        """The requested memory in bytes, with kube-scheduler's 200 MB for containers without a request."""
        return self._table.nonzero_memory.cells[self.row]


# -- cached column -----------------------------------------------------------------------------------------------------
# A cached column: one number that a plugin computes from each row, kept until the row changes.

#: Up to this many changed rows are computed one by one; more, as columns.
_FEW = 8


class KeptColumn:
    """One number per row of one table. ``columns`` and ``single`` compute the same, for a view and for one node.

    Their results may depend on the nodes and the sums over their pods, and on nothing else.
    """

    def __init__(self, columns: Callable[[NodeView], IntArray], single: Callable[[NodeInfo], int]) -> None:
        self._columns, self._single = columns, single
        #: A column of the table, so it grows and moves with its rows. None until it is first computed.
        self._column: Column | None = None
        self._position = 0

    def of(self, nodes: NodeView) -> IntArray:
        """Return the numbers of a view's rows; read-only."""
        if not nodes.is_true or nodes.table.rows_in_what_ifs:  # a what-if is undone afterwards
            return self._columns(nodes)
        behind = nodes.table.changes.position - self._position
        if len(nodes) <= _FEW < behind and not nodes.is_whole:  # fewer rows than those that changed
            return np.array([self._single(nodes.one(row)) for row in nodes.row_numbers.tolist()], dtype=np.int64)
        return nodes.take(self._up_to_date(nodes))

    def _up_to_date(self, nodes: NodeView) -> Column:
        changes = nodes.table.changes
        changed = changes.since(self._position)
        if self._column is None or changed is None:
            self._column = nodes.table.space.column()
            self._column.view[:] = self._columns(nodes.snapshot.nodes)
        elif len(changed) <= _FEW:
            for row in changed:
                if row < len(nodes.table):  # otherwise the row was removed
                    self._column.cells[row] = self._single(nodes.one(row))
        else:
            rows = np.array(changed, dtype=np.intp)
            rows = rows[rows < len(nodes.table)]
            self._column.data[rows] = self._columns(NodeView(nodes.snapshot, rows))
        self._position = changes.position
        return self._column


# -- domains -----------------------------------------------------------------------------------------------------------
# Topology domains: rows that share the value of a node label, and counts over them.
#
# A domain is the id of a label value (``nodes.label(key)``), so data by domain is an array with one entry for each value that
# the label has or had; id 0 means "no such label" and is no domain. ``NodeTable.pod_counts.by_domain`` counts pods over all
# rows; these functions count over some of them. A mask of None means all rows.


def domain_ids(nodes: NodeView, key: str) -> Ids:
    """Return the domain of each row of the view, shape (rows,); 0 where the node has no label ``key``."""
    return nodes.ids(nodes.label(key))


def domain_sums(nodes: NodeView, key: str, per_row: npt.NDArray[np.integer], rows: BoolArray | None = None) -> IntArray:
    """Sum a column over each domain; shape (values,), 0 for id 0. A fresh array. Exact while sums stay under 2**53."""
    column = nodes.label(key)
    weights = per_row if rows is None else per_row * rows
    sums = np.bincount(nodes.ids(column), weights=weights, minlength=len(column.values)).astype(np.int64)
    sums[0] = 0
    return sums


def domains_with(nodes: NodeView, key: str, rows: BoolArray | None = None) -> BoolArray:
    """Return for each domain whether the view has a row of it; shape (values,), False for id 0. Read-only."""
    if rows is None:
        return nodes.domains_held(key)
    column = nodes.label(key)
    held = np.zeros(len(column.values), dtype=bool)
    held[nodes.ids(column)[rows]] = True
    held[0] = False
    return held


def rows_with_labels(nodes: NodeView, keys: Iterable[str]) -> BoolArray | None:
    """Return for each row whether its node has all of these labels; None if every node of the table has."""
    mask: BoolArray | None = None
    for key in keys:
        if not nodes.label(key).is_everywhere:
            there = np.not_equal(domain_ids(nodes, key), 0)
            mask = there if mask is None else mask & there
    return mask
