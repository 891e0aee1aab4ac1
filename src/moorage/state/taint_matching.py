"""Match a pod's tolerations against the taints of the rows of the node table.

Nodes of one kind have the same taints, and a taint set is interned as a single value, so each distinct set is judged once.

Source  component-helpers, scheduling/corev1/helpers.go, FindMatchingUntoleratedTaint
"""

from __future__ import annotations

from collections.abc import Container, Iterable

import numpy as np

from moorage.api.core import Taint, Toleration
from moorage.api.node_selectors import find_untolerated, tolerance
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

#: Effects that keep a pod off a node. ``PreferNoSchedule`` only costs score.
DO_NOT_SCHEDULE = frozenset({"NoSchedule", "NoExecute"})


def rows_tolerated(pod: PodInfo, nodes: NodeView, effects: Container[str] | None, numeric: bool) -> BoolArray:
    """Return for each row whether the pod tolerates all of its taints that have one of ``effects`` (None: any effect).

    ``numeric``: ``Lt`` and ``Gt`` tolerations count (gate ``TaintTolerationComparisonOperators``).
    """
    tolerations = pod.spec.tolerations

    def is_tolerated(taints: tuple[Taint, ...]) -> bool:
        return find_untolerated(taints, tolerations, effects, numeric) is None

    return nodes.taints.spread(nodes.ids(nodes.taints), is_tolerated)


def count_untolerated(tolerations: Iterable[Toleration], nodes: NodeView, effect: str, numeric: bool) -> IntArray:
    """Count each row's taints with this effect that no toleration tolerates; shape (rows,)."""
    is_tolerated = tolerance(tuple(tolerations), numeric)

    def untolerated(taints: tuple[Taint, ...]) -> int:
        return sum([taint.effect == effect and not is_tolerated(taint) for taint in taints])

    return nodes.taints.spread(nodes.ids(nodes.taints), untolerated, np.int64)
