"""TaintToleration up to 1.33 and in 1.34.1: the reason names the first taint that the pod does not tolerate.

Up to 1.23 its words differ.

Reads     the pod's tolerations; nodes' taints
Rejects   nodes with a NoSchedule or NoExecute taint that no toleration matches; preemption does not help
Source    kube-scheduler 1.34.1, 1.23.5 and 1.21, plugins/tainttoleration/taint_toleration.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from moorage.api.core import Taint
from moorage.api.node_selectors import find_untolerated
from moorage.framework.verdicts import Hold, Reject
from moorage.plugins.taint_toleration import TaintToleration
from moorage.state.taint_matching import DO_NOT_SCHEDULE
from moorage.state.view import NodeInfo, NodeView, PodInfo

# kube-scheduler's own texts, kept word for word: people search their events for them.
REASON = "node(s) had untolerated taint {{{}: {}}}"
REASON_OF_1_23 = "node(s) had taint {{{}: {}}}, that the pod didn't tolerate"


class TaintTolerationV1341(TaintToleration):
    """``reason`` has places for the key and the value of the taint."""

    reuse = TaintToleration.reuse
    reason: ClassVar[str] = REASON

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


class TaintTolerationV123(TaintTolerationV1341):
    reason = REASON_OF_1_23


class TaintTolerationV121(TaintTolerationV123):
    """The plugin of 1.21, which is that of 1.23."""
