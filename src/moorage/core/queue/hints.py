"""Queueing hints: decide which pods an event makes worth another attempt.

A plugin lists the events that can make a rejected pod schedulable, each with an optional hint function (``Wake``). For a pod,
only the hints of the plugins that rejected it run. Which plugins an event concerns is computed once for each kind of event.

Source  kube-scheduler, backend/queue/scheduling_queue.go, isPodWorthRequeuing; scheduler.go, buildQueueingHintMap
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any

from moorage.core.queue.in_flight import Happening
from moorage.core.queue.queued_pod import QueuedPod
from moorage.core.queue.unschedulable_pods import Rejecter, ShapeGroup
from moorage.errors import RAISED, PluginError
from moorage.framework.events import ANY_EVENT, Action, ClusterEvent, Hint, Resource, Wake
from moorage.framework.plugin_runner import failure_text
from moorage.framework.points import Plugin
from moorage.framework.profile import declared_wakes, points_of
from moorage.state.pod_info import PodInfo

#: Only plugins that run at these points can reject a pod in a way that an event can resolve.
_REJECTING_POINTS = frozenset({"preEnqueue", "preFilter", "filter", "reserve", "permit"})


#: Runs once for an event (see ``Wake``); None means that the event may help any pod.
Whom = Callable[[Any, Any], bool] | None
#: ``timer(plugin, event, answer, seconds)``; the answer is ``Queue``, ``QueueSkip`` or ``Error``.
HintTimer = Callable[[str, str, str, float], None]


class HintOutcome(Enum):
    """The outcome of an event for a pod: whether and when to retry it."""

    SKIP = "it stays where it is"
    AFTER_BACKOFF = "it is tried again once its backoff is over"
    AT_ONCE = "it is tried again without backoff"


def wakes_of(plugin: Plugin) -> tuple[Wake, ...]:
    """Return the events that wake pods that ``plugin`` rejected: its ``wakes_on``, or else any event.

    Empty if it cannot reject pods.
    """
    if _REJECTING_POINTS.isdisjoint(points_of(plugin)):
        return ()
    wakes = declared_wakes(plugin)
    return (Wake(ANY_EVENT),) if wakes is None else wakes


def is_for_everyone(event: ClusterEvent) -> bool:
    """Return True for an event that moves every unschedulable pod, whichever plugin rejected it."""
    return event.resource == Resource.ANY and event.action == Action.ALL


class Interest:
    """The plugins that one kind of event concerns: scheduler name → plugin → its hints; None stands for a hint of True.

    ``each``: the plugins with a hint that has to run for each pod, not once for a shape.
    """

    __slots__ = ("_asked_once", "_each", "_rejecters", "hints_of")

    def __init__(
        self,
        hints_of: Mapping[str, Mapping[str, tuple[Hint | None, ...]]],
        asked_once: Mapping[Rejecter, tuple[Whom, ...]],
        each: AbstractSet[Rejecter],
    ) -> None:
        self.hints_of = hints_of
        self._each = each
        self._rejecters: tuple[Rejecter, ...] = tuple((profile, name) for profile in hints_of for name in hints_of[profile])
        self._asked_once = asked_once

    def rejecters(self, old: Any, new: Any) -> tuple[Rejecter, ...]:
        """Return the plugins whose rejected pods may be retried because of this event."""
        if not self._asked_once:
            return self._rejecters
        return tuple(rejecter for rejecter in self._rejecters if self._may_help(rejecter, old, new))

    @property
    def all_rejecters(self) -> tuple[Rejecter, ...]:
        """The plugins that the event concerns, whatever it is about."""
        return self._rejecters

    def goes_by_shape(self, group: ShapeGroup) -> bool:
        """Return True if the event has one outcome for all pods of a group, except for a pod that the event is about."""
        return not self._each or not any((group.profile, plugin) in self._each for plugin in group.plugins)

    def _may_help(self, rejecter: Rejecter, old: Any, new: Any) -> bool:
        for whom in self._asked_once.get(rejecter, (None,)):
            try:
                if whom is None or whom(old, new):
                    return True
            except RAISED:  # the hint itself runs next, and its exceptions are reported
                return True
        return False


class Hints:
    """The wakes of all plugins. ``wakes``: scheduler name → plugin → wakes, in the order the plugins run."""

    def __init__(self, wakes: Mapping[str, Mapping[str, Iterable[Wake]]], on_fault: Callable[[PluginError], None]) -> None:
        self._wakes = {
            profile: {name: _with_taints(tuple(of_plugin)) for name, of_plugin in by_plugin.items()}
            for profile, by_plugin in wakes.items()
        }
        self._on_fault = on_fault
        self._interest: dict[tuple[Resource | str, Action], Interest | None] = {}

    def interest(self, event: ClusterEvent) -> Interest | None:
        """Return which plugins an event concerns; None if none. Do not call it for an event ``is_for_everyone``."""
        kind = (event.resource, event.action)
        try:
            return self._interest[kind]
        except KeyError:
            return self._interest.setdefault(kind, self._find_interest(event))

    def concerned(self, event: ClusterEvent) -> tuple[Rejecter, ...]:
        """Return the plugins whose rejected pods such an event may wake."""
        interest = self.interest(event)
        return () if interest is None else interest.all_rejecters

    def _find_interest(self, event: ClusterEvent) -> Interest | None:
        hints_of: dict[str, dict[str, tuple[Hint | None, ...]]] = {}
        asked_once: dict[Rejecter, tuple[Whom, ...]] = {}
        each: set[Rejecter] = set()
        for profile, by_plugin in self._wakes.items():
            for name, wakes in by_plugin.items():
                covering = [wake for wake in wakes if wake.event.covers(event)]
                if covering:
                    hints_of.setdefault(profile, {})[name] = tuple(wake.when for wake in covering)
                if any(wake.whom is not None for wake in covering):
                    asked_once[profile, name] = tuple(wake.whom for wake in covering)
                if any(wake.when is not None and not wake.by_shape for wake in covering):
                    each.add((profile, name))
        return Interest(hints_of, asked_once, each) if hints_of else None

    def outcomes(
        self, interest: Interest, groups: Iterable[ShapeGroup], event: ClusterEvent, old: Any, new: Any
    ) -> Iterator[tuple[QueuedPod, HintOutcome | None]]:
        """Yield the pods that an event may move, each with its outcome; None if the caller must call ``outcome`` for it."""
        subjects = {obj.uid for obj in (old, new) if isinstance(obj, PodInfo)}
        for group in groups:
            one = group.other_than(subjects) if interest.goes_by_shape(group) else None
            outcome = None if one is None else self.outcome(one, event, old, new)
            if outcome is HintOutcome.SKIP:
                yield from ((group.pods[uid], None) for uid in subjects if uid in group.pods)
            else:
                yield from ((queued, None if uid in subjects else outcome) for uid, queued in group.pods.items())

    def outcome(self, queued: QueuedPod, event: ClusterEvent, old: Any, new: Any) -> HintOutcome:
        """Run the hints of the plugins that rejected the pod and return the outcome.

        An event ``is_for_everyone`` moves every pod; if ``new`` is a pod, only that one.
        """
        if not queued.unschedulable_plugins and not queued.pending_plugins:
            return HintOutcome.AFTER_BACKOFF
        if is_for_everyone(event):
            meant = new is None or (isinstance(new, PodInfo) and new.uid == queued.pod.uid)
            return HintOutcome.AFTER_BACKOFF if meant else HintOutcome.SKIP
        interest = self.interest(event)
        if interest is None:
            return HintOutcome.SKIP
        pending, happened = queued.pending_plugins, Happening(event, old, new)
        outcome = HintOutcome.SKIP
        for plugin, hints in interest.hints_of.get(queued.profile, {}).items():
            if plugin in pending:
                if self._says_yes(plugin, hints, queued.pod, happened):
                    return HintOutcome.AT_ONCE
            elif outcome is HintOutcome.SKIP and plugin in queued.unschedulable_plugins:
                said = self._says_yes(plugin, hints, queued.pod, happened)
                if said and not pending:
                    return HintOutcome.AFTER_BACKOFF
                outcome = HintOutcome.AFTER_BACKOFF if said else HintOutcome.SKIP
        return outcome

    def _says_yes(self, plugin: str, hints: tuple[Hint | None, ...], pod: PodInfo, happened: Happening) -> bool:
        event, old, new = happened
        for hint in hints:
            if hint is None:
                return True
            try:
                if hint(pod, old, new):
                    return True
            except RAISED as error:
                found = f"failed in a queueing hint for pod {pod.key} on {event}: {failure_text(error)}"
                self._on_fault(PluginError(plugin, f"{found}; the pod is tried again"))
                return True
        return False

    def timed(self, clock: Callable[[], float], timer: HintTimer) -> Hints:
        """Return hints that give the same answers and report the duration of each to ``timer``."""
        return _TimedHints(self._wakes, self._on_fault, clock, timer)


class _TimedHints(Hints):
    """Hints that measure each call."""

    def __init__(
        self,
        wakes: Mapping[str, Mapping[str, Iterable[Wake]]],
        on_fault: Callable[[PluginError], None],
        clock: Callable[[], float],
        timer: HintTimer,
    ) -> None:
        super().__init__(wakes, on_fault)
        self._clock, self._timer = clock, timer

    def _says_yes(self, plugin: str, hints: tuple[Hint | None, ...], pod: PodInfo, happened: Happening) -> bool:
        failed: list[PluginError] = []
        on_fault, self._on_fault = self._on_fault, failed.append
        begun = self._clock()
        try:
            said = super()._says_yes(plugin, hints, pod, happened)
        finally:
            self._on_fault = on_fault
        answer = "Error" if failed else "Queue" if said else "QueueSkip"
        self._timer(plugin, str(happened.event), answer, self._clock() - begun)
        for fault in failed:
            on_fault(fault)
        return said


def _with_taints(wakes: tuple[Wake, ...]) -> tuple[Wake, ...]:
    """Add taint updates to the wakes of a plugin that wakes on new nodes: a node may be added unready and become usable later.

    Source  scheduler.go, buildQueueingHintMap (kubernetes issue 109437)
    """
    on_nodes = [wake.event.action for wake in wakes if wake.event.resource == Resource.NODE]
    wakes_on_added = any(Action.ADD in action for action in on_nodes)
    if not wakes_on_added or any(Action.UPDATE_NODE_TAINT in action for action in on_nodes):
        return wakes
    return (*wakes, Wake(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)))
