"""Which changes wake the pods that a plugin rejected: by queueing hints, and in releases up to 1.31.

Without hints any event of a kind that a plugin names does. With the gate SchedulerQueueingHints open, plugins of 1.30 and 1.31
look at changes of some kinds of objects only, and those of 1.28 and 1.29 at none. ``waking.toml`` has events and kinds.

Source  kube-scheduler 1.22.6 to 1.31.8, EventsToRegister of the plugins
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, reduce
from operator import or_
from typing import Any, Final

from moorage.basis import table_of
from moorage.framework.events import Action, ClusterEvent, Hint, Resource, Wake
from moorage.state.pod_info import PodInfo

Events = tuple[ClusterEvent, ...]
#: The plugins of 1.31 whose hints compare a node with the one before its update.
_COMPARES_NODES: Final = frozenset(["TaintToleration"])


@cache
def event_kinds() -> Mapping[str, Mapping[str, Events]]:
    """Return the events that plugins name, by ``Release.event_kinds`` and plugin; others name those of today."""
    found: dict[str, Mapping[str, Events]] = {"": {}}
    events: Mapping[str, Events] = {}
    for release, rows in table_of("moorage.core.config", "waking.toml")["events"].items():
        events = {**events, **{plugin: tuple(map(_event, row)) for names, row in rows.items() for plugin in names.split()}}
        found[release] = events
    return found


def _event(text: str) -> ClusterEvent:
    resource, *actions = text.split()
    return ClusterEvent(Resource[resource], reduce(or_, (Action[name] for name in actions)))


@cache
def _looks() -> Mapping[str, Mapping[str, frozenset[Resource]]]:
    """Return, by ``Release.event_kinds`` and plugin, the objects whose changes its hints look at; none in other releases."""
    rows = table_of("moorage.core.config", "waking.toml")["looks"]
    return {
        release: {plugin: frozenset(Resource[name] for name in names.split()) for plugin, names in looks.items()}
        for release, looks in rows.items()
    }


@dataclass(frozen=True, slots=True)
class Waking:
    """The wakes of plugins in a release. ``event_kinds``: see ``Release``; ``asks_hints``: SchedulerQueueingHints is open."""

    event_kinds: str = ""
    asks_hints: bool = True

    def __call__(self, plugin: str, declared: tuple[Wake, ...]) -> tuple[Wake, ...]:
        """Return the wakes of a plugin that declares those of the newest release."""
        events = event_kinds()[self.event_kinds].get(plugin)
        if not self.asks_hints:
            named = tuple(wake.event for wake in declared) if events is None else events
            return tuple(Wake(event) for event in named)
        if events is None:
            return declared
        looks = _looks().get(self.event_kinds, {}).get(plugin, frozenset())
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
