"""Breaking ties: a seeded draw that depends on nothing but the seed, the pod and the node.

kube-scheduler picks one of the best nodes at random. Here each (seed, pod UID, node name) has a fixed number, and the node
with the least wins: the same run twice gives the same answer, a restart changes nothing, and load still spreads.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from moorage.state.table import NodeTable

__all__ = ["draw"]

_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)


def draw(table: NodeTable, rows: npt.NDArray[np.intp], uid: str, seed: int) -> int:
    """Return one of ``rows`` (at least one)."""
    if len(rows) == 1:
        return int(rows[0])
    salt = np.uint64(int.from_bytes(blake2b(f"{seed}/{uid}".encode(), digest_size=8).digest(), "little"))
    mixed = table.name_hash.view[rows] ^ salt
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _M1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _M2
    return int(rows[np.argmin(mixed ^ (mixed >> np.uint64(31)))])
