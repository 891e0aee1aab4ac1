"""Translate changes of objects into cluster events, the form that queueing hints use.

An update yields one event for each kind of difference that can matter to scheduling, and none for a node whose change cannot
matter (a heartbeat). A pod update that fits no kind yields ``UPDATE_OTHER``.

Source  kube-scheduler, framework/events.go, PodSchedulingPropertiesChange, NodeSchedulingPropertiesChange; eventhandlers.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from moorage.api.core import Node, Object, ObjectMeta, Pod, PodResourceClaimStatus, PodSpec, ResourceList
from moorage.api.custom_objects import CustomObject
from moorage.api.devices import DeviceTaint, DeviceTaintRule, DeviceTaintSelector, ResourceSlice
from moorage.api.feature_gates import FeatureGates
from moorage.api.pod_requests import RequestOptions
from moorage.api.quantity import parse
from moorage.framework.events import Action, ClusterEvent, Resource
from moorage.state.pod_info import PodInfo

ASSIGNED_POD_ADD: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
ASSIGNED_POD_DELETE: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
UNSCHEDULED_POD_ADD: Final = ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD)
#: A waiting pod's own update, for releases in which any retries it.
_OWN_UPDATE: Final = ClusterEvent(Resource.ANY, Action.ALL, "PodUpdate")
_DEFAULT_GATES: Final = FeatureGates()
#: Kind → its event resource. Pods and nodes have separate functions below.
_RESOURCE_OF: Final = {
    resource.rpartition("/")[2]: resource
    for resource in Resource
    if resource not in {Resource.ANY, Resource.POD, Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD, Resource.NODE}
}


def pod_changes(old: PodInfo, new: PodInfo, gates: FeatureGates = _DEFAULT_GATES) -> tuple[ClusterEvent, ...]:
    """Return the events of a pod's update, assigned or not. There is always at least one."""
    resource = Resource.ASSIGNED_POD if new.spec.node_name else Resource.UNSCHEDULED_POD
    found = list(_pod_actions(old, new, gates))
    return tuple(ClusterEvent(resource, action) for action in found or [Action.UPDATE_OTHER])


def own_changes(old: PodInfo, new: PodInfo, gates: FeatureGates) -> tuple[ClusterEvent, ...]:
    """Return the events that a waiting pod sees when it is updated.

    While hints are off, and up to 1.30 in any case, an update of more than its status retries the pod.

    Source  kube-scheduler 1.31.8, PriorityQueue.Update and isPodUpdated
    """
    if gates["SchedulerQueueingHints"] and not gates.emulated.any_own_update_wakes:
        return pod_changes(old, new, gates)
    return () if _without_reports(old) == _without_reports(new) else (_OWN_UPDATE,)


def _without_reports(pod: PodInfo) -> tuple[ObjectMeta, PodSpec, tuple[PodResourceClaimStatus, ...]]:
    meta = pod.metadata.replace(resource_version="", generation=0, finalizers=())
    return meta, pod.spec, pod.status.resource_claim_statuses


def assigned_pod_events(
    old: PodInfo | None, new: PodInfo | None, gates: FeatureGates = _DEFAULT_GATES
) -> tuple[ClusterEvent, ...]:
    """Return the events that other pods see when a pod is created, updated or deleted: none unless the pod is on a node.

    A bind counts as an add. ``SchedulingQueue.update`` handles updates of unassigned pods.
    """
    if new is None:
        return (ASSIGNED_POD_DELETE,) if old is not None and old.spec.node_name else ()
    if not new.spec.node_name:
        return ()
    if old is None or not old.spec.node_name:
        return (ASSIGNED_POD_ADD,)
    return pod_changes(old, new, gates)


def node_events(old: Node | None, new: Node | None, gates: FeatureGates = _DEFAULT_GATES) -> tuple[ClusterEvent, ...]:
    """Return the events of a node that was added, updated or deleted; none if nothing changed that scheduling reads."""
    if old is None or new is None:
        return (ClusterEvent(Resource.NODE, Action.ADD if old is None else Action.DELETE),)
    found = [action for action, differs in _NODE_CHANGES.items() if differs(old, new)]
    if gates["NodeDeclaredFeatures"] and old.status.declared_features != new.status.declared_features:
        found.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    return tuple(ClusterEvent(Resource.NODE, action) for action in found)


def object_events(old: Object | None, new: Object | None, slices: Iterable[ResourceSlice] = ()) -> tuple[ClusterEvent, ...]:
    """Return the event of any other object that was added, updated or deleted; none if no plugin can wake on its kind.

    A DeviceTaintRule updates those of ``slices`` that have devices whose taints it changes.
    """
    known = old if new is None else new
    if isinstance(known, DeviceTaintRule):
        same = all(_taints_in(one, old) == _taints_in(one, new) for one in slices)
        return () if same else (ClusterEvent(Resource.RESOURCE_SLICE, Action.UPDATE_OTHER),)
    resource = known.resource if isinstance(known, CustomObject) else _RESOURCE_OF.get(type(known).__name__)
    if resource is None:
        return ()
    action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE_OTHER
    return (ClusterEvent(resource, action),)


def _taints_in(held: ResourceSlice, rule: Object | None) -> dict[str, DeviceTaint]:
    """Return the taint that a rule gives to devices of a slice, by device.

    Source  dynamic-resource-allocation, resourceslice/tracker/tracker.go, syncSlice and applyPatches
    """
    if not isinstance(rule, DeviceTaintRule):
        return {}
    which, taint = rule.spec.device_selector or DeviceTaintSelector(), rule.spec.taint
    found = held.spec.devices if which.may_select_in(held) else ()
    return {device.name: taint for device in found if which.device in {None, device.name}}


def _pod_actions(old: PodInfo, new: PodInfo, gates: FeatureGates) -> Iterator[Action]:
    if old.labels != new.labels:
        yield Action.UPDATE_POD_LABEL
    if _scaled_down(old, new, gates):
        yield Action.UPDATE_POD_SCALE_DOWN
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        yield Action.UPDATE_POD_GATES_ELIMINATED
    if len(old.spec.tolerations) != len(new.spec.tolerations):  # they can only be added, so their number is enough
        yield Action.UPDATE_POD_TOLERATION
    if gates["DynamicResourceAllocation"] and _claims_differ(old.pod, new.pod):
        yield Action.UPDATE_POD_GENERATED_CLAIM


def _scaled_down(old: PodInfo, new: PodInfo, gates: FeatureGates) -> bool:
    """Return True if the pod requests less of any resource, or no longer requests it."""
    resizes, pod_level = gates["InPlacePodVerticalScaling"], gates["InPlacePodLevelResourcesVerticalScaling"]
    options = RequestOptions(use_status=resizes, pod_level_status=pod_level)
    before, after = old.needs_under(options).requests, new.needs_under(options).requests
    return any(name not in after or amount > after[name] for name, amount in before.items())


def _claims_differ(old: Pod, new: Pod) -> bool:
    if old.status.resource_claim_statuses != new.status.resource_claim_statuses:
        return True
    return old.status.extended_resource_claim_status != new.status.extended_resource_claim_status


def _amounts_differ(old: ResourceList, new: ResourceList) -> bool:
    """Compare by amount: ``1`` and ``1000m`` are equal."""
    if old == new:
        return False
    return old.keys() != new.keys() or any(parse(old[name]) != parse(new[name]) for name in old)


def _taints_differ(old: Node, new: Node) -> bool:
    """Return True if taints changed or the node was uncordoned, which counts as removing a taint."""
    uncordoned = old.spec.unschedulable and not new.spec.unschedulable
    return uncordoned or old.spec.taints != new.spec.taints


def _conditions(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}


_NODE_CHANGES: Final[Mapping[Action, Callable[[Node, Node], bool]]] = {
    Action.UPDATE_NODE_ALLOCATABLE: lambda old, new: _amounts_differ(old.status.allocatable, new.status.allocatable),
    Action.UPDATE_NODE_LABEL: lambda old, new: old.labels != new.labels,
    Action.UPDATE_NODE_TAINT: _taints_differ,
    Action.UPDATE_NODE_CONDITION: lambda old, new: _conditions(old) != _conditions(new),
    Action.UPDATE_NODE_ANNOTATION: lambda old, new: old.metadata.annotations != new.metadata.annotations,
}


def is_repeat(old: PodInfo, new: PodInfo) -> bool:
    """Return True if an update carries nothing new: both have the same resource version."""
    version = new.metadata.resource_version
    return version != "" and version == old.metadata.resource_version
