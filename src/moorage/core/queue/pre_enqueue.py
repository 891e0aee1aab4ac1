"""PreEnqueue: decide which pods may enter the active queue.

A gated pod records which plugin gates it. That plugin runs first the next time, because while it still gates the pod the
others need not run.

Source  kube-scheduler, backend/queue/scheduling_queue.go, runPreEnqueuePlugins
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from moorage.api.feature_gates import FeatureGates
from moorage.core.extenders.consultation import HTTPExtender
from moorage.core.extenders.wire import EXTENDER
from moorage.core.queue.active_queue import SortKey
from moorage.core.queue.hints import wakes_of
from moorage.core.queue.queued_pod import QueuedPod
from moorage.errors import RAISED, PluginError
from moorage.framework.events import ANY_EVENT, Action, ClusterEvent, Resource, Wake
from moorage.framework.plugin_runner import failure_text
from moorage.framework.profile import Profile, Step
from moorage.framework.verdicts import Hold
from moorage.state.pod_info import PodInfo

PreEnqueue = Callable[[PodInfo], Hold | None]


@dataclass(frozen=True, slots=True)
class QueueProfile:
    """The parts of a profile that the queue uses.

    ``pre_enqueue``  PreEnqueue plugins with their names, in running order
    ``wakes``        plugin → the events that wake the pods it rejected
    """

    pre_enqueue: tuple[tuple[str, PreEnqueue], ...] = ()
    wakes: Mapping[str, tuple[Wake, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, profile: Profile) -> QueueProfile:
        gates = tuple((step.name, step.call) for step in profile.at("preEnqueue"))
        wakes = {name: profile.waking(name, found) for name, plugin in profile.plugins.items() if (found := wakes_of(plugin))}
        return cls(gates, wakes)


class Gates:
    """The PreEnqueue plugins of all profiles, by scheduler name."""

    def __init__(self, profiles: Mapping[str, QueueProfile], on_fault: Callable[[PluginError], None]) -> None:
        self._plugins = {name: profile.pre_enqueue for name, profile in profiles.items()}
        self._on_fault = on_fault

    def serve(self, scheduler_name: str) -> bool:
        """Return True if a profile has this scheduler name."""
        return scheduler_name in self._plugins

    def hold(self, queued: QueuedPod) -> bool:
        """Run the PreEnqueue plugins and record on the pod which one gates it, if any. Return True if the pod is gated."""
        pod = queued.pod
        plugins = self._plugins[pod.spec.scheduler_name]
        if queued.gated_by and plugins and plugins[0][0] != queued.gated_by:
            plugins = tuple(sorted(plugins, key=lambda plugin: plugin[0] != queued.gated_by))
        for name, pre_enqueue in plugins:
            try:
                answer: object = pre_enqueue(pod)
            except RAISED as error:
                found = failure_text(error)
                self._on_fault(PluginError(name, f"failed in preEnqueue for pod {pod.key}: {found}; the pod stays gated"))
                answer = Hold.because(found)
            if answer is not None:
                queued.gated_by, queued.gate = name, self._checked(name, answer, pod)
                queued.unschedulable_plugins |= {name}
                return True
        if queued.gated_by:
            queued.gated_by, queued.gate = "", None
        return False

    def _checked(self, name: str, answer: object, pod: PodInfo) -> Hold:
        if isinstance(answer, Hold):
            return answer
        found = f"returned {answer!r} in preEnqueue; return None or Hold"
        self._on_fault(PluginError(name, f"{found}; pod {pod.key} stays gated"))
        return Hold.because(found)


# -- the parts of a profile that the queue uses ------------------------------------------------------------------------

#: Stands for the plugins that rejected a pod where its attempt ended in an error: any event that a plugin names wakes it.
ERRORS: Final = ""


def queue_profile(profile: Profile, extenders: Sequence[HTTPExtender], gates: FeatureGates) -> QueueProfile:
    """Return what the queue needs of a profile. Extenders have no queueing hints: any event retries the pods they reject."""
    needed = QueueProfile.of(profile)
    wakes = {EXTENDER: (Wake(ANY_EVENT),), **needed.wakes} if extenders else needed.wakes
    if gates.emulated.parks_errors:
        wakes = {ERRORS: tuple(_after_errors(wakes, gates)), **wakes}
    return needed if wakes is needed.wakes else QueueProfile(needed.pre_enqueue, wakes)


def _after_errors(wakes: Mapping[str, Iterable[Wake]], gates: FeatureGates) -> Iterator[Wake]:
    """Yield the events that retry a pod after an error: those that a plugin names, and those of the release."""
    yield from (Wake(wake.event) for of_plugin in wakes.values() for wake in of_plugin)
    yield from (Wake(ClusterEvent(Resource(kind), Action.ALL)) for kind in sorted(gates.emulated.moving_kinds))


def sort_key(step: Step, on_fault: Callable[[PluginError], None]) -> SortKey:
    """Return a sort key. Pods for which the QueueSort plugin raises come last, and ``on_fault`` gets the error."""

    def key_of(queued: QueuedPod) -> tuple[int, Any]:
        try:
            return 0, step.call(queued)
        except RAISED as error:
            on_fault(PluginError(step.name, f"failed in queueSort: {failure_text(error)}"))
            return 1, 0

    return key_of
