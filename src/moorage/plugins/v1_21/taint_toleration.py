"""TaintToleration of 1.21: as the current plugin, but a rejection names the taint.

Reads     the pod's tolerations; nodes' taints
Rejects   nodes with a NoSchedule or NoExecute taint that no toleration matches, naming the first; preemption does not help
Scores    nodes higher the fewer untolerated PreferNoSchedule taints they have: the most gives 0, none gives 100
Source    kube-scheduler 1.21, plugins/tainttoleration/taint_toleration.go
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from moorage.api.core import Taint
from moorage.api.taints import find_untolerated
from moorage.framework.verdicts import Reject
from moorage.plugins import taint_toleration as today
from moorage.state.pod_info import PodInfo
from moorage.state.taint_matching import DO_NOT_SCHEDULE
from moorage.state.view import NodeView

__all__ = ["TaintTolerationV121", "first_taint_rejects"]

# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) had taint {{{}: {}}}, that the pod didn't tolerate"


class TaintTolerationV121(today.TaintToleration):
    """The plugin; see the module docstring."""

    reuse = today.TaintToleration.reuse

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        return first_taint_rejects(pod, nodes, REASON)


def first_taint_rejects(pod: PodInfo, nodes: NodeView, reason: str) -> Iterator[Reject]:
    """Reject nodes with the first taint of each that the pod does not tolerate; ``reason`` has places for its key and value."""
    reasons: list[str] = []

    def refused_for(taints: tuple[Taint, ...]) -> int:
        """Number the reasons from 1 in the order found; 0 means no reason."""
        taint = find_untolerated(taints, pod.spec.tolerations, DO_NOT_SCHEDULE)
        if taint is None:
            return 0
        said = reason.format(taint.key, taint.value)
        if said not in reasons:
            reasons.append(said)
        return reasons.index(said) + 1

    numbers = nodes.taints.spread(nodes.ids(nodes.taints), refused_for, np.int64)
    for number, said in enumerate(reasons, start=1):
        yield Reject(np.equal(numbers, number), said, unresolvable=True)
