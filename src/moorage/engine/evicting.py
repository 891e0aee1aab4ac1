"""Preemption on its way: who is being sent away, for whom, and what that means for those who wait for the room.

A victim whose binding has not begun just gives up its node, and is tried again later. Of the others it is asked that they be
evicted; while that is under way, the pod that asked for it is held back by DefaultPreemption.

Source  kube-scheduler, framework/preemption/executor.go
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from msgspec import Struct

from moorage.engine.believing import Believer
from moorage.engine.binding import Binding
from moorage.engine.facts import Phase
from moorage.framework.effects import Effect, Evict
from moorage.framework.features import FeatureGates
from moorage.framework.points import PostFilterResult
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
        #: Pods that gave up their nodes for others before they were bound, each with the other; whoever drives the engine may
        #: empty it.
        self.preempted: list[tuple[PodInfo, PodInfo]] = []

    @abstractmethod
    def _order(self, phase: Phase, pod: PodInfo, node: str, effects: tuple[Effect, ...] = ()) -> int: ...

    def evicting_for(self, uid: str) -> bool:
        """True while evictions that this pod or pod group asked for are under way."""
        return any(eviction.uid == uid for eviction in self._evicting.values())

    def _preempt(self, pod: PodInfo, outcome: PostFilterResult) -> None:
        """Do what PostFilter wants done for a pod."""
        text = f"{pod.spec.scheduler_name}: preempting to accommodate a higher priority pod"
        evictions = [Evict(victim, pod, text) for victim in self._not_yet_bound(outcome.victims, pod)]
        effects = (*outcome.effects, *evictions)
        if effects:
            ticket = self._order(Phase.PREEMPT, pod, outcome.nominated or "", effects)
            self._evicting[ticket] = _Eviction(pod.uid, (pod,), outcome.victims)

    def _not_yet_bound(self, victims: Iterable[PodInfo], pod: PodInfo) -> list[PodInfo]:
        """Let victims that are not being bound yet give up their nodes. Returns the others."""
        others: list[PodInfo] = []
        for victim in victims:
            held = self._bindings.get(victim.uid)
            phase = self._phase_of(held) if held is not None else Phase.BIND
            if held is None or phase is Phase.BIND:
                others.append(victim)
                continue
            text = "preempted" if phase is None else "preempted by DefaultPreemption"
            held.preempt("DefaultPreemption", text)
            self.preempted.append((held.pod.on(held.node), pod))
            if phase is Phase.PRE_BIND:
                self._free(held)
        return others

    def _phase_of(self, binding: Binding) -> Phase | None:
        """Return what is under way for a pod; None while Permit holds it."""
        return None if binding.ticket is None else self._by_ticket[binding.ticket][0]

    def _evicted(self, eviction: _Eviction, error: str | None) -> None:
        """Let those who asked for evictions be tried again, if they failed or it was heard of their end too early.

        Pods of groups are held back from the start, and most wait for their victims to be gone.
        """
        waiting = [queued for pod in eviction.pods if (queued := self.queue.get(pod.uid)) is not None]
        if error is None:
            leaving = any(self.cluster.node_of(victim.uid) is not None for victim in eviction.victims)
            waiting = [queued for queued in waiting if queued.gated and not (leaving and self._is_of_a_group(queued.pod))]
        if waiting:
            self.queue.activate([queued.pod for queued in waiting], self.now)

    def _is_of_a_group(self, pod: PodInfo) -> bool:
        return self.cluster.groups is not None and pod.spec.scheduling_group is not None
