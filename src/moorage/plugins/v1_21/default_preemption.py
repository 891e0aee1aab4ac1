"""DefaultPreemption, as 1.21 had it: the same search, but other victims weigh most, and it says nothing where it finds nothing.

Victims stand in the order in which they were tried: those that a disruption budget protects first, then the others, each the
most important first. Which node does the least harm is asked of the first of them, so that one beyond its budget hides a more
important one behind it. A node on which the pod turns out to fit with all pods there is as good as any; nobody has to go then.

Reads     as today's; of pods that are leaving the nominated node, who sends them away does not matter
Finds     a node to nominate the pod to, and the victims there. Where it finds none an earlier nomination stays, but where no
          node is worth a try the nomination ends
Source    kube-scheduler 1.21, plugins/defaultpreemption/default_preemption.go; scheduler.go, recordSchedulingFailure
"""

from __future__ import annotations

from moorage.cycle.extender_preemption import Consult
from moorage.cycle.preemption import Candidate
from moorage.cycle.reprieve import Victims
from moorage.framework.points import Attempt, PostFilterResult
from moorage.framework.verdicts import Code
from moorage.plugins import default_preemption as today
from moorage.state.pod_info import PodInfo

__all__ = ["DefaultPreemptionV121"]


class DefaultPreemptionV121(today.DefaultPreemption):
    """See the module's description."""

    fails_alike = True

    def post_filter(self, pod: PodInfo, attempt: Attempt) -> PostFilterResult | Consult:
        if pod.spec.preemption_policy == "Never" or _victims_are_leaving(pod, attempt):
            return PostFilterResult(Code.UNSCHEDULABLE)
        if not len(attempt.verdicts.rows_with(Code.UNSCHEDULABLE)):
            return PostFilterResult(Code.UNSCHEDULABLE, nominated="")
        search = self.search(attempt)
        if search.fitting:
            return today.taken(pod, attempt, Candidate(search.fitting[0], Victims(())))
        if not search.candidates:
            return PostFilterResult(Code.UNSCHEDULABLE)
        return today.chosen(pod, attempt, [_as_tried(candidate) for candidate in search.candidates])


def _as_tried(candidate: Candidate) -> Candidate:
    """Return the candidate with those of its victims first that exceed a budget."""
    exceeding = candidate.victims.exceeding
    uids = {pod.uid for pod in exceeding}
    others = (pod for pod in candidate.victims.pods if pod.uid not in uids)
    return candidate._replace(victims=Victims((*exceeding, *others), exceeding))


def _victims_are_leaving(pod: PodInfo, attempt: Attempt) -> bool:
    """Say whether pods of lower priority are leaving the node that the pod is nominated to, and that may help."""
    row = attempt.snapshot.table.row_of.get(pod.status.nominated_node_name)
    if row is None:
        return False
    status = attempt.verdicts.status(row)
    if status is not None and status.code is Code.UNRESOLVABLE:
        return False
    return any(other.terminating and other.priority < pod.priority for other in attempt.snapshot.table.pods[row].values())
