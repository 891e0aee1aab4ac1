"""What is left on each device of each node: the devices' capacity minus what the pods on the node were given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

import numpy as np

from moorage.framework.handle import Handle
from moorage.gpu_sharing.requests import GPU_COUNT, WHOLE, GpuRequest, InvalidRequestError, assigned_devices, gpu_request
from moorage.state.columns import IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable
from moorage.state.view import NodeInfo, NodeView

__all__ = ["DeviceTable", "device_table", "present"]

#: The devices of a pod without any: what it takes of each, and their numbers.
_NONE: Final[tuple[int, tuple[int, ...]]] = (0, ())
#: How much is kept of pods before those that are gone are looked for.
_LEAST_KEPT: Final = 128
#: How many different amounts are numbered before numbers are given out again.
_MOST_NUMBERS: Final = 1 << 20


class DeviceTable:
    """The milli left on every device. It follows the node table: a row is added up again when its node or pods change.

    Nothing computed within a what-if is kept, because a what-if is undone afterwards.
    """

    def __init__(self, table: NodeTable | None = None) -> None:
        self._table = None if table is None else ref(table)
        #: UID → devices of pods whose annotation does not show them yet.
        self.assumed: dict[str, tuple[int, ...]] = {}
        #: Chooses the device of a share by a score; set by the plugin FGDScore.
        self.chooser: Callable[[PodInfo, GpuRequest, list[int], NodeInfo], int] | None = None
        self._known: dict[str, tuple[dict[str, str], tuple[int, tuple[int, ...]]]] = {}
        self._rows: list[list[int]] = []
        #: By number: what is present on nodes, in ascending order. ``_numbers`` has the number of each row.
        self._present: list[tuple[int, ...]] = []
        self._number_of: dict[tuple[int, ...], int] = {}
        self._numbers: IntArray = np.zeros(0, dtype=np.int64)
        #: How often numbers were given out again; what is kept by number is void then.
        self.numbering = 0
        self._left: IntArray = np.zeros((0, 1), dtype=np.int64)
        self._totals: IntArray = np.zeros(0, dtype=np.int64)
        self._layout = -1
        self._position = 0
        #: Rows that a pod on them got devices of, or gave them back, since they were added up.
        self._stale: set[int] = set()
        #: When more is kept of pods than this, what is kept of pods that are gone is dropped.
        self._most_kept = _LEAST_KEPT

    def left(self, nodes: NodeView) -> IntArray:
        """Return the milli left, shape (nodes, devices); 0 for devices that a node does not have. Read-only."""
        if not nodes.is_true or nodes.table.rows_in_what_ifs:
            return _as_array([self._added_up(node) for node in nodes])
        self._follow(nodes.table)
        left: IntArray = self._left[nodes.rows]
        return left

    def totals(self, nodes: NodeView) -> IntArray:
        """Return the milli left on all devices of each node together. Read-only."""
        if not nodes.is_true or nodes.table.rows_in_what_ifs:
            return np.array([sum(self._added_up(node)) for node in nodes], dtype=np.int64)
        self._follow(nodes.table)
        totals: IntArray = self._totals[nodes.rows]
        return totals

    def present(self, nodes: NodeView) -> list[tuple[int, ...]]:
        """Return for each node the milli left on the devices that have any, in ascending order."""
        return [self._present[number] for number in self.numbers(nodes).tolist()]

    def numbers(self, nodes: NodeView) -> IntArray:
        """Return for each node the number of what ``present`` says of it: equal amounts have equal numbers. Read-only."""
        if not nodes.is_true or nodes.table.rows_in_what_ifs:
            self._limit_numbers()
            return np.array([self._number(present(self._added_up(node))) for node in nodes], dtype=np.int64)
        self._follow(nodes.table)
        numbers: IntArray = self._numbers[nodes.rows]
        return numbers

    def with_number(self, number: int) -> tuple[int, ...]:
        """Return the amounts of a number, in ascending order."""
        return self._present[number]

    def _limit_numbers(self) -> None:
        """Give out numbers again from 0 if there are too many; then all rows are added up again."""
        if len(self._present) > _MOST_NUMBERS:
            self._number_of, self._present, self._layout = {}, [], -1
            self.numbering += 1

    def _number(self, amounts: tuple[int, ...]) -> int:
        found = self._number_of.get(amounts)
        if found is None:
            found = self._number_of[amounts] = len(self._present)
            self._present.append(amounts)
        return found

    def present_on(self, node: NodeInfo) -> tuple[int, ...]:
        """Return the milli left on the devices of a node that have any, in ascending order."""
        return self._present[self._numbers.item(node.row)] if self._is_current() else present(self._added_up(node))

    def of(self, node: NodeInfo) -> list[int]:
        """Return the milli left on each device of a node. Read-only."""
        return self._rows[node.row] if self._is_current() else self._added_up(node)

    def _is_current(self) -> bool:
        """Bring the rows up to date; return False within a what-if."""
        table = None if self._table is None else self._table()
        if table is None or table.rows_in_what_ifs:
            return False
        self._follow(table)
        return True

    def _follow(self, table: NodeTable) -> None:
        """Add up the rows again that changed."""
        changes = table.changes
        if self._position == changes.position and self._layout == changes.layout and not self._stale:
            return
        self._limit_numbers()
        changed = changes.since(self._position) if self._layout == changes.layout else None
        if changed is None:
            self._rows = [self._added_up(NodeInfo(table, row)) for row in range(len(table))]
            self._left = _as_array(self._rows)
            self._totals = self._left.sum(axis=1)
            self._numbers = np.array([self._number(present(left)) for left in self._rows], dtype=np.int64)
        else:
            for row in self._stale.union(changed):
                self._set(row, self._added_up(NodeInfo(table, row)))
        self._stale.clear()
        self._layout, self._position = changes.layout, changes.position

    def _set(self, row: int, left: list[int]) -> None:
        self._rows[row] = left
        if len(left) > self._left.shape[1]:
            self._left = _as_array(self._rows)
        self._left[row, : len(left)] = left
        self._left[row, len(left) :] = 0
        self._totals[row] = sum(left)
        self._numbers[row] = self._number(present(left))

    def _added_up(self, node: NodeInfo) -> list[int]:
        left = [WHOLE] * node.allocatable(GPU_COUNT)
        if left:
            for pod in node.pods:
                milli, devices = self.taken_by(pod)
                for device in devices:
                    if device < len(left):
                        left[device] -= milli
        return left

    def taken_by(self, pod: PodInfo) -> tuple[int, tuple[int, ...]]:
        """Return what a pod takes of each of its devices, and their numbers."""
        annotations = pod.metadata.annotations
        known = self._known.get(pod.uid)
        if known is not None and known[0] is annotations:
            return known[1]
        taken = self._taken_by(pod)
        if taken is not _NONE or not annotations:
            self._forget_gone()
            self._known[pod.uid] = annotations, taken
        return taken

    def _taken_by(self, pod: PodInfo) -> tuple[int, tuple[int, ...]]:
        try:
            request = gpu_request(pod)
        except InvalidRequestError:
            return _NONE
        devices = self.assumed.get(pod.uid) or assigned_devices(pod)
        return _NONE if request is None or not devices else (request.milli, devices)

    def assign(self, pod: PodInfo, devices: tuple[int, ...], row: int) -> None:
        """Give devices to a pod that was just assumed on the node of a row."""
        self._forget_gone()
        self.assumed[pod.uid] = devices
        self._known.pop(pod.uid, None)
        self._stale.add(row)

    def _forget_gone(self) -> None:
        """Once in a while, drop what is kept of pods that are on no node. No plugin is called when a placed pod ends."""
        if len(self.assumed) + len(self._known) <= self._most_kept:
            return
        table = None if self._table is None else self._table()
        if table is None or table.rows_in_what_ifs:  # pods that a what-if takes away come back
            return
        present = {uid for pods in table.pods for uid in pods}
        self.assumed = {uid: devices for uid, devices in self.assumed.items() if uid in present}
        self._known = {uid: known for uid, known in self._known.items() if uid in present}
        self._most_kept = max(_LEAST_KEPT, 2 * (len(self.assumed) + len(self._known)))

    def give_back(self, pod: PodInfo, row: int | None) -> None:
        """Take the devices of a pod back that leaves its node; ``row`` is None if the node is gone."""
        self.assumed.pop(pod.uid, None)
        self._known.pop(pod.uid, None)
        if row is not None:
            self._stale.add(row)


def present(left: Sequence[int]) -> tuple[int, ...]:
    """Return what is left on the devices that have anything left, in ascending order."""
    return tuple(sorted([milli for milli in left if milli]))


def _as_array(rows: list[list[int]]) -> IntArray:
    left = np.zeros((len(rows), max((len(row) for row in rows), default=1) or 1), dtype=np.int64)
    for i, row in enumerate(rows):
        left[i, : len(row)] = row
    return left


_TABLES: WeakKeyDictionary[Any, DeviceTable] = WeakKeyDictionary()


def device_table(handle: Handle) -> DeviceTable:
    """Return the table of devices that all plugins of one scheduler share."""
    table = handle.snapshot.table
    return _TABLES.setdefault(table.changes, DeviceTable(table))
