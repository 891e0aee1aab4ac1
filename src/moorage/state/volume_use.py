"""The use of volumes: claims and disks by the rows of the pods that use them.

Volume plugins do not iterate over all pods. They read which rows hold a disk, how many pods use a claim, or which pods on a row
have volumes that matter to scheduling.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from moorage.state.change_log import RowLog
from moorage.state.pod_info import PodInfo
from moorage.state.pod_volumes import Disk, DiskKey

_NO_PODS: Mapping[str, PodInfo] = {}


class _Holders:
    """The rows that hold a disk, with the number of read-only and of writable volumes on each."""

    __slots__ = ("readers", "writers")

    def __init__(self) -> None:
        self.readers: dict[int, int] = {}
        self.writers: dict[int, int] = {}


class VolumeUse:
    """Volumes in use, updated as pods are added and removed; pods without volumes that matter are left out."""

    def __init__(self) -> None:
        #: claim → row → number of volumes of pods there that name it
        self._claims: dict[str, dict[int, int]] = {}
        #: the same for ephemeral claims, each of which is created for one pod
        self._ephemeral: dict[str, dict[int, int]] = {}
        self._disks: dict[DiskKey, _Holders] = {}
        self._pods: dict[int, dict[str, PodInfo]] = {}
        #: The rows to which pods with volumes came, and those that such pods left.
        self.came, self.left = RowLog(), RowLog()

    # -- reads by plugins ---------------------------------------------------------------------------------------------

    def claim_uses(self, key: str) -> int:
        """Return how many volumes of pods on any row name the claim (``namespace/name``)."""
        return sum(self._claims.get(key, {}).values())

    def rows_using(self, key: str) -> Iterable[int]:
        """Return the rows of pods that use a claim, by name or as an ephemeral volume."""
        named, made = self._claims.get(key), self._ephemeral.get(key)
        return {**(named or {}), **(made or {})}

    def pods_on(self, row: int) -> Mapping[str, PodInfo]:
        """Return the pods on a row that have volumes that matter, by UID."""
        return self._pods.get(row, _NO_PODS)

    @property
    def rows(self) -> Collection[int]:
        """The rows on which a pod has volumes that matter."""
        return self._pods.keys()

    def rows_clashing(self, disk: Disk) -> Collection[int]:
        """Return the rows on which ``disk`` cannot be mounted, because a pod there uses it already."""
        held = self._disks.get(disk.key)
        if held is None:
            return ()
        return held.writers.keys() if disk.read_only else held.writers.keys() | held.readers.keys()

    # -- updates ------------------------------------------------------------------------------------------------------

    def add(self, row: int, pod: PodInfo) -> None:
        """Add a pod, which has volumes that matter, to a row."""
        self._pods.setdefault(row, {})[pod.uid] = pod
        self._count(row, pod, 1)
        self.came.note(row)

    def remove(self, row: int, pod: PodInfo) -> None:
        """Undo ``add``."""
        on_row = self._pods[row]
        del on_row[pod.uid]
        if not on_row:
            del self._pods[row]
        self._count(row, pod, -1)
        self.left.note(row)

    def save_order(self, row: int) -> Callable[[], None]:
        """Return a function that restores the order of the pods on a row, once the same pods are there again."""
        pods = dict(self._pods.get(row, ()))

        def restore() -> None:
            if pods:
                self._pods[row] = pods

        return restore

    def move(self, old: int, new: int) -> None:
        """Renumber a row."""
        pods = self._pods.get(old)
        for pod in list(pods.values()) if pods else ():
            self.remove(old, pod)
            self.add(new, pod)

    def _count(self, row: int, pod: PodInfo, by: int) -> None:
        volumes = pod.volumes
        if volumes is None:
            return
        for use in volumes.claims:
            _tally(self._ephemeral if use.ephemeral else self._claims, use.key, row, by)
        for disk in volumes.disks:
            held = self._disks.get(disk.key)
            if held is None:
                held = self._disks[disk.key] = _Holders()
            _tally_row(held.readers if disk.read_only else held.writers, row, by)
            if not held.readers and not held.writers:
                del self._disks[disk.key]


def _tally(counts: dict[str, dict[int, int]], key: str, row: int, by: int) -> None:
    rows = counts.setdefault(key, {})
    _tally_row(rows, row, by)
    if not rows:
        del counts[key]


def _tally_row(rows: dict[int, int], row: int, by: int) -> None:
    count = rows.get(row, 0) + by
    if count:
        rows[row] = count
    else:
        del rows[row]
