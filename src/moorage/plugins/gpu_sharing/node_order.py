"""Break ties between nodes by a fixed order: the number at the start of a node's name, as in ``0042-worker``.

kube-scheduler picks one of the best nodes at random for each pod; an experiment may need one order for the whole run.
Scores are 0-100, so two plugins score the two digits of the number in base 101: with the weights 101 and 1 their sum orders
all nodes. The plugin whose ties they break needs a weight of at least ``WEIGHT``.
"""

from __future__ import annotations

import re
from typing import Final

from moorage.framework.points import Reusable, ScorePlugin
from moorage.framework.reuse import Reuse, Scope
from moorage.plugins.shared.node_numbers import numbers_of
from moorage.state.view import IntArray, NodeView, PodInfo

_BASE: Final = 101
#: One more than the highest weighted sum of both plugins.
WEIGHT: Final = _BASE * 100 + 100 + 1
_LAST: Final = _BASE * _BASE - 1
_NUMBER: Final = re.compile(r"[0-9]{1,9}(?=-)")
_BY_NAME: Final = Reuse(Scope.NODE, signature=lambda pod: {}, signature_reads=())


def _number(name: str) -> int:
    found = _NUMBER.match(name)
    return _LAST if found is None else min(int(found[0]), _LAST)


_NUMBERS: Final = numbers_of(lambda node: _number(node.name))


class NodeOrderHigh(ScorePlugin[PodInfo], Reusable):
    """Scores the high digit of the number; give it weight 101."""

    name = "NodeOrderHigh"
    reuse = _BY_NAME

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        return 100 - nodes.snapshot.index(_NUMBERS).of(nodes) // _BASE


class NodeOrderLow(ScorePlugin[PodInfo], Reusable):
    """Scores the low digit of the number; give it weight 1."""

    name = "NodeOrderLow"
    reuse = _BY_NAME

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        return 100 - nodes.snapshot.index(_NUMBERS).of(nodes) % _BASE
