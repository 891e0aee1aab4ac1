"""From a chosen node to a bound pod: Reserve, Permit, PreBind, Bind, PostBind, and the way back when one of them fails.

A ``Binding`` is one assumed pod on its way. It holds which plugins still make it wait, until when, and what is under way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from moorage.cycle.decision import Decision
from moorage.errors import PluginError
from moorage.framework.effects import BindPod, Effect
from moorage.framework.profile import Profile, Step
from moorage.framework.running import ask
from moorage.framework.verdicts import Code, Hold, Skip, Status, Wait
from moorage.queue.queued import QueuedPod
from moorage.state.pod_info import PodInfo

__all__ = ["MAX_PERMIT_WAIT_S", "Binding", "bind_effects", "permit", "pre_bind_effects", "reserve", "unreserve"]

MAX_PERMIT_WAIT_S = 15 * 60.0


@dataclass(slots=True)
class Binding:
    """An assumed pod between its decision and its binding.

    ``waits``: Permit plugin → deadline in engine seconds; ``patience``: how many seconds that was from the start.
    """

    queued: QueuedPod
    profile: Profile
    decision: Decision
    node: str
    waits: dict[str, float] = field(default_factory=dict)
    patience: dict[str, float] = field(default_factory=dict)
    verdict: Status | None = None
    ticket: int | None = None

    @property
    def pod(self) -> PodInfo:
        return self.queued.pod

    @property
    def pending(self) -> tuple[str, ...]:
        """Permit plugins that have not allowed the pod yet."""
        return tuple(self.waits)

    @property
    def deadline(self) -> float:
        return min(self.waits.values())

    def allow(self, plugin: str) -> None:
        """Let one plugin's wait end well. The pod goes on when none is left, at the scheduler's next step."""
        self.waits.pop(plugin, None)

    def reject(self, plugin: str, message: str) -> None:
        """End the wait: the pod gives up its node at the scheduler's next step."""
        self.verdict = self.verdict or Status(Code.UNSCHEDULABLE, plugin, (message,))

    def state_of(self, step: Step) -> Any:
        found = self.decision.found
        return None if found is None else found.states.get(step.name)


def reserve(binding: Binding) -> Status | None:
    """Run Reserve in order; None if all agreed. What failed is not asked to go on; Unreserve is the caller's duty."""
    for step in binding.profile.at("reserve"):
        hold = _asked(step, "reserve", binding)
        if hold is not None:
            return hold
    return None


def unreserve(binding: Binding) -> None:
    """Run Unreserve of every Reserve plugin, last first, whether its Reserve ran or not."""
    failed: PluginError | None = None
    for step in reversed(binding.profile.at("reserve")):
        back = Step(step.name, step.plugin, step.plugin.unreserve)
        try:
            ask(back, "unreserve", binding.state_of(step), binding.pod, binding.node)
        except PluginError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def permit(binding: Binding, now: float) -> Status | None:
    """Run Permit; waits are written to the binding. A refusal ends it at once."""
    for step in binding.profile.at("permit"):
        try:
            answer = ask(step, "permit", binding.state_of(step), binding.pod, binding.node)
        except PluginError as error:
            return _error(error)
        if isinstance(answer, Hold):
            return Status(answer.code, step.name, answer.reasons)
        if isinstance(answer, Wait):
            patience = binding.patience[step.name] = min(answer.timeout_s, MAX_PERMIT_WAIT_S)
            binding.waits[step.name] = now + patience
    return None


def pre_bind_effects(binding: Binding) -> tuple[Effect, ...] | Status:
    """Collect what PreBind plugins want done first."""
    effects: list[Effect] = []
    for step in binding.profile.at("preBind"):
        try:
            answer = ask(step, "preBind", binding.state_of(step), binding.pod, binding.node)
            if isinstance(answer, Hold):
                return Status(Code.ERROR, step.name, answer.reasons)
            effects.extend(_effects(answer))
        except PluginError as error:
            return _error(error)
    return tuple(effects)


def bind_effects(binding: Binding) -> tuple[Effect, ...] | Status:
    """Ask Bind plugins in turn until one takes the pod."""
    for step in binding.profile.at("bind"):
        try:
            answer = ask(step, "bind", binding.state_of(step), binding.pod, binding.node)
            if isinstance(answer, Skip):
                continue
            if isinstance(answer, Hold):
                return Status(Code.ERROR, step.name, answer.reasons)
            return _effects(answer) or (BindPod(binding.pod, binding.node),)
        except PluginError as error:
            return _error(error)
    return Status(Code.ERROR, "", ("all bind plugins skipped the pod; enable DefaultBinder or another that takes it",))


def _effects(answer: Iterable[Effect] | None) -> tuple[Effect, ...]:
    return tuple(answer or ())


def _asked(step: Step, point: str, binding: Binding) -> Status | None:
    try:
        hold = ask(step, point, binding.state_of(step), binding.pod, binding.node)
    except PluginError as error:
        return _error(error)
    return Status(hold.code, step.name, hold.reasons) if isinstance(hold, Hold) else None


def _error(error: PluginError) -> Status:
    return Status(Code.ERROR, error.plugin, (str(error),))
