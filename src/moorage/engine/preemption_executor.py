"""Preemption on its way: who is being sent away, for whom, and what that means for those who wait for the room.

A victim whose binding has not begun just gives up its node, and is tried again later: what its PreBind is at is broken off.
Of the others it is asked that they be evicted; while that is under way, the pod that asked for it is held back by
DefaultPreemption.

Source  kube-scheduler, framework/preemption/executor.go
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from moorage.api.pod_groups import PodGroup
from moorage.engine.event_handlers import Believer
from moorage.engine.binding_cycle import Binding
from moorage.engine.facts import Phase
from moorage.framework.effects import Effect, Evict
from moorage.framework.features import FeatureGates
from moorage.framework.placements import GroupInfo
from moorage.framework.points import PostFilterResult
from moorage.queue import QueuedPod
from moorage.state.pod_info import PodInfo

__all__ = ["Evicting"]


class _Eviction(Struct, frozen=True):
    """``uid``: of the pod or the group that it is for; ``pods``: those that wait for it."""

    uid: str
    pods: tuple[PodInfo, ...]
    victims: tuple[PodInfo, ...]


class Evicting(Believer):
    """The part of the scheduler that sends pods away."""

    def __init__(self, gates: FeatureGates) -> None:
        super().__init__(gates)
        #: What is under way for whom, by ticket.
        self._by_ticket: dict[int, tuple[Phase, str]] = {}
        self._evicting: dict[int, _Eviction] = {}
        #: Pods that gave up their nodes for others before they were bound, which no work is ordered for; whoever drives the
        #: engine may empty it.
        self.preempted: list[Evict] = []
        #: Tickets of work that need not be waited for, as its pods have given up their nodes: whoever drives the engine empties
        #: it, breaks that work off as soon as it may, and answers it.
        self.broken_off: list[int] = []

    @abstractmethod
    def _order(self, phase: Phase, pod: PodInfo, node: str, effects: tuple[Effect, ...] = ()) -> int: ...

    def evicting_for(self, uid: str) -> bool:
        """True while evictions that this pod or pod group asked for are under way."""
        return any(eviction.uid == uid for eviction in self._evicting.values())

    def _preempt(self, pod: PodInfo, outcome: PostFilterResult) -> None:
        """Do what PostFilter wants done for a pod."""
        text = f"{pod.spec.scheduler_name}: preempting to accommodate a higher priority pod"
        wanted = (Evict(victim, pod, text) for victim in outcome.victims)
        effects = (*outcome.effects, *self._of_bound(wanted))
        if effects:
            ticket = self._order(Phase.PREEMPT, pod, outcome.nominated or "", effects)
            self._evicting[ticket] = _Eviction(pod.uid, (pod,), outcome.victims)

    def _preempt_for_group(self, info: GroupInfo, victims: tuple[PodInfo, ...]) -> None:
        """Send pods away for a group; those that are going already need not be told."""
        group = self.cluster.snapshot.objects(PodGroup)[info.key]
        first = info.pods[0]
        text = f"{first.spec.scheduler_name}: preempting to accommodate a higher priority podgroup"
        wanted = (Evict(victim, first, text, group) for victim in victims if not victim.terminating)
        evictions = tuple(self._of_bound(wanted))
        if evictions:
            ticket = self._order(Phase.PREEMPT, first, "", evictions)
            self._evicting[ticket] = _Eviction(group.metadata.uid, info.pods, victims)

    def _of_bound(self, evictions: Iterable[Evict]) -> list[Evict]:
        """Let victims that are not being bound yet give up their nodes. Returns the evictions of the others."""
        others: list[Evict] = []
        for eviction in evictions:
            held = self._bindings.get(eviction.victim.uid)
            phase = self._phase_of(held) if held is not None else Phase.BIND
            if held is None or phase is Phase.BIND:
                others.append(eviction)
                continue
            text = "preempted" if phase is None else "preempted by DefaultPreemption"
            held.preempt("DefaultPreemption", text)
            self.preempted.append(replace(eviction, victim=held.pod.on(held.node)))
            if phase is Phase.PRE_BIND and held.ticket is not None:
                self._free(held)
                self.broken_off.append(held.ticket)
        return others

    def _phase_of(self, binding: Binding) -> Phase | None:
        """Return what is under way for a pod; None while Permit holds it."""
        return None if binding.ticket is None else self._by_ticket[binding.ticket][0]

    def _evicted(self, eviction: _Eviction, error: str | None) -> None:
        """Let those who asked for evictions be tried again, if they failed or it was heard of their end too early.

        Pods of groups are held back from the start, and most wait for their victims to be gone. Those that nobody but who holds
        them back has turned down would wait for ever, as no plugin has an event for them.
        """
        waiting = [queued for pod in eviction.pods if (queued := self.queue.get(pod.uid)) is not None]
        if error is None:
            leaving = any(self.cluster.node_of(victim.uid) is not None for victim in eviction.victims)
            waiting = [queued for queued in waiting if queued.gated and not (leaving and self._will_be_woken(queued))]
        if waiting:
            self.queue.activate([queued.pod for queued in waiting], self.now)

    def _will_be_woken(self, queued: QueuedPod) -> bool:
        """True for a pod of a group that is tried again when its victims are gone."""
        return self._is_of_a_group(queued.pod) and queued.rejecters != {queued.gated_by}

    def _is_of_a_group(self, pod: PodInfo) -> bool:
        return self.cluster.groups is not None and pod.spec.scheduling_group is not None
