"""After a failed attempt: back to the queue, nomination, preemption.

Source  kube-scheduler, schedule_one.go, handleSchedulingFailure
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from moorage.api.pod_groups import PodGroup
from moorage.core.cycle.decision import Decision
from moorage.core.engine.engine_state import EngineState
from moorage.core.engine.facts import Phase
from moorage.core.engine.outbox import Cancel, Preempted
from moorage.core.queue.pre_enqueue import ERRORS
from moorage.core.queue.queued_pod import QueuedPod
from moorage.framework.effects import Evict
from moorage.framework.placements import GroupInfo
from moorage.framework.post_filter import PostFilterResult
from moorage.state.pod_info import PodInfo

# Preemption after the decision: which victims are evicted, and when the preemptors are tried again.
#
# A victim that is not being bound yet releases its node at once and is retried; its PreBind work is cancelled. Every other
# victim is evicted through the API. Until the evictions are answered, DefaultPreemption keeps the preemptor out of the active
# queue.
#
# Source  kube-scheduler, framework/preemption/executor.go


class _Eviction(Struct, frozen=True):
    """Evictions under way. ``uid`` is the UID of the preemptor or its group; ``pods`` are the pods that wait for them."""

    uid: str
    pods: tuple[PodInfo, ...]
    victims: tuple[PodInfo, ...]


class PreemptionExecutor:
    """Orders the evictions that preemption decided on, and reactivates the preemptors."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        #: The evictions under way, by ticket.
        self.evictions: dict[int, _Eviction] = {}
        #: The number of evictions that each preemptor or group waits for, by UID; looked up whenever a pod is queued.
        self._awaited: Counter[str] = Counter()

    def evicting_for(self, uid: str) -> bool:
        """Return True while evictions for this pod or pod group are under way."""
        return uid in self._awaited

    def preempt(self, pod: PodInfo, result: PostFilterResult) -> None:
        """Order the effects and the evictions that PostFilter returned for a pod."""
        text = f"{pod.spec.scheduler_name}: preempting to accommodate a higher priority pod"
        requested = (Evict(victim, pod, text) for victim in result.victims)
        effects = (*result.effects, *self._of_bound(requested))
        if effects:
            ticket = self._state.outbox.order(Phase.PREEMPT, pod, result.nominated or "", effects)
            self._begin(ticket, _Eviction(pod.uid, (pod,), result.victims))

    def preempt_for_group(self, info: GroupInfo, victims: tuple[PodInfo, ...]) -> None:
        """Order evictions for a pod group. Victims that are being deleted already are left alone."""
        group = self._state.cluster.snapshot.objects(PodGroup)[info.key] if info.tree is None else info.tree.group
        first = info.pods[0]
        text = f"{first.spec.scheduler_name}: preempting to accommodate a higher priority podgroup"
        requested = (Evict(victim, first, text, group) for victim in victims if not victim.terminating)
        evictions = tuple(self._of_bound(requested))
        if evictions:
            ticket = self._state.outbox.order(Phase.PREEMPT, first, "", evictions)
            self._begin(ticket, _Eviction(group.metadata.uid, info.pods, victims))

    def save(self) -> Callable[[], None]:
        """Return a function that restores the evictions under way."""
        evictions, awaited = self.evictions.copy(), self._awaited.copy()

        def restore() -> None:
            self.evictions, self._awaited = evictions, awaited

        return restore

    def _begin(self, ticket: int, eviction: _Eviction) -> None:
        self.evictions[ticket] = eviction
        self._awaited[eviction.uid] += 1

    def _end(self, ticket: int) -> _Eviction | None:
        eviction = self.evictions.pop(ticket, None)
        if eviction is not None:
            self._awaited[eviction.uid] -= 1
            if not self._awaited[eviction.uid]:
                del self._awaited[eviction.uid]
        return eviction

    def evicted(self, ticket: int, error: str | None) -> bool:
        """Record the end of evictions and reactivate the preemptor where needed. Returns False for any other ticket.

        A preemptor is reactivated if an eviction failed, or if its victims were deleted before the eviction was answered. Pods
        of groups are gated from the start; the deletion of their victims wakes most of them, and with one all that are queued
        with it. No event would wake those that only DefaultPreemption rejected, so they are reactivated as well.
        """
        eviction = self._end(ticket)
        if eviction is None:
            return False
        queue = self._state.queue
        waiting = [queued for pod in eviction.pods if (queued := queue.get(pod.uid)) is not None]
        if error is None:
            leaving = any(self._state.cluster.node_of(victim.uid) is not None for victim in eviction.victims)
            woken = {queued.entry or queued.uid for queued in waiting if leaving and self._will_be_woken(queued)}
            waiting = [queued for queued in waiting if queued.gated and (queued.entry or queued.uid) not in woken]
        if waiting:
            queue.activate([queued.pod for queued in waiting], self._state.now)
        return True

    def _of_bound(self, evictions: Iterable[Evict]) -> list[Evict]:
        """Return the evictions of victims that are bound or being bound; make the other victims release their nodes."""
        bindings = self._state.bindings
        others: list[Evict] = []
        for eviction in evictions:
            held = bindings.by_uid.get(eviction.victim.uid)
            phase = bindings.phase_of(held) if held is not None else Phase.BIND
            if held is None or phase is Phase.BIND:
                others.append(eviction)
                continue
            text = "preempted" if phase is None else "preempted by DefaultPreemption"
            held.preempt("DefaultPreemption", text)
            bindings.note(held)
            self._state.outbox.put(Preempted(replace(eviction, victim=held.pod.on(held.node))))
            if phase is Phase.PRE_BIND and held.ticket is not None:
                self._state.release(held)
                self._state.outbox.put(Cancel(held.ticket))
        return others

    def _will_be_woken(self, queued: QueuedPod) -> bool:
        """Return True for a pod of a group that is retried when its victims are gone."""
        return self._state.is_in_group(queued.pod) and queued.rejecters != {queued.gated_by}


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
        nominated = None if result is None else result.nominated
        early = decision.error is not None or decision.verdicts is None or decision.refused_after is not None
        if result is None and self._clears and early:
            nominated = ""
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
