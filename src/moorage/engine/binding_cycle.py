"""From a chosen node to a bound pod: Reserve, Permit, PreBind, Bind, PostBind, and the way back when one of them fails.

A ``Binding`` is one assumed pod on its way. It holds which plugins still make it wait, until when, what is under way, and what
others did to the pod meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from moorage.cycle.decision import Decision
from moorage.cycle.extenders import Extender, binder_of
from moorage.engine.facts import NO_LONGER_WANTED, Done
from moorage.errors import AttemptError, PluginError
from moorage.framework.effects import BindPod, BindThrough, Effect
from moorage.framework.profile import Profile, Step
from moorage.framework.running import ask
from moorage.framework.verdicts import Code, Hold, Skip, Status, Wait
from moorage.queue.queued import QueuedPod
from moorage.state.pod_info import PodInfo

__all__ = [
    "MAX_PERMIT_WAIT_S", "Binding", "bind_effects", "permit", "post_bind", "pre_bind_effects", "reserve", "unreserve",
    "what_went_wrong",
]  # fmt: skip

MAX_PERMIT_WAIT_S = 15 * 60.0


class Binding(Struct, eq=False):
    """An assumed pod between its decision and its binding.

    ``busy``      True if PreFilter left a state for a plugin that otherwise rests from Reserve on
    ``waits``     Permit plugin → deadline in engine seconds; ``patience``: how many seconds that was from the start;
                  ``waits_for``: what the last of them said it waits for
    ``verdict``   why it must give up its node; it does so when what is under way has ended
    ``ticket``    the work that is under way; None while Permit holds the pod
    ``latest``    the newest version of the pod, which has no node there
    ``withdrawn`` the pod was deleted, or another took its name; ``returned``: it is there again, on no node, as a server has it
                  that lost its last writes
    ``failed``    what came of it, once it is being undone
    ``bound_to``  the node that the API says the pod is on, by our doing or somebody else's
    ``expected``  others were told that it is going to be on the node
    ``authors``   what stands before an error of each effect that is under way: which plugin wanted it
    ``alert``     called when a plugin let the pod go or sent it back, which may be at any time
    ``may_do_without_extender``  the extender that was asked to bind it may fail; ``extender_failed``: it did
    """

    queued: QueuedPod
    profile: Profile
    decision: Decision
    node: str
    busy: bool = True
    alert: Callable[[], None] = lambda: None
    waits: dict[str, float] = field(default_factory=dict)
    patience: dict[str, float] = field(default_factory=dict)
    waits_for: tuple[str, ...] = ()
    verdict: Status | None = None
    ticket: int | None = None
    latest: PodInfo | None = None
    withdrawn: bool = False
    returned: bool = False
    bound_to: str = ""
    failed: Decision | None = None
    expected: bool = False
    authors: tuple[str, ...] = ()
    may_do_without_extender: bool = False
    extender_failed: bool = False

    @classmethod
    def begin(
        cls, queued: QueuedPod, profile: Profile, decision: Decision, node: str, alert: Callable[[], None] = lambda: None
    ) -> Binding:
        """Begin the way of a pod to a node, for which ``decision`` found what PreFilter left."""
        busy = decision.found is not None and not profile.resting.isdisjoint(decision.found.states)
        return cls(queued, profile, decision, node, busy, alert)

    @property
    def pod(self) -> PodInfo:
        """The pod as it was when its node was chosen."""
        return self.decision.pod

    @property
    def wanted(self) -> bool:
        """True while there is any use in going on."""
        return self.verdict is None and not self.withdrawn and not self.bound_to

    @property
    def pending(self) -> tuple[str, ...]:
        """Permit plugins that have not allowed the pod yet."""
        return tuple(self.waits)

    @property
    def deadline(self) -> float:
        return min(self.waits.values())

    def allow(self, plugin: str) -> None:
        """Let one plugin's wait end well. The pod goes on when none is left, at the scheduler's next step."""
        if self.waits.pop(plugin, None) is not None:
            self.alert()

    def reject(self, plugin: str, message: str) -> None:
        """End the wait: the pod gives up its node at the scheduler's next step."""
        if self.ticket is None:
            self.verdict = self.verdict or Status(Code.UNSCHEDULABLE, plugin, (message,))
            self.alert()

    def preempt(self, plugin: str, message: str) -> None:
        """Like ``reject``, but for no fault of the pod's: it is tried again after its backoff, whatever happens."""
        self.verdict = self.verdict or Status(Code.ERROR, plugin, (message,))

    @property
    def states(self) -> Mapping[str, Any]:
        """What PreFilter left of each plugin that it did not skip."""
        found = self.decision.found
        return {} if found is None else found.states

    def steps(self, point: str) -> tuple[Step, ...]:
        """The plugins of an extension point that have something to do for the pod, in order."""
        return self.profile.at(point) if self.busy else self.profile.restless_at(point)


def reserve(binding: Binding) -> Status | None:
    """Run Reserve in order; None if all agreed. What failed is not asked to go on; Unreserve is the caller's duty."""
    for step in binding.steps("reserve"):
        try:
            hold = _asked(step, "reserve", binding)
            if isinstance(hold, Hold):
                return _held(_author("Reserve", step), step, hold, hold.code)
            if hold is not None:
                raise PluginError(step.name, f"answered {hold!r} in reserve; answer None or Hold")
        except PluginError as error:
            return _error(error, _author("Reserve", step))
    return None


def unreserve(binding: Binding, on_fault: Callable[[PluginError], None]) -> tuple[Effect, ...]:
    """Run Unreserve of every Reserve plugin, last first, whether its Reserve ran or not; one that raises stops no other.

    Returns what they want done to the world.
    """
    effects: list[Effect] = []
    for step in reversed(binding.steps("reserve")):
        undo = getattr(step.plugin, "unreserve", None)
        if undo is None:  # it keeps nothing
            continue
        try:
            answer = _asked(Step(step.name, step.plugin, undo), "unreserve", binding)
            effects.extend(_effects(step, "unreserve", answer))
        except PluginError as error:
            on_fault(error)
    return tuple(effects)


def permit(binding: Binding, now: float) -> Status | None:
    """Run Permit; waits are written to the binding. A refusal ends it at once."""
    for step in binding.steps("permit"):
        try:
            answer = _asked(step, "permit", binding)
            if isinstance(answer, Hold):
                return _held(_author("Permit", step), step, answer, answer.code)
            if isinstance(answer, Wait) and answer.timeout_s == answer.timeout_s:
                patience = binding.patience[step.name] = min(answer.timeout_s, MAX_PERMIT_WAIT_S)
                binding.waits[step.name] = now + patience
                binding.waits_for = answer.reasons
            elif answer is not None:
                raise PluginError(step.name, f"answered {answer!r} in permit; answer None, Hold or Wait(seconds)")
        except PluginError as error:
            return _error(error, _author("Permit", step))
    return None


def pre_bind_effects(binding: Binding) -> tuple[Effect, ...] | Status:
    """Collect what PreBind plugins want done first."""
    effects: list[Effect] = []
    authors: list[str] = []
    for step in binding.steps("preBind"):
        author = _author("PreBind", step)
        try:
            answer = _asked(step, "preBind", binding)
            if isinstance(answer, Hold):
                return _held(author, step, answer)
            wanted = _effects(step, "preBind", answer)
        except PluginError as error:
            return _error(error, author)
        effects.extend(wanted)
        authors.extend([author] * len(wanted))
    binding.authors = tuple(authors)
    return tuple(effects)


def bind_effects(binding: Binding, extenders: Sequence[Extender] = ()) -> tuple[Effect, ...] | Status:
    """Let an extender bind the pod if one wants to, or ask Bind plugins in turn until one takes it."""
    binder = None if binding.extender_failed else binder_of(extenders, binding.pod)
    if binder is not None:
        binding.may_do_without_extender, binding.authors = binder.ignorable, ()
        return (BindThrough(binding.pod, binding.node, binder.to_bind(binding.pod, binding.node)),)
    for step in binding.steps("bind"):
        author = _author("Bind", step)
        try:
            answer = _asked(step, "bind", binding)
            if isinstance(answer, Skip):
                continue
            if isinstance(answer, Hold):
                return _held(author, step, answer)
            effects = _effects(step, "bind", answer) or (BindPod(binding.pod, binding.node),)
            binding.authors = (author,) * len(effects)
            return effects
        except PluginError as error:
            return _error(error, author)
    return Status(Code.ERROR, "", ("all bind plugins skipped the pod; enable DefaultBinder or another that takes it",))


def post_bind(binding: Binding, on_fault: Callable[[PluginError], None]) -> None:
    """Tell every PostBind plugin that the pod is bound; one that raises stops no other."""
    for step in binding.steps("postBind"):
        try:
            _asked(step, "postBind", binding)
        except PluginError as error:
            on_fault(error)


def what_went_wrong(binding: Binding, fact: Done) -> Status:
    """Return what became of work that failed or came too late, with the name of the plugin that wanted it done.

    Of a pod that was preempted meanwhile, it is the plugin that was broken off; or nobody, where none was left to be.
    Source  framework/runtime/framework.go, RunPreBindPlugins; schedule_one.go, bindingCycle
    """
    if fact.error is None:
        return binding.verdict or Status(Code.ERROR, "", (NO_LONGER_WANTED,))
    broken_off = binding.verdict is not None and fact.error == NO_LONGER_WANTED
    text = binding.verdict.message if binding.verdict is not None and broken_off else fact.error
    author = binding.authors[fact.effect] if 0 <= fact.effect < len(binding.authors) else ""
    return Status(Code.ERROR, "", (author + text,))


def _effects(step: Step, point: str, answer: Iterable[Effect] | None) -> tuple[Effect, ...]:
    try:
        effects = tuple(answer or ())
    except PluginError:
        raise
    except Exception as error:  # a generator runs only now
        raise PluginError(step.name, f"failed in {point}: {type(error).__name__}: {error}") from error
    for effect in effects:
        if not isinstance(effect, Effect):
            raise PluginError(step.name, f"answered {effect!r} in {point}; yield effects, see moorage.framework.effects")
    return effects


def _asked(step: Step, point: str, binding: Binding) -> Any:
    return ask(step, point, binding.states.get(step.name), binding.pod, binding.node)


def _author(point: str, step: Step) -> str:
    """Return what kube-scheduler puts before an error of a plugin.

    Source  framework/runtime/framework.go
    """
    return f'running {point} plugin "{step.name}": '


def _held(author: str, step: Step, hold: Hold, code: Code | None = None) -> Status:
    """Return what a plugin's no means: a rejection is told in its own words. ``code``: its own, where it may have one."""
    if hold.code.is_rejection:
        return Status(code or Code.ERROR, step.name, hold.reasons)
    return Status(Code.ERROR, step.name, (author + ", ".join(hold.reasons),))


def _error(error: PluginError, author: str) -> Status:
    return Status(Code.ERROR, error.plugin, (f"{author if isinstance(error, AttemptError) else ''}{error}",))
