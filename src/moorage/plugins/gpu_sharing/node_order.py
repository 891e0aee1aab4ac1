"""Break ties between nodes by a fixed order: the number at the start of a node's name, as in ``0042-worker``.

kube-scheduler picks one of the best nodes at random for each pod; an experiment may need one order for the whole run. Scores
are 0-100, so two plugins score the two digits of the number in base 101: with the weights 101 and 1 their sum orders all nodes.
The plugin whose ties they break needs a weight of at least ``WEIGHT``.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from moorage.framework.points import Reusable, Reuse, Scope, ScorePlugin
from moorage.state.columns import IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["WEIGHT", "NodeOrderHigh", "NodeOrderLow"]

_BASE: Final = 101
#: One more than the highest weighted sum of both plugins.
WEIGHT: Final = _BASE * 100 + 100 + 1
_LAST: Final = _BASE * _BASE - 1
_NUMBER: Final = re.compile(r"[0-9]{1,9}(?=-)")
_BY_NAME: Final = Reuse(Scope.NODE, signature=lambda pod: {}, signature_reads=())


class _Numbers:
    """The numbers of all nodes, read again when a node is added, removed or updated."""

    def __init__(self) -> None:
        self._seen = -1
        self._found: IntArray = np.zeros(0, dtype=np.int64)

    def of(self, nodes: NodeView) -> IntArray:
        changes = nodes.table.changes
        if self._seen != changes.nodes or len(self._found) != len(nodes.table):
            self._seen = changes.nodes
            self._found = np.array([_number(node.metadata.name) for node in nodes.table.nodes], dtype=np.int64)
        found: IntArray = self._found[nodes.rows]
        return found


def _number(name: str) -> int:
    found = _NUMBER.match(name)
    return _LAST if found is None else min(int(found[0]), _LAST)


class NodeOrderHigh(ScorePlugin[PodInfo], Reusable):
    """Scores the high digit of the number; give it weight 101."""

    name = "NodeOrderHigh"
    reuse = _BY_NAME

    def __init__(self) -> None:
        self._numbers = _Numbers()

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        return 100 - self._numbers.of(nodes) // _BASE


class NodeOrderLow(ScorePlugin[PodInfo], Reusable):
    """Scores the low digit of the number; give it weight 1."""

    name = "NodeOrderLow"
    reuse = _BY_NAME

    def __init__(self) -> None:
        self._numbers = _Numbers()

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        return 100 - self._numbers.of(nodes) % _BASE
