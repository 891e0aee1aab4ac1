"""DefaultPreemption of 1.21: the same search, but another choice of node, and no message where preemption does not help.

Victims are listed in the order in which the search tried them: first those protected by a disruption budget, then the others,
each sorted by importance. The choice of node compares the first victims, so a victim beyond its budget can hide a more
important one behind it. A node on which the pod fits with all pods in place is nominated at once, without victims.

Reads     as the current plugin; terminating pods on the nominated node count, whatever deletes them
Finds     a node to nominate the pod to, and the victims there. Otherwise an earlier nomination stays, unless no node was worth
          a search
Source    kube-scheduler 1.21, plugins/defaultpreemption/default_preemption.go; scheduler.go, recordSchedulingFailure
"""

from __future__ import annotations

from moorage.core.preemption.candidates import Candidate
from moorage.core.preemption.reprieve import Victims
from moorage.framework.points import Attempt, PostFilterResult
from moorage.framework.post_filter import Consult
from moorage.framework.verdicts import Code
from moorage.plugins import default_preemption as today
from moorage.state.pod_info import PodInfo


class DefaultPreemptionV121(today.DefaultPreemption):
    reuse = today.DefaultPreemption.reuse

    def post_filter(self, pod: PodInfo, attempt: Attempt) -> PostFilterResult | Consult[Candidate]:
        if pod.spec.preemption_policy == "Never" or _victims_are_terminating(pod, attempt):
            return PostFilterResult(Code.UNSCHEDULABLE)
        if not len(attempt.verdicts.rows_with(Code.UNSCHEDULABLE)):
            return PostFilterResult(Code.UNSCHEDULABLE, nominated="")
        search = self.search(attempt)
        if search.fitting:
            return self.nominate(pod, attempt, Candidate(search.fitting[0], Victims(())))
        if not search.candidates:
            return PostFilterResult(Code.UNSCHEDULABLE)
        return self.nominate_best(pod, attempt, [in_search_order(candidate) for candidate in search.candidates])


def in_search_order(candidate: Candidate) -> Candidate:
    """Return the candidate with the victims that exceed a budget first."""
    exceeding = candidate.victims.exceeding
    uids = {pod.uid for pod in exceeding}
    others = (pod for pod in candidate.victims.pods if pod.uid not in uids)
    return candidate._replace(victims=Victims((*exceeding, *others), exceeding))


def _victims_are_terminating(pod: PodInfo, attempt: Attempt) -> bool:
    """Return whether pods of lower priority are terminating on the nominated node, and waiting for them may help."""
    row = attempt.snapshot.table.row_of.get(pod.status.nominated_node_name)
    if row is None:
        return False
    status = attempt.verdicts.status(row)
    if status is not None and status.code is Code.UNRESOLVABLE:
        return False
    return any(other.terminating and other.priority < pod.priority for other in attempt.snapshot.table.pods[row].values())
