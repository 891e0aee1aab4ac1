"""The plugins of the binding cycle, run for one binding: Reserve, Permit, PreBind, Bind, PostBind and Unreserve.

Source  kube-scheduler, framework/runtime/framework.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from moorage.core.binding.binding import Binding
from moorage.core.extenders.consultation import HTTPExtender, binder_of
from moorage.errors import RAISED, AttemptError, PluginError
from moorage.framework.effects import BindPod, BindThrough, Effect
from moorage.framework.plugin_runner import ask, failure_text
from moorage.framework.profile import Step
from moorage.framework.verdicts import Code, Hold, Skip, Status, Wait

MAX_PERMIT_WAIT_S = 15 * 60.0


def reserve(binding: Binding) -> Status | None:
    """Run Reserve in order. Returns None if all plugins accepted; otherwise the caller must run ``unreserve``."""
    for step in binding.steps("reserve"):
        try:
            hold = _call(step, "reserve", binding)
            if isinstance(hold, Hold):
                return _rejection(_prefix("Reserve", step), step, hold, hold.code)
            if hold is not None:
                raise PluginError(step.name, f"returned {hold!r} in reserve; return None or Hold")
        except PluginError as error:
            return _failure(error, _prefix("Reserve", step))
    return None


def unreserve(binding: Binding, on_fault: Callable[[PluginError], None]) -> tuple[Effect, ...]:
    """Run Unreserve of every Reserve plugin, last first, whether or not its Reserve ran. Returns the effects to carry out.

    A plugin that raises is reported to ``on_fault``; the others still run.
    """
    effects: list[Effect] = []
    for step in reversed(binding.steps("reserve")):
        if step.unreserve is None:  # the plugin reserves nothing
            continue
        try:
            answer = _call(step.unreserve, "unreserve", binding)
            effects.extend(_effects(step, "unreserve", answer))
        except PluginError as error:
            on_fault(error)
    return tuple(effects)


def permit(binding: Binding, now: float) -> Status | None:
    """Run Permit in order and write the waits to the binding. The first rejection ends it."""
    for step in binding.steps("permit"):
        try:
            answer = _call(step, "permit", binding)
            if isinstance(answer, Hold):
                return _rejection(_prefix("Permit", step), step, answer, answer.code)
            if isinstance(answer, Wait) and answer.timeout_s == answer.timeout_s:
                patience = binding.patience[step.name] = min(answer.timeout_s, MAX_PERMIT_WAIT_S)
                binding.waits[step.name] = now + patience
                binding.waits_for = answer.reasons
            elif answer is not None:
                raise PluginError(step.name, f"returned {answer!r} in permit; return None, Hold or Wait(seconds)")
        except PluginError as error:
            return _failure(error, _prefix("Permit", step))
    return None


def pre_bind_effects(binding: Binding) -> tuple[Effect, ...] | Status:
    """Collect the effects of PreBind plugins, or return the failure of the first that fails."""
    effects: list[Effect] = []
    authors: list[str] = []
    for step in binding.steps("preBind"):
        prefix = _prefix("PreBind", step)
        try:
            answer = _call(step, "preBind", binding)
            if isinstance(answer, Hold):
                return _rejection(prefix, step, answer)
            wanted = _effects(step, "preBind", answer)
        except PluginError as error:
            return _failure(error, prefix)
        effects.extend(wanted)
        authors.extend([prefix] * len(wanted))
    binding.authors = tuple(authors)
    return tuple(effects)


def bind_effects(binding: Binding, extenders: Sequence[HTTPExtender] = ()) -> tuple[Effect, ...] | Status:
    """Return the effects that bind the pod, or a failure.

    An interested extender with a bind verb comes first, then the first Bind plugin that does not skip.
    """
    binder = None if binding.extender_failed else binder_of(extenders, binding.pod)
    if binder is not None:
        binding.may_do_without_extender, binding.authors = binder.ignorable and binder.binds_without, ()
        return (BindThrough(binding.pod, binding.node, binder.to_bind(binding.pod, binding.node)),)
    for step in binding.steps("bind"):
        prefix = _prefix("Bind", step)
        try:
            answer = _call(step, "bind", binding)
            if isinstance(answer, Skip):
                continue
            if isinstance(answer, Hold):
                return _rejection(prefix, step, answer)
            effects = _effects(step, "bind", answer) or (BindPod(binding.pod, binding.node),)
            binding.authors = (prefix,) * len(effects)
            return effects
        except PluginError as error:
            return _failure(error, prefix)
    return Status(Code.ERROR, "", ("all bind plugins skipped the pod; enable DefaultBinder or another that takes it",))


def post_bind(binding: Binding, on_fault: Callable[[PluginError], None]) -> None:
    """Run PostBind of every plugin. A plugin that raises is reported to ``on_fault``; the others still run."""
    for step in binding.steps("postBind"):
        try:
            _call(step, "postBind", binding)
        except PluginError as error:
            on_fault(error)


def _effects(step: Step, point: str, answer: Iterable[Effect] | None) -> tuple[Effect, ...]:
    try:
        effects = tuple(answer or ())
    except PluginError:
        raise
    except RAISED as error:  # a generator runs here
        raise PluginError(step.name, f"failed in {point}: {failure_text(error)}") from error
    for effect in effects:
        if not isinstance(effect, Effect):
            raise PluginError(step.name, f"returned {effect!r} in {point}; yield effects, see moorage.framework.effects")
    return effects


def _call(step: Step, point: str, binding: Binding) -> Any:
    return ask(step, point, binding.states.get(step.name), binding.pod, binding.node)


def _prefix(point: str, step: Step) -> str:
    """Return the prefix that kube-scheduler gives to a plugin's error.

    Source  framework/runtime/framework.go
    """
    return f'running {point} plugin "{step.name}": '


def _rejection(prefix: str, step: Step, hold: Hold, code: Code | None = None) -> Status:
    """Return the status of a plugin's ``Hold``. ``code`` replaces ERROR at points where a plugin's own code counts."""
    if hold.code.is_rejection:
        return Status(code or Code.ERROR, step.name, hold.reasons)
    return Status(Code.ERROR, step.name, (prefix + ", ".join(hold.reasons),))


def _failure(error: PluginError, prefix: str) -> Status:
    return Status(Code.ERROR, error.plugin, (f"{prefix if isinstance(error, AttemptError) else ''}{error}",))
