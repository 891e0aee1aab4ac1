"""Which changes wake the pods that a plugin rejected: by queueing hints, and in releases up to 1.31.

Without hints any event of a kind that a plugin names does. With the gate SchedulerQueueingHints open, plugins of 1.30 and 1.31
look at changes of some kinds of objects only, and those of 1.28 and 1.29 at none.

Source  kube-scheduler 1.28.8 to 1.31.8, EventsToRegister of the plugins
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from moorage.framework.events import Hint, Resource, Wake
from moorage.plugins.earlier.shared.event_kinds import EVENT_KINDS, Events
from moorage.state.pod_info import PodInfo

__all__ = ["Waking"]

Looks = Mapping[str, frozenset[Resource]]

_POD: Final = frozenset([Resource.POD])
_NODE: Final = frozenset([Resource.NODE])
_NONE: Final[frozenset[Resource]] = frozenset()
_CLAIMS_AND_CLASSES: Final = frozenset([Resource.PERSISTENT_VOLUME_CLAIM, Resource.STORAGE_CLASS])

_1_30: Final[Looks] = {
    "NodeAffinity": _NODE,
    "NodePorts": _POD,
    "NodeResourcesFit": _POD | _NODE,
    "NodeUnschedulable": _NODE,
    "PodTopologySpread": _POD | _NODE,
}
_1_31: Final[Looks] = {
    **_1_30,
    "InterPodAffinity": _POD | _NODE,
    "NodeVolumeLimits": _POD,
    "TaintToleration": _POD | _NODE,
    "VolumeBinding": _CLAIMS_AND_CLASSES | {Resource.CSI_NODE, Resource.CSI_STORAGE_CAPACITY},
    "VolumeRestrictions": _POD | {Resource.PERSISTENT_VOLUME_CLAIM},
    "VolumeZone": _CLAIMS_AND_CLASSES | {Resource.PERSISTENT_VOLUME},
}
#: ``Release.event_kinds`` → plugin → the objects whose changes its hints look at; none in other releases.
_LOOKS: Final[Mapping[str, Looks]] = {"1.30": _1_30, "1.31": _1_31}
#: The plugins of 1.31 whose hints compare a node with the one before its update.
_COMPARES_NODES: Final = frozenset(["TaintToleration"])


@dataclass(frozen=True, slots=True)
class Waking:
    """The wakes of plugins in a release. ``event_kinds``: see ``Release``; ``asks_hints``: SchedulerQueueingHints is open."""

    event_kinds: str = ""
    asks_hints: bool = True

    def __call__(self, plugin: str, declared: tuple[Wake, ...]) -> tuple[Wake, ...]:
        """Return the wakes of a plugin that declares those of the newest release."""
        events = EVENT_KINDS[self.event_kinds].get(plugin)
        if not self.asks_hints:
            named = tuple(wake.event for wake in declared) if events is None else events
            return tuple(Wake(event) for event in named)
        if events is None:
            return declared
        looks = _LOOKS.get(self.event_kinds, {}).get(plugin, _NONE)
        hinted = [wake for wake in declared if wake.event.resource in looks]
        if plugin not in _COMPARES_NODES:
            hinted = [_without_comparison(wake) for wake in hinted]
        return (*(Wake(event) for event in events if event.resource not in looks), *_renamed(hinted, events))


def _renamed(hinted: Iterable[Wake], events: Events) -> Iterator[Wake]:
    """Yield the wakes with the event that the release has for the kind of object, if any."""
    event_of = {event.resource: event for event in events}
    for wake in hinted:
        yield replace(wake, event=event_of.get(wake.event.resource, wake.event))


def _without_comparison(wake: Wake) -> Wake:
    if wake.event.resource is not Resource.NODE or wake.when is None:
        return wake
    return replace(wake, when=_as_if_added(wake.when))


def _as_if_added(hint: Hint) -> Hint:
    """Return a hint that answers for an updated node as for a new one."""

    def looking_at_the_new(pod: PodInfo, old: Any, new: Any) -> bool:
        return hint(pod, old if new is None else None, new)

    return looking_at_the_new
