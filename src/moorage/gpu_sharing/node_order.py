"""Break ties between nodes by a fixed order: the number with which a node's name begins, ``0042-worker``.

kube-scheduler draws one of the best nodes for each pod; an experiment may want one order for the whole run. Two plugins score
the number's two digits to base 101, so that with weights 101 and 1 their sum orders all nodes; the plugin that decides gets a
weight of at least ``WEIGHT``.
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
#: More than both plugins together can give.
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
    """The first digit of the number; weight 101."""

    name = "NodeOrderHigh"
    reuse = _BY_NAME

    def __init__(self) -> None:
        self._numbers = _Numbers()

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        return 100 - self._numbers.of(nodes) // _BASE


class NodeOrderLow(ScorePlugin[PodInfo], Reusable):
    """The second digit of the number; weight 1."""

    name = "NodeOrderLow"
    reuse = _BY_NAME

    def __init__(self) -> None:
        self._numbers = _Numbers()

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        return 100 - self._numbers.of(nodes) % _BASE
