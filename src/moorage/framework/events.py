"""What happens in a cluster, as the queue and its hints see it.

An event is a resource and what was done to it. A plugin that turned a pod down names the events after which it might say
yes (``Wake``), each with an optional closer look at the objects. Beside the kinds that Kubernetes brings, a plugin may name
others as ``plural.version.group``, such as ``quotas.v1.example.com``: whoever runs the plugin then follows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from typing import Any

from moorage.state.pod_info import PodInfo

__all__ = ["ANY_EVENT", "Action", "ClusterEvent", "Hint", "Resource", "Wake"]


class Resource(StrEnum):
    """Kinds of object that events are about, by the names kube-scheduler gives them in logs and metrics."""

    POD = "Pod"
    ASSIGNED_POD = "AssignedPod"
    UNSCHEDULED_POD = "UnschedulablePod"
    NODE = "Node"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    CSI_NODE = "storage.k8s.io/CSINode"
    CSI_DRIVER = "storage.k8s.io/CSIDriver"
    VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
    CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
    STORAGE_CLASS = "storage.k8s.io/StorageClass"
    RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
    RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
    DEVICE_CLASS = "resource.k8s.io/DeviceClass"
    POD_GROUP = "scheduling.k8s.io/PodGroup"
    NAMESPACE = "Namespace"
    SERVICE = "Service"
    ANY = "*"


class Action(Flag):
    """What was done. Updates are told apart by what changed, because that is what hints ask about."""

    ADD = auto()
    DELETE = auto()
    UPDATE_NODE_ALLOCATABLE = auto()
    UPDATE_NODE_LABEL = auto()
    UPDATE_NODE_TAINT = auto()
    UPDATE_NODE_CONDITION = auto()
    UPDATE_NODE_ANNOTATION = auto()
    UPDATE_NODE_DECLARED_FEATURE = auto()
    UPDATE_POD_LABEL = auto()
    UPDATE_POD_SCALE_DOWN = auto()
    UPDATE_POD_TOLERATION = auto()
    UPDATE_POD_GATES_ELIMINATED = auto()
    UPDATE_POD_GENERATED_CLAIM = auto()
    UPDATE_OTHER = auto()
    UPDATE = (
        UPDATE_NODE_ALLOCATABLE
        | UPDATE_NODE_LABEL
        | UPDATE_NODE_TAINT
        | UPDATE_NODE_CONDITION
        | UPDATE_NODE_ANNOTATION
        | UPDATE_NODE_DECLARED_FEATURE
        | UPDATE_POD_LABEL
        | UPDATE_POD_SCALE_DOWN
        | UPDATE_POD_TOLERATION
        | UPDATE_POD_GATES_ELIMINATED
        | UPDATE_POD_GENERATED_CLAIM
        | UPDATE_OTHER
    )
    ALL = ADD | DELETE | UPDATE

    @property
    def label(self) -> str:
        """The action by the name kube-scheduler gives it in logs and metrics, such as ``UpdateNodeTaint``."""
        name = self.name or "|".join(flag.name or "" for flag in self)
        return _LABELS.get(name) or name.replace("_", " ").title().replace(" ", "")


#: Actions that kube-scheduler spells in more or other words than ours.
_LABELS: Mapping[str, str] = {
    "UPDATE_POD_GATES_ELIMINATED": "UpdatePodSchedulingGatesEliminated",
    "UPDATE_POD_GENERATED_CLAIM": "UpdatePodGeneratedResourceClaim",
    "UPDATE_OTHER": "Update",
}


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """Something happened. As a happening ``action`` is one flag; as an interest it may be several.

    ``resource`` is a ``Resource``, or the name of a kind that is none of them: ``plural.version.group``.
    """

    resource: Resource | str
    action: Action
    label: str = ""

    def covers(self, happened: ClusterEvent) -> bool:
        """Say whether this interest takes in what happened: same or wider resource, and the action among its actions."""
        if self.resource == Resource.ANY and self.action == Action.ALL:
            return True
        same = self.resource in {Resource.ANY, happened.resource} or (
            self.resource == Resource.POD and happened.resource in {Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD}
        )
        return same and happened.action in self.action

    def __str__(self) -> str:
        return self.label or f"{self.resource}{self.action.label}"


ANY_EVENT = ClusterEvent(Resource.ANY, Action.ALL)

#: ``hint(pod, old, new)``: could this change make ``pod`` schedulable? Pods come as ``PodInfo``, other kinds as they are,
#: those that were named as ``plural.version.group`` as ``CustomObject``; ``old`` is None for additions, ``new`` for deletions.
Hint = Callable[[PodInfo, Any, Any], bool]


@dataclass(frozen=True, slots=True)
class Wake:
    """Try the pod again after this event; where ``when`` is given, only if it says so. A hint that raises counts as yes.

    ``whom(old, new)``, where it is given, is asked once for the event: False if ``when`` would say no to every pod. It saves
    asking about each of many, and may be left out.
    """

    event: ClusterEvent
    when: Hint | None = None
    whom: Callable[[Any, Any], bool] | None = None
