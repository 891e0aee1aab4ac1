"""The events that plugins of 1.22 to 1.31 name: wider than those of later releases. ``waking`` says which of them wake a pod.

Source  kube-scheduler 1.22.6 to 1.31.8, EventsToRegister of the plugins
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.framework.events import Action, ClusterEvent, Resource

__all__ = ["EVENT_KINDS", "Events"]

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
