"""The free amount of each device of each node: the device's capacity minus the amounts assigned to the pods on the node."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

import numpy as np
from msgspec import Struct

from moorage.framework.handle import Handle
from moorage.state.table import NodeTable
from moorage.state.view import BoolArray, IntArray, NodeInfo, NodeView, PodInfo

# A pod's GPU request and the devices assigned to it, as its annotations say.
#
# Source  hkust-adsl/kubernetes-scheduler-simulator 8f3d641, pkg/type/open-gpu-share

#: Annotations of a pod. ``GPU_MILLI`` is per device. ``GPU_COUNT`` is also what a node offers, ``GPU_MODEL`` its label.
GPU_MILLI: Final = "alibabacloud.com/gpu-milli"
GPU_COUNT: Final = "alibabacloud.com/gpu-count"
GPU_MODEL: Final = "alibabacloud.com/gpu-card-model"
GPU_INDEX: Final = "alibabacloud.com/gpu-index"
#: The milli of a whole device.
WHOLE: Final = 1000
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_INDEX: Final = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})*")


class InvalidRequestError(ValueError):
    """Annotations are not a valid request; the text names the annotation, its value and what would be valid."""


class GpuRequest(Struct, frozen=True):
    """A request of ``milli`` on each of ``count`` devices. ``models`` are the allowed models; empty: any.

    ``index`` are the indexes of the devices that the pod requires; empty: any.
    """

    milli: int
    count: int
    models: tuple[str, ...] = ()
    index: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        return self.milli * self.count

    @property
    def is_share(self) -> bool:
        return self.milli < WHOLE

    @property
    def affinity_class(self) -> str:
        """The class of GpuClustering: ``share-gpu``, or ``4-gpu`` for four whole devices."""
        return "share-gpu" if self.is_share else f"{self.count}-gpu"


def gpu_request(pod: PodInfo) -> GpuRequest | None:
    """Return a pod's GPU request; None if it has none.

    Raises  InvalidRequestError
    """
    found = pod.metadata.annotations
    if not found:
        return None
    return _request(found.get(GPU_MILLI, ""), found.get(GPU_COUNT, ""), found.get(GPU_MODEL, ""), found.get(GPU_INDEX, ""))


@lru_cache(4096)
def _request(milli_text: str, count_text: str, models_text: str, index_text: str) -> GpuRequest | None:
    if not (milli_text or count_text):
        return None
    milli = min(_number(GPU_MILLI, milli_text, WHOLE), WHOLE)
    count = _number(GPU_COUNT, count_text, 1)
    if not milli or not count:
        return None
    if milli < WHOLE and count > 1:
        raise InvalidRequestError(
            f"{GPU_COUNT}={count} with {GPU_MILLI}={milli}: request part of one device only, or 1000 milli of each"
        )
    models = tuple(model for model in models_text.split("|") if model)
    return GpuRequest(milli, count, models, _index(index_text))


def assigned_devices(pod: PodInfo) -> tuple[int, ...]:
    """Return the devices that the pod was given, by its annotation; () if it has none."""
    try:
        return _index(pod.metadata.annotations.get(GPU_INDEX, ""))
    except InvalidRequestError:
        return ()


def gpu_signature(pod: PodInfo) -> Mapping[str, Hashable]:
    """Return the annotations that the plugins of this package read: pods with equal signatures get equal answers."""
    found = pod.metadata.annotations
    return {"gpu": tuple(found.get(name, "") for name in (GPU_MILLI, GPU_COUNT, GPU_MODEL, GPU_INDEX))}


def score_signature(pod: PodInfo) -> Mapping[str, Hashable]:
    """Return the signature of a pod for the policies: its GPU request and its milli-CPU."""
    return {**gpu_signature(pod), "gpuCpu": pod.needs.nonzero_cpu}


def _number(name: str, text: str, missing: int) -> int:
    if not text:
        return missing
    if not _NUMBER.fullmatch(text):
        raise InvalidRequestError(f"{name}={text[:40]!r} is not a whole number")
    return int(text)


def _index(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    if not _INDEX.fullmatch(text):
        raise InvalidRequestError(f"{GPU_INDEX}={text[:40]!r} is not a list of devices such as 0-1-3")
    return tuple(map(int, text.split("-")))


#: The value of ``taken_by`` for a pod without devices.
_NONE: Final[tuple[int, tuple[int, ...]]] = (0, ())
#: The least number of cached entries of pods at which entries of deleted pods are searched for.
_LEAST_KEPT: Final = 128
#: The most distinct amounts that get a number; if there are more, numbering starts again from 0.
_MOST_NUMBERS: Final = 1 << 20


class DeviceTable:
    """The free milli of every device. It follows the node table: a row is summed again when its node or pods change.

    Nothing computed within a what-if is cached, because a what-if is undone afterwards.
    """

    def __init__(self, table: NodeTable | None = None) -> None:
        self._table = None if table is None else ref(table)
        #: UID → devices of pods whose annotation does not show them yet.
        self.assumed: dict[str, tuple[int, ...]] = {}
        #: The name of a plugin → its choice of the device for a pod that requests part of one. Plugins add theirs.
        self.choosers: dict[str, Callable[[PodInfo, GpuRequest, list[int], NodeInfo], int]] = {}
        self._known: dict[str, tuple[dict[str, str], tuple[int, tuple[int, ...]]]] = {}
        self._rows: list[list[int]] = []
        #: Number → the free amounts of a node's devices, as ``present`` returns them. ``_numbers`` has the number of each row.
        self._present: list[tuple[int, ...]] = []
        self._number_of: dict[tuple[int, ...], int] = {}
        self._numbers: IntArray = np.zeros(0, dtype=np.int64)
        #: How often numbering has started again; data cached by number is then invalid.
        self.numbering = 0
        self._left: IntArray = np.zeros((0, 1), dtype=np.int64)
        self._totals: IntArray = np.zeros(0, dtype=np.int64)
        self._most: IntArray = np.zeros(0, dtype=np.int64)
        self._unused: IntArray = np.zeros(0, dtype=np.int64)
        self._layout = -1
        self._position = 0
        #: Rows on which devices were assigned or released since the row was last summed.
        self._stale: set[int] = set()
        #: If there are more cached entries of pods than this, those of deleted pods are dropped.
        self._most_kept = _LEAST_KEPT

    def left(self, nodes: NodeView) -> IntArray:
        """Return the free milli of each device, shape (nodes, devices); 0 for devices that a node does not have. Read-only."""
        if not nodes.is_true or nodes.table.rows_in_what_ifs:
            return _as_array([self._added_up(node) for node in nodes])
        self._follow(nodes.table)
        left: IntArray = self._left[nodes.rows]
        return left

    def totals(self, nodes: NodeView) -> IntArray:
        """Return the free milli of all devices of each node together, shape (nodes,). Read-only."""
        if not nodes.is_true or nodes.table.rows_in_what_ifs:
            return np.array([sum(self._added_up(node)) for node in nodes], dtype=np.int64)
        self._follow(nodes.table)
        totals: IntArray = self._totals[nodes.rows]
        return totals

    def have_room(self, nodes: NodeView, milli: int, count: int) -> BoolArray:
        """Return a mask of the nodes that have ``count`` devices with at least ``milli`` free; shape (nodes,).

        ``milli`` is that of a whole device, or ``count`` is 1.
        """
        if not nodes.is_true or nodes.table.rows_in_what_ifs:
            free = [self._added_up(node) for node in nodes]
            return np.array([sum(one >= milli for one in row) >= count for row in free], dtype=np.bool_)
        self._follow(nodes.table)
        found, least = (self._unused, count) if milli == WHOLE else (self._most, milli)
        has_room: BoolArray = found[nodes.rows] >= least
        return has_room

    def present(self, nodes: NodeView) -> list[tuple[int, ...]]:
        """Return for each node the free milli of the devices that have any, in ascending order."""
        return [self._present[number] for number in self.numbers(nodes).tolist()]

    def numbers(self, nodes: NodeView) -> IntArray:
        """Return for each node a number that stands for its amounts as ``present`` returns them; shape (nodes,). Read-only.

        Equal amounts have equal numbers; ``with_number`` returns the amounts.
        """
        if not nodes.is_true or nodes.table.rows_in_what_ifs:
            self._limit_numbers()
            return np.array([self._number(present(self._added_up(node))) for node in nodes], dtype=np.int64)
        self._follow(nodes.table)
        numbers: IntArray = self._numbers[nodes.rows]
        return numbers

    def with_number(self, number: int) -> tuple[int, ...]:
        """Return the amounts that a number from ``numbers`` stands for, in ascending order."""
        return self._present[number]

    def _limit_numbers(self) -> None:
        """Start numbering again from 0 if there are too many numbers; all rows are then summed again."""
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
        """Return the free milli of the devices of a node that have any, in ascending order."""
        return self._present[self._numbers.item(node.row)] if self._is_current() else present(self._added_up(node))

    def of(self, node: NodeInfo) -> list[int]:
        """Return the free milli of each device of a node. Read-only."""
        return self._rows[node.row] if self._is_current() else self._added_up(node)

    def _is_current(self) -> bool:
        """Bring the rows up to date; return False within a what-if."""
        table = None if self._table is None else self._table()
        if table is None or table.rows_in_what_ifs:
            return False
        self._follow(table)
        return True

    def _follow(self, table: NodeTable) -> None:
        """Sum the changed rows again."""
        changes = table.changes
        if self._position == changes.position and self._layout == changes.layout and not self._stale:
            return
        self._limit_numbers()
        changed = changes.since(self._position) if self._layout == changes.layout else None
        if changed is None:
            self._rows = [self._added_up(NodeInfo(table, row)) for row in range(len(table))]
            self._left = _as_array(self._rows)
            self._totals, self._most = self._left.sum(axis=1), self._left.max(axis=1)
            self._unused = (self._left >= WHOLE).sum(axis=1)
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
        self._totals[row], self._most[row], self._unused[row] = sum(left), max(left, default=0), left.count(WHOLE)
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
        """Return the milli that a pod uses on each of its devices, and the devices' indexes; (0, ()) if it has none."""
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
        """Assign devices to a pod that was just assumed on the node of a row."""
        self._forget_gone()
        self.assumed[pod.uid] = devices
        self._known.pop(pod.uid, None)
        self._stale.add(row)

    def _forget_gone(self) -> None:
        """Drop the entries of pods that are on no node, once there are many: no plugin is called when a placed pod ends."""
        if len(self.assumed) + len(self._known) <= self._most_kept:
            return
        table = None if self._table is None else self._table()
        if table is None or table.rows_in_what_ifs:  # pods that a what-if removed will return
            return
        present = {uid for pods in table.pods for uid in pods}
        self.assumed = {uid: devices for uid, devices in self.assumed.items() if uid in present}
        self._known = {uid: known for uid, known in self._known.items() if uid in present}
        self._most_kept = max(_LEAST_KEPT, 2 * (len(self.assumed) + len(self._known)))

    def give_back(self, pod: PodInfo, row: int | None) -> None:
        """Release the devices of a pod that leaves its node; ``row`` is None if the node is deleted."""
        self.assumed.pop(pod.uid, None)
        self._known.pop(pod.uid, None)
        if row is not None:
            self._stale.add(row)


def present(left: Sequence[int]) -> tuple[int, ...]:
    """Return the free amounts that are not 0, in ascending order."""
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
