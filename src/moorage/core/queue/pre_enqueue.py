"""PreEnqueue: decide which pods may enter the active queue.

A gated pod records which plugin gates it. That plugin runs first the next time, because while it still gates the pod the
others need not run.

Source  kube-scheduler, backend/queue/scheduling_queue.go, runPreEnqueuePlugins
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from moorage.core.queue.hints import wakes_of
from moorage.core.queue.queued_pod import QueuedPod
from moorage.errors import PluginError
from moorage.framework.events import Wake
from moorage.framework.plugin_runner import failure_text
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Hold
from moorage.state.pod_info import PodInfo

__all__ = ["Gates", "QueueProfile"]

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
            except Exception as error:
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
