"""After a failed attempt: back to the queue, nomination, preemption.

Source  kube-scheduler, schedule_one.go, handleSchedulingFailure
"""

from __future__ import annotations

from moorage.core.cycle.decision import Decision
from moorage.core.engine.engine_state import EngineState
from moorage.core.engine.facts import Phase
from moorage.core.engine.preemption_executor import PreemptionExecutor
from moorage.core.queue import QueuedPod
from moorage.core.queue.queueing_hints import ERRORS
from moorage.framework.points import PostFilterResult
from moorage.state.pod_info import PodInfo

__all__ = ["FailureHandler"]


class FailureHandler:
    """Puts pods back into the queue, and orders the nominations and preemptions of their decisions."""

    def __init__(self, state: EngineState, preemption: PreemptionExecutor) -> None:
        self._state = state
        self._preemption = preemption
        release = state.gates.emulated
        self._clears, self._waits = not release.keeps_nominations, not release.wakes_after_failed_binding
        self._after_error: tuple[str, ...] = (ERRORS,) if release.parks_errors else ()

    def failed(self, queued: QueuedPod, decision: Decision, *, expected: bool = False) -> None:
        """Requeue a pod, set or clear its nomination and start its preemption.

        ``expected``: the pod's node was published as its nominated node, so a cleared nomination must be written.
        """
        queue = self._state.queue
        rejected_by = decision.rejected_by or (() if decision.pending_on else self._after_error)
        place = queue.requeue(
            queued, self._state.now, rejected_by=rejected_by, pending_on=decision.pending_on, waits=self._waits
        )
        if place is None:
            return
        result = decision.post_filter
        if result is not None:
            self.displace(result)
        nominated = result.nominated if result is not None else "" if self._clears and _clears_nomination(decision) else None
        self.nominate(queued.pod, nominated, published=expected)
        if result is not None and (result.victims or result.effects):
            self._preemption.preempt(queued.pod, result)

    def requeue(self, queued: QueuedPod, decision: Decision, nominated: str | None) -> None:
        """Requeue a pod of a group with this nomination; its preemption is ordered for the group as a whole."""
        queued.tried_at = self._state.revision
        place = self._state.queue.requeue(
            queued, self._state.now, rejected_by=decision.rejected_by, pending_on=decision.pending_on
        )
        if place is not None:
            self.nominate(queued.pod, nominated)

    def nominate(self, pod: PodInfo, node: str | None, *, published: bool = False) -> None:
        """Nominate a waiting pod to a node and order the status update.

        ``node`` "" clears the nomination, None keeps what the API server has. ``published``: the API server may hold a
        nomination that the queue does not know.
        """
        queue = self._state.queue
        if queue.get(pod.uid) is None:
            return
        before = queue.nomination(pod.uid) or pod.status.nominated_node_name
        queue.nominate(pod, node)
        if node or (node is not None and (before or published)):
            self._state.outbox.order(Phase.NOMINATE, pod, node)

    def displace(self, result: PostFilterResult) -> None:
        """Clear the nominations that must make room. If all victims are being deleted already, keep them.

        Source  framework/preemption/executor.go, prepareCandidateAsync
        """
        if result.victims or not self._state.gates["SchedulerAsyncPreemption"]:
            for other in result.displaced:
                self.nominate(other, "")


def _clears_nomination(decision: Decision) -> bool:
    return decision.error is not None or decision.verdicts is None or decision.refused_after is not None
