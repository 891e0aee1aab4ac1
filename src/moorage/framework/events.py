"""Cluster events, as the scheduling queue and its hints see them.

An event is a resource and an action on it. A plugin lists the events after which a pod that it rejected may be schedulable
(``Wake``), each with an optional hint function that looks at the objects. In addition to Kubernetes' kinds, a plugin may name
custom ones as ``plural.version.group``, such as ``quotas.v1.example.com``: the scheduler then watches them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from typing import Any

from moorage.state.pod_info import PodInfo

__all__ = ["ANY_EVENT", "Action", "ClusterEvent", "Hint", "Resource", "Wake"]


class Resource(StrEnum):
    """Kinds of object that events concern, by kube-scheduler's names for them in logs and metrics."""

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
    COMPOSITE_POD_GROUP = "scheduling.k8s.io/CompositePodGroup"
    NAMESPACE = "Namespace"
    SERVICE = "Service"
    ANY = "*"


class Action(Flag):
    """The action on the object. There is an update action for each part that changes, because hints select by these."""

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
        """kube-scheduler's name of the action in logs and metrics, such as ``UpdateNodeTaint``."""
        name = self.name or "|".join(flag.name or "" for flag in self)
        return _LABELS.get(name) or name.replace("_", " ").title().replace(" ", "")


#: kube-scheduler's names of actions, where they differ from ours.
_LABELS: Mapping[str, str] = {
    "UPDATE_POD_GATES_ELIMINATED": "UpdatePodSchedulingGatesEliminated",
    "UPDATE_POD_GENERATED_CLAIM": "UpdatePodGeneratedResourceClaim",
    "UPDATE_OTHER": "Update",
}


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """A resource and an action on it. In an event that occurred ``action`` is one flag; in a ``Wake`` it may be several.

    ``resource`` is a ``Resource``, or the name of any other kind: ``plural.version.group``. ``label`` is the event's name in
    metrics and logs, if it is not made of the two.
    """

    resource: Resource | str
    action: Action
    label: str = ""

    def covers(self, happened: ClusterEvent) -> bool:
        """Return True if this event of a ``Wake`` includes ``happened``: same or wider resource, and one of its actions."""
        if self.resource == Resource.ANY and self.action == Action.ALL:
            return True
        same = self.resource in {Resource.ANY, happened.resource} or (
            self.resource == Resource.POD and happened.resource in {Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD}
        )
        return same and happened.action in self.action

    def __str__(self) -> str:
        return self.label or f"{self.resource}{self.action.label}"


ANY_EVENT = ClusterEvent(Resource.ANY, Action.ALL)

#: ``hint(pod, old, new)``: return True if this change may make ``pod`` schedulable. Pods are passed as ``PodInfo``, kinds named
#: as ``plural.version.group`` as ``CustomObject``, others as they are; ``old`` is None for additions, ``new`` for deletions.
Hint = Callable[[PodInfo, Any, Any], bool]


@dataclass(frozen=True, slots=True)
class Wake:
    """Retry the pod after this event; where ``when`` is given, only if it returns True. A hint that raises counts as True.

    ``whom(old, new)`` is optional and called once for the event: it returns False if ``when`` would return False for every
    pod, which saves a call for each of many pods.

    ``by_shape``: a promise that ``when`` reads nothing of ``pod`` but its shape (namespace, labels, owners, spec, and status
    without conditions), unless ``pod`` is the pod that the event is about. ``when`` then runs once for all unschedulable pods
    of a shape that the same plugins rejected.
    """

    event: ClusterEvent
    when: Hint | None = None
    whom: Callable[[Any, Any], bool] | None = None
    by_shape: bool = False
