"""DefaultPreemption, as 1.21 had it: the same search, but it keeps to itself why it found nothing.

Reads     as today's; of pods that are leaving the nominated node, who sends them away does not matter
Finds     a node to nominate the pod to, and the victims there. Where nothing helps, an earlier nomination stays
Source    kube-scheduler 1.21, plugins/defaultpreemption/default_preemption.go; scheduler.go, recordSchedulingFailure
"""

from __future__ import annotations

from moorage.framework.points import Attempt, PostFilterResult
from moorage.framework.verdicts import Code
from moorage.plugins import default_preemption as today
from moorage.state.pod_info import PodInfo

__all__ = ["DefaultPreemption"]


class DefaultPreemption(today.DefaultPreemption):
    """See the module's description."""

    def post_filter(self, pod: PodInfo, attempt: Attempt) -> PostFilterResult:
        if _victims_are_leaving(pod, attempt):
            return PostFilterResult(Code.UNSCHEDULABLE)
        found = super().post_filter(pod, attempt)
        return found if found.code is Code.SUCCESS else PostFilterResult(found.code)


def _victims_are_leaving(pod: PodInfo, attempt: Attempt) -> bool:
    """Say whether pods of lower priority are leaving the node that the pod is nominated to, and that may help."""
    row = attempt.snapshot.table.row_of.get(pod.status.nominated_node_name)
    if row is None:
        return False
    status = attempt.verdicts.status(row)
    if status is not None and status.code is Code.UNRESOLVABLE:
        return False
    return any(other.terminating and other.priority < pod.priority for other in attempt.snapshot.table.pods[row].values())
