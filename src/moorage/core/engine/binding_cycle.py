"""The binding cycle: from a chosen node to a bound pod, and back to the queue when a step fails.

Assume, Reserve and Permit run within the attempt. PreBind and Bind are ordered as work; each answer starts the next step.

Source  kube-scheduler, schedule_one.go, bindingCycle and handleBindingCycleError
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from moorage.api.durations import format_duration
from moorage.core.binding.binding import Binding
from moorage.core.binding.binding_plugins import (
    bind_effects,
    permit,
    post_bind,
    pre_bind_effects,
    reserve,
    unreserve,
)
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision
from moorage.core.engine.engine_state import EngineState
from moorage.core.engine.facts import NO_LONGER_WANTED, Done, Phase
from moorage.core.engine.failure_handler import FailureHandler
from moorage.core.engine.outbox import Decided, Revoked
from moorage.core.extenders.wire import EXTENDER
from moorage.core.queue import ASSIGNED_POD_DELETE, QueuedPod
from moorage.errors import AttemptError
from moorage.framework.effects import Effect
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Code, Status


class BindingCycle:
    """Runs the binding cycles of all pods."""

    def __init__(self, state: EngineState, cycle: Cycle, failure_handler: FailureHandler) -> None:
        self._state = state
        self._cycle = cycle
        self._failure_handler = failure_handler
        self._wakes = state.gates.emulated.wakes_after_failed_binding
        self._bindings = state.bindings
        self._outbox = state.outbox

    # -- within the attempt ---------------------------------------------------------------------------------------------

    def begin(self, queued: QueuedPod, profile: Profile, decision: Decision, *, publish: bool = True) -> Decision:
        """Assume the pod, run Reserve and Permit, and start PreBind if nothing waits. Returns and reports the decision.

        The decision fails if Reserve or Permit rejects the pod. ``publish``: write nominatedNodeName if Permit holds the pod.
        """
        node = decision.node
        assert node is not None
        state = self._state
        binding = Binding.begin(queued, profile, decision, node, state.note_answer)
        state.placer.assume_popped(binding)
        status = reserve(binding) or permit(binding, state.now)
        if status is not None:
            failed = replace(decision, node=None, refused_after=status)
            self._outbox.put(Decided(failed))
            self._undo(binding, failed)
            return failed
        self._outbox.put(Decided(decision))
        if not binding.waits:
            self._pre_bind(binding)
            return decision
        self._bindings.hold(binding)
        if publish:
            self.publish(binding)
        return decision

    def settle_waits(self) -> None:
        """Continue pods that Permit allowed; fail pods that it rejected or whose deadline passed."""
        if not self._bindings.held:
            return
        for binding in self._bindings.due(self._state.now):
            if binding.verdict is not None:
                self._fail(binding, binding.verdict)
            elif not binding.waits:
                self._pre_bind(binding)
            else:
                late = min(binding.waits, key=lambda plugin: (binding.waits[plugin], plugin))
                waited = format_duration(round(binding.patience[late] * 1e9))
                text = f"rejected due to timeout after waiting {waited} at plugin {late}"
                self._fail(binding, Status(Code.UNSCHEDULABLE, late, (text,)))

    def reject_waits(self) -> None:
        """Reject every pod that Permit holds, because no plugin can allow it any more."""
        for binding in list(self._bindings.held.values()):
            if binding.waits:
                binding.reject(binding.pending[0], f"still waiting at plugin {binding.pending[0]} when the run ended")
        self.settle_waits()

    def publish(self, binding: Binding) -> None:
        """Order nominatedNodeName to be written for a pod whose binding takes time, for a cluster autoscaler to see.

        Source  schedule_one.go, bindingCycle
        """
        if self._state.gates["NominatedNodeNameForExpectation"] and not binding.expected:
            binding.expected = True
            if binding.pod.status.nominated_node_name != binding.node:
                self._outbox.order(Phase.EXPECT, binding.pod, binding.node)

    # -- answers to work -------------------------------------------------------------------------------------------------

    def done(self, fact: Done) -> None:
        """Take the answer to a piece of work and run the step that follows. Answers to dropped bindings are ignored."""
        phase, uid = self._bindings.by_ticket.pop(fact.ticket, (None, ""))
        binding = self._bindings.by_uid.get(uid)
        if phase is None or binding is None or binding.ticket != fact.ticket:
            return
        if phase is Phase.BIND and (fact.error is None or binding.bound_to == binding.node):
            self._bound(binding)
        elif phase is Phase.UNRESERVE:
            self._unreserved(binding, fact.error)
        elif phase is Phase.PRE_BIND and fact.error is None and binding.wanted:
            self._bind(binding)
        elif phase is Phase.BIND and binding.may_do_without_extender and binding.wanted:
            self._outbox.fault(AttemptError(EXTENDER, fact.error or ""))
            binding.may_do_without_extender, binding.extender_failed = False, True
            self._bind(binding)
        else:
            self._fail(binding, _failure_of(binding, fact))

    def accepted(self, tickets: Iterable[int]) -> None:
        """Take the successful answers to binds."""
        by_ticket, by_uid = self._bindings.by_ticket, self._bindings.by_uid
        for ticket in tickets:
            _, uid = by_ticket.pop(ticket, (None, ""))
            binding = by_uid.get(uid)
            if binding is not None and binding.ticket == ticket:
                self._bound(binding)

    def _pre_bind(self, binding: Binding) -> None:
        self._state.queue.done(binding.pod.uid)
        self._bindings.begin_work(binding)
        effects = pre_bind_effects(binding)
        if isinstance(effects, Status):
            self._fail(binding, effects)
        elif effects:
            self.publish(binding)
            self._order(Phase.PRE_BIND, binding, effects)
        else:
            self._bind(binding)

    def _bind(self, binding: Binding) -> None:
        effects = bind_effects(binding, self._cycle.extenders)
        if isinstance(effects, Status):
            self._fail(binding, effects)
        else:
            self._order(Phase.BIND, binding, effects)

    def _bound(self, binding: Binding) -> None:
        self._bindings.drop(binding)
        post_bind(binding, self._outbox.fault)
        if binding.returned and binding.latest is not None and self._state.cluster.node_of(binding.pod.uid) is None:
            self._state.queue.add(binding.latest, self._state.now)

    def _order(self, phase: Phase, binding: Binding, effects: tuple[Effect, ...]) -> None:
        binding.ticket = self._outbox.order(phase, binding.pod, binding.node, effects)
        self._bindings.by_ticket[binding.ticket] = (phase, binding.pod.uid)

    # -- failure ---------------------------------------------------------------------------------------------------------

    def withdraw(self, binding: Binding) -> None:
        """Release the node of a pod that was deleted. Work under way ends by itself and is answered later."""
        binding.withdrawn = True
        self._state.release(binding)
        if binding.pod.uid in self._bindings.held:
            self.end_held(binding)

    def end_held(self, binding: Binding) -> None:
        """End a binding without work under way, because its pod needs no node from us any more."""
        self._bindings.drop(binding)
        self._state.queue.done(binding.pod.uid)
        effects = unreserve(binding, self._outbox.fault)
        if effects:
            self._outbox.order(Phase.UNRESERVE, binding.pod, binding.node, effects)

    def _fail(self, binding: Binding, status: Status) -> None:
        """Revoke a decision that was reported before."""
        self._bindings.drop(binding)
        failed = replace(binding.decision, node=None, refused_after=status)
        self._outbox.put(Revoked(failed))
        self._undo(binding, failed, wakes=status if self._wakes else None)

    def _undo(self, binding: Binding, failed: Decision, *, wakes: Status | None = None) -> None:
        """Run Unreserve, forget the assumed pod, and requeue the pod. If the binding cycle failed with the status ``wakes``,
        wake pods that may use its room; nothing happened meanwhile if Reserve or Permit failed within the attempt.

        If Unreserve returned effects, the pod is requeued when they are done.
        """
        state = self._state
        effects = unreserve(binding, self._outbox.fault)
        state.placer.undo(binding.pod.uid)
        if effects:
            binding.failed = failed
            self._bindings.by_uid[binding.pod.uid] = binding
            self._order(Phase.UNRESERVE, binding, effects)
        if wakes is None:
            self._requeue(binding, failed)
            return
        pod = binding.pod.on(binding.node)
        if wakes.code.is_rejection:
            self._requeue(binding, failed)
            state.queue.event(ASSIGNED_POD_DELETE, pod, None, state.now, lambda other: other.uid != pod.uid)
        else:
            state.queue.event(ASSIGNED_POD_DELETE, pod, None, state.now)
            self._requeue(binding, failed)

    def _unreserved(self, binding: Binding, error: str | None) -> None:
        """Requeue a pod after Unreserve's effects; ``error`` is reported. If the next attempt fails, Unreserve runs again."""
        self._bindings.drop(binding)
        if error is not None:
            self._outbox.fault(AttemptError("", f"undoing the reservation of {binding.pod.key}: {error}"))
        if binding.failed is not None:
            self._requeue(binding, binding.failed)

    def _requeue(self, binding: Binding, failed: Decision) -> None:
        """Requeue the newest version of a failed pod unless it was deleted or bound, or Unreserve is still under way."""
        uid = binding.pod.uid
        if uid in self._bindings.by_uid:
            return
        if (binding.withdrawn and not binding.returned) or binding.bound_to:
            self._state.queue.done(uid)
            return
        binding.queued.pod = binding.latest or binding.queued.pod
        self._failure_handler.failed(binding.queued, failed, expected=binding.expected)


def _failure_of(binding: Binding, fact: Done) -> Status:
    """Return why work failed, prefixed with the plugin that requested it.

    For a pod that was preempted meanwhile, the message names the plugin whose effect was cancelled, if there was one.
    Source  framework/runtime/framework.go, RunPreBindPlugins; schedule_one.go, bindingCycle
    """
    if fact.error is None:
        return binding.verdict or Status(Code.ERROR, "", (NO_LONGER_WANTED,))
    broken_off = binding.verdict is not None and fact.error == NO_LONGER_WANTED
    text = binding.verdict.message if binding.verdict is not None and broken_off else fact.error
    prefix = binding.authors[fact.effect] if 0 <= fact.effect < len(binding.authors) else ""
    return Status(Code.ERROR, "", (text if text.startswith(prefix) else prefix + text,))
