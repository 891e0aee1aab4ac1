"""TaintToleration up to 1.33 and in 1.34.1: the reason names the first taint that the pod does not tolerate.

Reads     the pod's tolerations; nodes' taints
Rejects   nodes with a NoSchedule or NoExecute taint that no toleration matches; preemption does not help
Source    kube-scheduler 1.34.1, plugins/tainttoleration/taint_toleration.go
"""

from __future__ import annotations

from moorage.plugins.v1_21.taint_toleration import FirstTaintNamed

__all__ = ["TaintTolerationV1341"]

# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) had untolerated taint {{{}: {}}}"


class TaintTolerationV1341(FirstTaintNamed):
    """The plugin; see the module docstring."""

    reuse = FirstTaintNamed.reuse
    reason = REASON
