"""The plugins' view of nodes: all rows of the table, or some of them, through the same interface.

Every array from a ``NodeView`` has one entry per row of the view, in its order. A view of all rows copies nothing; a view of
some rows copies only those. Arrays are read-only for plugins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from moorage.api.core import Node, Taint
from moorage.state.columns import BoolArray, Column, IntArray
from moorage.state.counts import Counts, PodMatcher
from moorage.state.labels import Ids, InternedColumn, LabelColumn
from moorage.state.pod_info import PodInfo
from moorage.state.table import ImageHolders, NodeTable

if TYPE_CHECKING:
    from moorage.state.cluster import Snapshot

__all__ = ["NodeInfo", "NodeView", "Rows"]

Rows = slice | npt.NDArray[np.intp]
D = TypeVar("D", bound=np.generic)


class NodeView:
    """Some rows of a node table, as columns. ``rows`` indexes any full-length column: ``column[view.rows]``."""

    __slots__ = ("rows", "snapshot", "table")
    #: False for views that show other values than the table's.
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
        return column.data.take(self.rows)

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
        """Return the same if percentages computed with it round down correctly; None if they may not."""
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
        return self.take(self.table.pod_count)

    @property
    def allowed_pods(self) -> IntArray:
        return self.take(self.table.allowed_pods)

    @property
    def unschedulable(self) -> BoolArray:
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

    def ids(self, column: InternedColumn[Any]) -> Ids:
        """Return this view's ids of an interned column."""
        return column.ids[self.rows]

    @property
    def images(self) -> Mapping[str, ImageHolders]:
        return self.table.images

    @property
    def host_ports(self) -> Mapping[tuple[str, int], Mapping[str, Mapping[int, int]]]:
        """(protocol, port) → address → row → holders; use ``holding`` to make a mask of the rows."""
        return self.table.host_ports

    def pods_matching(self, matcher: PodMatcher) -> Counts:
        """Return how many pods on each row the matcher selects."""
        return self.take(self.table.pod_counts.of(matcher))

    # -- nodes one by one ---------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        nodes = self.table.nodes
        return [nodes[row].metadata.name for row in self.row_numbers]

    def __iter__(self) -> Iterator[NodeInfo]:
        for row in self.row_numbers:
            yield NodeInfo(self.table, int(row))

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


class NodeInfo:
    """One node, for plugins that judge one node at a time."""

    __slots__ = ("_table", "row")

    def __init__(self, table: NodeTable, row: int) -> None:
        self._table = table
        self.row = row

    @property
    def node(self) -> Node:
        return self._table.nodes[self.row]

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node.metadata.labels

    @property
    def pods(self) -> list[PodInfo]:
        """Pods on the node, bound or assumed, in the order they were added."""
        return list(self._table.pods[self.row].values())

    @property
    def pod_count(self) -> int:
        return int(self._table.pod_count.data[self.row])

    @property
    def allowed_pods(self) -> int:
        return int(self._table.allowed_pods.data[self.row])

    def domain(self, key: str) -> int:
        """Return the id of the node's value of a label, as in ``NodeView.label``; 0 means "absent"."""
        return int(self._table.labels.column(key).ids[self.row])

    def allocatable(self, resource: str) -> int:
        return int(self._table.allocatable(resource).data[self.row])

    def requested(self, resource: str) -> int:
        return int(self._table.requested(resource).data[self.row])

    @property
    def nonzero_cpu(self) -> int:
        return int(self._table.nonzero_cpu.data[self.row])

    @property
    def nonzero_memory(self) -> int:
        return int(self._table.nonzero_memory.data[self.row])
