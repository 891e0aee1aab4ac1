"""The orders of nodes: kube-scheduler's, one node of each zone in turn; and the ring, by which ties are broken.

Zones are in the order in which they got their first node, the nodes of a zone in the order in which they were added. A zone
that loses its last node loses its place, and a node that changes its zone moves to the end of the new one. As in
kube-scheduler, the order is rebuilt when a node is added or removed, so a change of zone takes effect only then.

Source  kube-scheduler 1.21 and 1.36, internal/cache/node_tree.go and cache.go, updateNodeInfoSnapshotList; component-helpers,
        node/topology/helpers.go, GetZoneKey
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain, zip_longest
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from moorage.api.core import Node
from moorage.state.columns import lazy

_OLD_ZONE, _ZONE = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"
_OLD_REGION, _REGION = "failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"

#: A region and a zone in it; either may be empty.
Zone = tuple[str, str]


def zone_of(labels: Mapping[str, str]) -> Zone | None:
    """Return region and zone; deprecated labels override current ones. None for a node with neither region nor zone."""
    region, zone = labels.get(_OLD_REGION, labels.get(_REGION, "")), labels.get(_OLD_ZONE, labels.get(_ZONE, ""))
    return (region, zone) if region or zone else None


def is_heartbeat(old: Node, new: Node) -> bool:
    """Return True if an update changes at most the node's resource version."""
    if old.spec != new.spec or old.status != new.status:
        return False
    mine, its = old.metadata, new.metadata
    return mine == its or replace(its, resource_version=mine.resource_version) == mine


class NodeTree:
    """Names of nodes by zone."""

    def __init__(self) -> None:
        self._zones: dict[Zone | None, dict[str, None]] = {}

    def add(self, node: Node) -> None:
        self._zones.setdefault(zone_of(node.labels), {})[node.name] = None

    def remove(self, node: Node) -> None:
        """Remove a node; its labels must be those that it was last added or updated with."""
        zone = zone_of(node.labels)
        names = self._zones[zone]
        del names[node.name]
        if not names:
            del self._zones[zone]

    def update(self, old: Node, new: Node) -> None:
        """Move a node to its new zone, if its zone labels changed."""
        if zone_of(old.labels) != zone_of(new.labels):
            self.remove(old)
            self.add(new)

    def save(self, zones: Collection[Zone | None]) -> Callable[[], None]:
        """Return a function that restores the order as it is now, after names in these zones changed."""
        order, saved = tuple(self._zones), {zone: dict(self._zones[zone]) for zone in zones if zone in self._zones}

        def restore() -> None:
            self._zones = {zone: saved[zone] if zone in saved else self._zones[zone] for zone in order}

        return restore

    def names(self) -> Iterator[str]:
        """Yield all names, in order."""
        return (name for name in chain.from_iterable(zip_longest(*self._zones.values())) if name is not None)


# -- ring --------------------------------------------------------------------------------------------------------------
# The ring of nodes: rows in the order of their names' hashes, used to break ties between scores.

V = TypeVar("V", bound=np.generic)


class Ring:
    """Rows sorted by hash. ``rows[place]`` is a row, ``place_of[row]`` its place."""

    def __init__(self, rows: npt.NDArray[np.intp], hashes: npt.NDArray[np.uint64]) -> None:
        """``rows`` and their ``hashes`` are sorted by hash."""
        self.rows = rows
        self._sorted = hashes
        #: The hashes and ``rows`` as memoryviews, which bisect reads faster than an array, as one value is.
        self.hash_at: memoryview = hashes.data
        self.row_at: memoryview = rows.data

    @lazy
    def place_of(self) -> npt.NDArray[np.intp]:
        """The place of each row."""
        places = np.empty(len(self.rows), dtype=np.intp)
        places[self.rows] = np.arange(len(self.rows))
        return places

    @lazy
    def place_at(self) -> memoryview:
        """``place_of``, from which one value is read faster."""
        return self.place_of.data

    @classmethod
    def of(cls, hashes: npt.NDArray[np.uint64]) -> Ring:
        """Sort rows by hash; ``hashes`` has one entry per row."""
        rows = np.argsort(hashes, kind="stable")
        return cls(rows, hashes[rows])

    def with_row(self, row_hash: int) -> Ring:
        """Return the ring with one more row, the last."""
        place = bisect_right(self.hash_at, row_hash)
        return Ring(_inserted(self.rows, place, len(self.rows)), _inserted(self._sorted, place, row_hash))

    def without(self, row: int) -> Ring:
        """Return the ring without a row; the last row takes its number."""
        place, last = self.place_at[row], len(self.rows) - 1
        rows = np.concatenate((self.rows[:place], self.rows[place + 1 :]))
        hashes = np.concatenate((self._sorted[:place], self._sorted[place + 1 :]))
        if row != last:
            moved = self.place_at[last]
            rows[moved - (moved > place)] = row
        return Ring(rows, hashes)

    def place_after(self, start: int) -> int:
        """Return the first place at or after a position on the ring; the number of rows if there is none."""
        return bisect_left(self.hash_at, start)

    def first_best(self, scores: npt.NDArray[np.int64], start: int) -> int:
        """Return the row with the highest score; where several share it, the first at or after ``start``.

        ``scores`` are in ring order, shape (rows,), at least one.
        """
        at = bisect_left(self.hash_at, start)
        later, earlier = scores[at:], scores[:at]
        if not len(later):
            return int(self.rows[earlier.argmax()])
        place = at + int(later.argmax())
        if len(earlier):
            before = int(earlier.argmax())
            if earlier[before] > scores[place]:
                place = before
        return int(self.rows[place])


def _inserted(values: npt.NDArray[V], at: int, value: int) -> npt.NDArray[V]:
    """Return the same as ``np.insert``, several times faster."""
    longer = np.empty(len(values) + 1, dtype=values.dtype)
    longer[:at], longer[at], longer[at + 1 :] = values[:at], value, values[at:]
    return longer
