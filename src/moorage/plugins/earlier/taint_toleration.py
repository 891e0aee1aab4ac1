"""TaintToleration up to 1.33 and in 1.34.1: the reason names the first taint that the pod does not tolerate.

Up to 1.23 its words differ.

Reads     the pod's tolerations; nodes' taints
Rejects   nodes with a NoSchedule or NoExecute taint that no toleration matches; preemption does not help
Source    kube-scheduler 1.34.1 and 1.23.5, plugins/tainttoleration/taint_toleration.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from moorage.api.core import Taint
from moorage.api.node_selectors import find_untolerated
from moorage.framework.verdicts import Hold, Reject
from moorage.plugins import taint_toleration as today
from moorage.state.node_matching import DO_NOT_SCHEDULE
from moorage.state.view import NodeInfo, NodeView, PodInfo

# -- 1.21 --------------------------------------------------------------------------------------------------------------
# TaintToleration of 1.21: as the current plugin, but a rejection names the taint.
#
# Reads     the pod's tolerations; nodes' taints
# Rejects   nodes with a NoSchedule or NoExecute taint that no toleration matches, naming the first; preemption does not help
# Scores    nodes higher the fewer untolerated PreferNoSchedule taints they have: the most gives 0, none gives 100
# Source    kube-scheduler 1.21, plugins/tainttoleration/taint_toleration.go

# kube-scheduler's own text, kept word for word: people search their events for it.
REASON_OF_1_23 = "node(s) had taint {{{}: {}}}, that the pod didn't tolerate"


class FirstTaintNamed(today.TaintToleration):
    """TaintToleration of the releases that name the first taint of a node that the pod does not tolerate.

    ``reason`` has places for the key and the value of the taint.
    """

    reuse = today.TaintToleration.reuse
    reason: ClassVar[str]

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        reasons: list[str] = []

        def refused_for(taints: tuple[Taint, ...]) -> int:
            """Number the reasons from 1 in the order found; 0 means no reason."""
            taint = find_untolerated(taints, pod.spec.tolerations, DO_NOT_SCHEDULE)
            if taint is None:
                return 0
            said = self.reason.format(taint.key, taint.value)
            if said not in reasons:
                reasons.append(said)
            return reasons.index(said) + 1

        numbers = nodes.taints.spread(nodes.ids(nodes.taints), refused_for, np.int64)
        for number, said in enumerate(reasons, start=1):
            yield Reject(np.equal(numbers, number), said, unresolvable=True)

    def filter_node(self, pod: PodInfo, node: NodeInfo) -> Hold | None:
        taint = self._untolerated(pod, node.node)
        return None if taint is None else Hold.because(self.reason.format(taint.key, taint.value), unresolvable=True)


class TaintTolerationV121(FirstTaintNamed):
    reason = REASON_OF_1_23


# -- 1.22 and later ----------------------------------------------------------------------------------------------------

# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) had untolerated taint {{{}: {}}}"


class TaintTolerationV1341(FirstTaintNamed):
    reason = REASON


class TaintTolerationV123(TaintTolerationV1341):
    """The plugin up to 1.23."""

    reason = REASON_OF_1_23
