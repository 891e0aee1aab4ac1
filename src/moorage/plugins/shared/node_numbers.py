"""A number of each node that plugins compute once, and again when the node or its pods change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from moorage.state.view import KeptColumn, NodeInfo, Snapshot


def numbers_of(number: Callable[[NodeInfo], int]) -> Callable[[Snapshot], KeptColumn]:
    """Return an index of the numbers of nodes: get it from ``Snapshot.index``.

    ``number``  may depend on the node and the sums over its pods, and on nothing else
    """
    return lambda _: KeptColumn(lambda nodes: np.array([number(one) for one in nodes], dtype=np.int64), number)
