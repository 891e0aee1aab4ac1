"""Attempts: one pod, or one pod group, that is being scheduled.

The scheduler runs, aborts and cancels both kinds of attempt in the same way. They differ in how they decide, and in how their
decisions are carried out.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.cycle_input import CycleInput
from moorage.core.cycle.decision import Decision
from moorage.core.cycle.search import SearchScope
from moorage.core.engine.binding_cycle import BindingCycle
from moorage.core.engine.engine_state import EngineState
from moorage.core.engine.failure_handler import FailureHandler
from moorage.core.engine.outbox import Decided
from moorage.core.extenders.consultation import Asking
from moorage.core.queue import QueuedPod, QueuePlace
from moorage.errors import AttemptError, PluginError
from moorage.framework.profile import Profile


class SchedulingAttempt(Protocol):
    """A pod or a pod group that left the queue. ``key`` is ``namespace/name``."""

    @property
    def key(self) -> str: ...

    def run(self) -> Asking[None]:
        """Decide and settle, yielding the questions for extenders."""

    def run_alone(self) -> None:
        """Decide and settle where no extender is configured."""

    def abort(self, fault: PluginError) -> None:
        """Release and requeue every pod that is not settled, after an unexpected exception."""

    def cancel(self, why: str) -> None:
        """Requeue every pod without reporting a decision."""


class Stages(NamedTuple):
    """What an attempt goes through: a decision; then binding, or what follows a failure."""

    cycle: Cycle
    binding_cycle: BindingCycle
    failure_handler: FailureHandler


class PodAttempt:
    """An attempt to schedule one pod."""

    __slots__ = ("_binding_cycle", "_cycle", "_failure_handler", "_queued", "_scope", "_state")

    def __init__(self, queued: QueuedPod, state: EngineState, stages: Stages, scope: SearchScope) -> None:
        self._queued = queued
        self._scope = scope
        self._state = state
        self._cycle, self._binding_cycle, self._failure_handler = stages

    @property
    def key(self) -> str:
        return self._queued.pod.key

    @property
    def _profile(self) -> Profile:
        return self._state.profiles[self._queued.pod.spec.scheduler_name]

    def run(self) -> Asking[None]:
        state = self._state
        decision = yield from self._cycle.deciding(
            CycleInput(self._profile, self._queued.pod, state.cluster.snapshot, state.queue.nominated, self._scope)
        )
        for error in decision.done_without:
            state.outbox.fault(error)
        self._settle(decision)

    def run_alone(self) -> None:
        state, pod = self._state, self._queued.pod
        self._settle(self._cycle.decide(self._profile, pod, state.cluster.snapshot, state.queue.nominated, self._scope))

    def _settle(self, decision: Decision) -> None:
        if decision.node is None:
            self._state.outbox.put(Decided(decision))
            self._failure_handler.failed(self._queued, decision)
        else:
            self._binding_cycle.begin(self._queued, self._profile, decision)

    def abort(self, fault: PluginError) -> None:
        let_go(self._queued, fault, self._state, self._failure_handler)

    def cancel(self, why: str) -> None:
        self._failure_handler.failed(self._queued, Decision(self._queued.pod, error=AttemptError("", why)))


def let_go(queued: QueuedPod, fault: PluginError, state: EngineState, failure_handler: FailureHandler) -> None:
    """Forget a pod that an aborted attempt assumed, report ``fault`` in place of the pod's decision, and requeue the pod."""
    uid = queued.pod.uid
    binding = state.bindings.by_uid.get(uid)
    if binding is not None:
        state.bindings.drop(binding)
    state.placer.undo(uid)
    decision = Decision(queued.pod, error=fault)
    state.outbox.retract(lambda output: isinstance(output, Decided) and output.decision.pod.uid == uid)
    state.outbox.put(Decided(decision))
    if queued.place is QueuePlace.IN_FLIGHT or state.queue.get(uid) is None:
        failure_handler.failed(queued, decision)
