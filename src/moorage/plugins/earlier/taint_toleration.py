"""TaintToleration up to 1.33 and in 1.34.1: the reason names the first taint that the pod does not tolerate.

Reads     the pod's tolerations; nodes' taints
Rejects   nodes with a NoSchedule or NoExecute taint that no toleration matches; preemption does not help
Source    kube-scheduler 1.34.1, plugins/tainttoleration/taint_toleration.go
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.framework.verdicts import Hold, Reject
from moorage.plugins.taint_toleration import TaintToleration
from moorage.plugins.v1_21.taint_toleration import first_taint_rejects
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo, NodeView

__all__ = ["TaintTolerationV1341"]

# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) had untolerated taint {{{}: {}}}"


class TaintTolerationV1341(TaintToleration):
    """The plugin; see the module docstring."""

    reuse = TaintToleration.reuse

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        return first_taint_rejects(pod, nodes, REASON)

    def filter_node(self, pod: PodInfo, node: NodeInfo) -> Hold | None:
        taint = self._untolerated(pod, node.node)
        return None if taint is None else Hold.because(REASON.format(taint.key, taint.value), unresolvable=True)
