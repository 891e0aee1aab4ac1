"""Break ties by a seeded draw that depends only on the seed, the pod and the nodes' names.

kube-scheduler picks one of the best nodes at random. Here the hash of its name gives each node a place on a ring; the hash of
the seed and its UID gives each pod a place, and the pod takes the first of the best nodes from there on. Repeated runs give the
same answer, a restart changes nothing, and load still spreads.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from moorage.state.table import NodeTable

__all__ = ["draw", "draw_by_name", "first_from", "ring_position"]

_PLACES = 2**64


def ring_position(uid: str, seed: int) -> int:
    """Return a pod's place on the ring of 2^64 places."""
    return int.from_bytes(blake2b(f"{seed}/{uid}".encode(), digest_size=8).digest(), "little")


def draw(table: NodeTable, rows: npt.NDArray[np.intp], uid: str, seed: int) -> int:
    """Return one of ``rows`` (at least one): the first at or after the pod's place on the ring."""
    return first_from(table, rows, ring_position(uid, seed))


def first_from(table: NodeTable, rows: npt.NDArray[np.intp], start: int) -> int:
    """Return the first of ``rows`` (at least one) at or after a position on the ring."""
    if len(rows) == 1:
        return int(rows[0])
    return int(rows[(table.name_hash.view[rows] - np.uint64(start)).argmin()])


def draw_by_name(names: Sequence[str], uid: str, seed: int) -> str:
    """Return one of the names (at least one), drawn like a node."""
    start = ring_position(uid, seed)
    return min(names, key=lambda name: ((_hash_of(name) - start) % _PLACES, name))


def _hash_of(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
