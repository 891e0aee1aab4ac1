"""TaintToleration up to 1.33 and in 1.34.1: the reason names the first taint that the pod does not tolerate.

Up to 1.23 its words differ.

Reads     the pod's tolerations; nodes' taints
Rejects   nodes with a NoSchedule or NoExecute taint that no toleration matches; preemption does not help
Source    kube-scheduler 1.34.1 and 1.23.5, plugins/tainttoleration/taint_toleration.go
"""

from __future__ import annotations

from moorage.plugins.v1_21.taint_toleration import REASON as REASON_OF_1_23
from moorage.plugins.v1_21.taint_toleration import FirstTaintNamed

# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) had untolerated taint {{{}: {}}}"


class TaintTolerationV1341(FirstTaintNamed):
    reuse = FirstTaintNamed.reuse
    reason = REASON


class TaintTolerationV123(TaintTolerationV1341):
    """The plugin up to 1.23."""

    reuse = FirstTaintNamed.reuse
    reason = REASON_OF_1_23
