"""DefaultPreemption up to 1.33 and in 1.34.7: victims that are being deleted already are deleted once more.

Up to 1.28 victims are listed in the order in which the search tried them, and the choice of node compares the first ones: a
victim beyond its disruption budget can hide a more important one behind it. Up to 1.26 a pod that preempted waits for every
terminating pod of lower priority on its nominated node, whatever deletes it.
Up to 1.23 reasons are missing or name the node. Up to 1.22 errors are reasons, too, and an earlier nomination stays, unless no
node was worth a search. In 1.21 no reason is given, and a node on which the pod fits with all pods in place is nominated at
once, without victims.

Source    kube-scheduler 1.34.7 and 1.28.8, framework/preemption/preemption.go, prepareCandidate; 1.26.15,
          defaultpreemption/default_preemption.go; 1.23.5, both; 1.22.6 and 1.21, the latter; 1.21, scheduler.go,
          recordSchedulingFailure
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from moorage.api.requirements import aggregate, quoted
from moorage.core.preemption.candidates import Candidate, PreemptionSearch, choose
from moorage.core.preemption.reprieve import NO_VICTIMS, Victims
from moorage.framework.points import Attempt, PostFilterResult
from moorage.framework.post_filter import Consult
from moorage.framework.verdicts import Code
from moorage.plugins.default_preemption import DefaultPreemption
from moorage.state.view import PodInfo, Snapshot


def in_search_order(candidate: Candidate) -> Candidate:
    """Return the candidate with the victims that exceed a budget first."""
    exceeding = candidate.victims.exceeding
    uids = {pod.uid for pod in exceeding}
    others = (pod for pod in candidate.victims.pods if pod.uid not in uids)
    return candidate._replace(victims=Victims((*exceeding, *others), exceeding))


class DefaultPreemptionV1347(DefaultPreemption):
    def to_evict(self, best: Candidate) -> tuple[PodInfo, ...]:
        return best.victims.pods


class DefaultPreemptionV128(DefaultPreemptionV1347):
    def nominate_best(
        self, pod: PodInfo, attempt: Attempt, candidates: Sequence[Candidate]
    ) -> PostFilterResult | Consult[Candidate]:
        return super().nominate_best(pod, attempt, [in_search_order(candidate) for candidate in candidates])


class DefaultPreemptionV126(DefaultPreemptionV128):
    @staticmethod
    def is_leaving(other: PodInfo) -> bool:
        return other.terminating


class DefaultPreemptionV121(DefaultPreemptionV126):
    def post_filter(self, pod: PodInfo, attempt: Attempt) -> PostFilterResult | Consult[Candidate]:
        if self.ineligible(pod, attempt):
            return _NOTHING
        if not len(attempt.verdicts.rows_with(Code.UNSCHEDULABLE)):
            return PostFilterResult(Code.UNSCHEDULABLE, nominated="")
        search = self.search(attempt)
        if search.fitting:
            return self.nominate(pod, attempt, Candidate(search.fitting[0], Victims(())))
        return self.nominate_best(pod, attempt, search.candidates) if search.candidates else _NOTHING


class DefaultPreemptionV123(DefaultPreemptionV126):
    def post_filter(self, pod: PodInfo, attempt: Attempt) -> PostFilterResult | Consult[Candidate]:
        if self.ineligible(pod, attempt):
            return _NOTHING
        search = self.search(attempt)
        if search.candidates:
            return self.nominate_best(pod, attempt, search.candidates)
        return self.without_candidates(pod, attempt, search)

    def without_candidates(self, pod: PodInfo, attempt: Attempt, search: PreemptionSearch) -> PostFilterResult:
        """Return why preemption helps nowhere."""
        if search.errors:
            return PostFilterResult(Code.ERROR, (aggregate(search.errors),))
        return PostFilterResult(Code.UNSCHEDULABLE, (_why_none(pod, search, attempt.snapshot),), nominated="")

    def nominate_best(
        self, pod: PodInfo, attempt: Attempt, candidates: Sequence[Candidate]
    ) -> PostFilterResult | Consult[Candidate]:
        if not attempt.consults:
            return super().nominate_best(pod, attempt, candidates)
        ordered = [in_search_order(candidate) for candidate in candidates]
        return Consult(ordered, lambda left: self.nominate(pod, attempt, choose(left)) if left else _NOTHING)


class DefaultPreemptionV122(DefaultPreemptionV123):
    def without_candidates(self, pod: PodInfo, attempt: Attempt, search: PreemptionSearch) -> PostFilterResult:
        cleared = None if len(attempt.verdicts.rows_with(Code.UNSCHEDULABLE)) else ""
        return PostFilterResult(Code.UNSCHEDULABLE, (_why_none(pod, search, attempt.snapshot),), nominated=cleared)


_NOTHING: Final = PostFilterResult(Code.UNSCHEDULABLE)


def _why_none(pod: PodInfo, search: PreemptionSearch, snapshot: Snapshot) -> str:
    """Return why preemption helps nowhere: a node without victims, or on which the pod fits, has a reason of its own."""
    names, counts = snapshot.table.nodes, Counter[str]()
    for row, status in search.verdicts.refused():
        if row in search.fitting:
            counts[f"expected at least one victim pod on node {quoted(names[row].name)}"] += 1
        elif NO_VICTIMS in status.reasons:
            counts[f"No victims found on node {names[row].name} for preemptor pod {pod.name}"] += 1
        else:
            counts.update(status.reasons)
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{len(search.verdicts)} nodes are available: {reasons}."
