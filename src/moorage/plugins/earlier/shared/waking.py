"""Which changes wake the pods that a plugin rejected: by queueing hints, and in releases up to 1.31.

Without hints any event of a kind that a plugin names does. With the gate SchedulerQueueingHints open, plugins of 1.30 and 1.31
look at changes of some kinds of objects only, and those of 1.28 and 1.29 at none.

Source  kube-scheduler 1.28.8 to 1.31.8, EventsToRegister of the plugins
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from moorage.framework.events import Action, ClusterEvent, Hint, Resource, Wake
from moorage.state.pod_info import PodInfo

# -- event kinds -------------------------------------------------------------------------------------------------------
# The events that plugins of 1.22 to 1.31 name: wider than those of later releases. ``waking`` says which of them wake a pod.
#
# Source  kube-scheduler 1.22.6 to 1.31.8, EventsToRegister of the plugins

Events = tuple[ClusterEvent, ...]

_CHANGED: Final = Action.ADD | Action.UPDATE
_NODE_ADDED: Final = ClusterEvent(Resource.NODE, Action.ADD)
_NODE_CHANGED: Final = ClusterEvent(Resource.NODE, _CHANGED)
_NODE_LABELLED: Final = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
_NODE_LABELLED_OR_TAINTED: Final = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT)
_NODE_IN_DOMAIN: Final = ClusterEvent(
    Resource.NODE, Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
)
_POD_DELETED: Final = ClusterEvent(Resource.POD, Action.DELETE)
#: Scaling a pod down counts as any update there.
_POD_LABELLED: Final = ClusterEvent(
    Resource.POD, Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_SCALE_DOWN
)
_ANY_POD: Final = ClusterEvent(Resource.POD, Action.ALL)
_CLAIM_ADDED: Final = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD)
_CLAIM_CHANGED: Final = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, _CHANGED)
_VOLUME_CHANGED: Final = ClusterEvent(Resource.PERSISTENT_VOLUME, _CHANGED)
_CLASS_ADDED: Final = ClusterEvent(Resource.STORAGE_CLASS, Action.ADD)

_1_31: Final[Mapping[str, Events]] = {
    **dict.fromkeys(("NodeAffinity", "NodeName", "NodeUnschedulable", "TaintToleration"), (_NODE_CHANGED,)),
    **dict.fromkeys(("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"), (_NODE_ADDED, _POD_DELETED, _CLAIM_ADDED)),
    "InterPodAffinity": (_POD_LABELLED, _NODE_LABELLED_OR_TAINTED),
    "NodePorts": (_POD_DELETED, _NODE_CHANGED),
    "NodeResourcesFit": (ClusterEvent(Resource.POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN), _NODE_CHANGED),
    "NodeVolumeLimits": (ClusterEvent(Resource.CSI_NODE, Action.ADD), _POD_DELETED, _CLAIM_ADDED),
    "PodTopologySpread": (_POD_LABELLED, _NODE_IN_DOMAIN),
    "VolumeBinding": (
        *(
            ClusterEvent(kind, _CHANGED)
            for kind in (Resource.STORAGE_CLASS, Resource.CSI_NODE, Resource.CSI_DRIVER, Resource.CSI_STORAGE_CAPACITY)
        ),
        _CLAIM_CHANGED,
        _VOLUME_CHANGED,
        _NODE_LABELLED,
    ),
    "VolumeRestrictions": (_POD_DELETED, _NODE_ADDED, _CLAIM_ADDED),
    "VolumeZone": (_CLASS_ADDED, _NODE_LABELLED, _CLAIM_CHANGED, _VOLUME_CHANGED),
}
_1_30: Final[Mapping[str, Events]] = {
    **_1_31,
    "InterPodAffinity": (_ANY_POD, _NODE_LABELLED),
    "PodTopologySpread": (_ANY_POD, _NODE_IN_DOMAIN),
    "VolumeRestrictions": (_POD_DELETED, _NODE_ADDED, _CLAIM_CHANGED),
    "VolumeZone": (_CLASS_ADDED, _NODE_LABELLED, _CLAIM_ADDED, _VOLUME_CHANGED),
}

_1_29: Final[Mapping[str, Events]] = {
    **_1_30,
    **dict.fromkeys(("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"), (_NODE_ADDED, _POD_DELETED)),
    "NodeUnschedulable": (ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT),),
    "NodeVolumeLimits": (ClusterEvent(Resource.CSI_NODE, Action.ADD), _POD_DELETED),
    "PodTopologySpread": (_ANY_POD, ClusterEvent(Resource.NODE, Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL)),
}

_1_23: Final[Mapping[str, Events]] = {
    **_1_29,
    "NodeAffinity": (_NODE_LABELLED,),
    "NodeName": (_NODE_ADDED,),
    "NodePorts": (_POD_DELETED, _NODE_ADDED),
    "NodeResourcesFit": (_POD_DELETED, ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)),
    "TaintToleration": (ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT),),
}

_1_22: Final[Mapping[str, Events]] = {
    **_1_23,
    "NodeLabel": (_NODE_LABELLED,),
    "ServiceAffinity": (
        ClusterEvent(Resource.POD, Action.DELETE | Action.UPDATE),
        _NODE_LABELLED,
        ClusterEvent(Resource.SERVICE, Action.DELETE | Action.UPDATE),
    ),
    "VolumeBinding": (*(event for event in _1_23["VolumeBinding"] if event.resource is not Resource.NODE), _NODE_CHANGED),
}

#: ``Release.event_kinds`` → plugin → events. Other plugins name those of the newest release.
EVENT_KINDS: Final[Mapping[str, Mapping[str, Events]]] = {
    "": {}, "1.22": _1_22, "1.23": _1_23, "1.29": _1_29, "1.30": _1_30, "1.31": _1_31,
}  # fmt: skip


# -- waking ------------------------------------------------------------------------------------------------------------

Looks = Mapping[str, frozenset[Resource]]

_POD: Final = frozenset([Resource.POD])
_NODE: Final = frozenset([Resource.NODE])
_NONE: Final[frozenset[Resource]] = frozenset()
_CLAIMS_AND_CLASSES: Final = frozenset([Resource.PERSISTENT_VOLUME_CLAIM, Resource.STORAGE_CLASS])

_waking_1_30: Final[Looks] = {
    "NodeAffinity": _NODE,
    "NodePorts": _POD,
    "NodeResourcesFit": _POD | _NODE,
    "NodeUnschedulable": _NODE,
    "PodTopologySpread": _POD | _NODE,
}
_waking_1_31: Final[Looks] = {
    **_waking_1_30,
    "InterPodAffinity": _POD | _NODE,
    "NodeVolumeLimits": _POD,
    "TaintToleration": _POD | _NODE,
    "VolumeBinding": _CLAIMS_AND_CLASSES | {Resource.CSI_NODE, Resource.CSI_STORAGE_CAPACITY},
    "VolumeRestrictions": _POD | {Resource.PERSISTENT_VOLUME_CLAIM},
    "VolumeZone": _CLAIMS_AND_CLASSES | {Resource.PERSISTENT_VOLUME},
}
#: ``Release.event_kinds`` → plugin → the objects whose changes its hints look at; none in other releases.
_LOOKS: Final[Mapping[str, Looks]] = {"1.30": _waking_1_30, "1.31": _waking_1_31}
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
