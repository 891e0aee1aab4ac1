"""What a change of an object is called."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.core import Namespace, Node, Pod, ReplicationController
from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import find_release
from moorage.core.queue.cluster_events import assigned_pod_events, node_events, object_events, own_changes, pod_changes
from moorage.state.pod_info import PodInfo


def labels_of(events):
    return [str(event) for event in events]


def a_pod(spec=None, status=None, **metadata):
    return PodInfo(
        msgspec.convert({"metadata": {"name": "p", "uid": "u", **metadata}, "spec": spec or {}, "status": status or {}}, Pod)
    )


def asking(**requests):
    return {"containers": [{"name": "c", "resources": {"requests": requests}}]}


def gated_by(*names):
    return {"schedulingGates": [{"name": name} for name in names]}


def offering(**amounts):
    return {"allocatable": amounts}


CLAIM = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}]}
EXTENDED_CLAIM = {"extendedResourceClaimStatus": {"resourceClaimName": "c"}}
POD_CHANGES = {  # old, new, events
    "nothing to speak of": (a_pod(), a_pod(annotations={"a": "b"}), ["Update"]),
    "labels": (a_pod(), a_pod(labels={"app": "web"}), ["UpdatePodLabel"]),
    "asks for less": (a_pod(asking(cpu="2")), a_pod(asking(cpu="1")), ["UpdatePodScaleDown"]),
    "asks for more": (a_pod(asking(cpu="1")), a_pod(asking(cpu="2")), ["Update"]),
    "asks for as much in other words": (a_pod(asking(cpu="1")), a_pod(asking(cpu="1000m")), ["Update"]),
    "no longer asks": (a_pod(asking(cpu="1", memory="1Gi")), a_pod(asking(cpu="1")), ["UpdatePodScaleDown"]),
    "a gate less": (a_pod(gated_by("a", "b")), a_pod(gated_by("a")), ["Update"]),
    "no gate left": (a_pod(gated_by("a")), a_pod(), ["UpdatePodSchedulingGatesEliminated"]),
    "a toleration more": (a_pod(), a_pod({"tolerations": [{"operator": "Exists"}]}), ["UpdatePodToleration"]),
    "a claim made": (a_pod(), a_pod(status=CLAIM), ["UpdatePodGeneratedResourceClaim"]),
    "an extended claim made": (a_pod(), a_pod(status=EXTENDED_CLAIM), ["UpdatePodGeneratedResourceClaim"]),
    "several at once": (
        a_pod({**asking(cpu="2"), **gated_by("a")}),
        a_pod({**asking(cpu="1"), "tolerations": [{"operator": "Exists"}]}, labels={"app": "web"}),
        ["UpdatePodLabel", "UpdatePodScaleDown", "UpdatePodSchedulingGatesEliminated", "UpdatePodToleration"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "events"), POD_CHANGES.values(), ids=POD_CHANGES)
def test_events_of_an_unscheduled_pod_update(old, new, events):
    assert labels_of(pod_changes(old, new)) == [f"UnschedulablePod{event}" for event in events]


@pytest.mark.parametrize(
    ("release", "hints", "any_update"), [("1.30", True, True), ("1.31", True, False), ("1.31", False, True)]
)
def test_any_update_of_a_waiting_pod_retries_it_up_to_1_30_and_without_hints(release, hints, any_update):
    gates = FeatureGates({"SchedulerQueueingHints": hints}, find_release(release).name)
    old, new = a_pod(), a_pod(labels={"app": "web"})
    assert labels_of(own_changes(old, new, gates)) == ["PodUpdate" if any_update else "UnschedulablePodUpdatePodLabel"]
    reported = a_pod({}, {"conditions": [{"type": "PodScheduled", "status": "False"}]})
    assert labels_of(own_changes(old, reported, gates)) == ([] if any_update else ["UnschedulablePodUpdate"])


def resized(spec, reported):
    status = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": reported}}}]}
    return a_pod({**asking(cpu=spec), "nodeName": "n1"}, status)


@pytest.mark.parametrize(("resizes", "event"), [(True, "UpdatePodScaleDown"), (False, "Update")])
def test_a_completed_resize_frees_resources(resizes, event):
    gates = FeatureGates({"InPlacePodVerticalScaling": resizes})
    assert labels_of(pod_changes(resized("1", "2"), resized("1", "1"), gates)) == [f"AssignedPod{event}"]


def test_claims_are_ignored_without_dynamic_resource_allocation():
    old, new, _ = POD_CHANGES["a claim made"]
    gates = FeatureGates({"DynamicResourceAllocation": False})
    assert labels_of(pod_changes(old, new, gates)) == ["UnschedulablePodUpdate"]


PENDING, PLACED, RELABELLED = a_pod(), a_pod({"nodeName": "n1"}), a_pod({"nodeName": "n1"}, labels={"app": "web"})
ASSIGNED = {  # old, new, events
    "a pending pod comes": (None, PENDING, []),
    "a pending pod changes": (PENDING, a_pod(labels={"app": "web"}), []),
    "a pending pod goes": (PENDING, None, []),
    "is bound": (PENDING, PLACED, ["AssignedPodAdd"]),
    "comes bound": (None, PLACED, ["AssignedPodAdd"]),
    "changes": (PLACED, RELABELLED, ["AssignedPodUpdatePodLabel"]),
    "goes": (PLACED, None, ["AssignedPodDelete"]),
}


@pytest.mark.parametrize(("old", "new", "events"), ASSIGNED.values(), ids=ASSIGNED)
def test_events_of_an_assigned_pod_update(old, new, events):
    assert labels_of(assigned_pod_events(old, new)) == events


def a_node(spec=None, status=None, **metadata):
    return msgspec.convert({"metadata": {"name": "n", **metadata}, "spec": spec or {}, "status": status or {}}, Node)


TAINT = {"key": "gpu", "effect": "NoSchedule"}
NODE_CHANGES = {  # old, new, events
    "comes": (None, a_node(), ["Add"]),
    "goes": (a_node(), None, ["Delete"]),
    "heartbeat": (a_node(status={"volumesInUse": []}), a_node(status={"volumesInUse": ["v"]}), []),
    "more to give": (a_node(status=offering(cpu="1")), a_node(status=offering(cpu="2")), ["UpdateNodeAllocatable"]),
    "as much in other words": (a_node(status=offering(cpu="1")), a_node(status=offering(cpu="1000m")), []),
    "a resource more": (a_node(), a_node(status=offering(gpu="0")), ["UpdateNodeAllocatable"]),
    "labels": (a_node(), a_node(labels={"disk": "ssd"}), ["UpdateNodeLabel"]),
    "taints": (a_node({"taints": [TAINT]}), a_node(), ["UpdateNodeTaint"]),
    "cordoned": (a_node(), a_node({"unschedulable": True}), []),
    "uncordoned": (a_node({"unschedulable": True}), a_node(), ["UpdateNodeTaint"]),
    "uncordoned and untainted": (a_node({"unschedulable": True, "taints": [TAINT]}), a_node(), ["UpdateNodeTaint"]),
    "condition": (
        a_node(status={"conditions": [{"type": "Ready", "status": "False"}]}),
        a_node(status={"conditions": [{"type": "Ready", "status": "True"}]}), ["UpdateNodeCondition"],
    ),
    "condition's wording": (
        a_node(status={"conditions": [{"type": "Ready", "status": "True", "message": "a"}]}),
        a_node(status={"conditions": [{"type": "Ready", "status": "True", "message": "b"}]}), [],
    ),
    "annotations": (a_node(), a_node(annotations={"a": "b"}), ["UpdateNodeAnnotation"]),
    "declared features": (a_node(), a_node(status={"declaredFeatures": ["F"]}), ["UpdateNodeDeclaredFeature"]),
    "several at once": (
        a_node(), a_node({"taints": [TAINT]}, {"allocatable": {"cpu": "1"}}, labels={"a": "b"}),
        ["UpdateNodeAllocatable", "UpdateNodeLabel", "UpdateNodeTaint"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "events"), NODE_CHANGES.values(), ids=NODE_CHANGES)
def test_events_of_a_node_update(old, new, events):
    assert labels_of(node_events(old, new)) == [f"Node{event}" for event in events]


def test_declared_features_are_ignored_without_their_gate():
    old, new, _ = NODE_CHANGES["declared features"]
    assert node_events(old, new, FeatureGates({"NodeDeclaredFeatures": False})) == ()


class CSINode(Namespace):
    pass


OBJECTS = {  # old, new, events
    "comes": (None, Namespace(), ["NamespaceAdd"]),
    "changes": (Namespace(), Namespace(), ["NamespaceUpdate"]),
    "goes": (Namespace(), None, ["NamespaceDelete"]),
    "of an API group": (None, CSINode(), ["storage.k8s.io/CSINodeAdd"]),
    "not a registrable kind": (None, ReplicationController(), []),
}


@pytest.mark.parametrize(("old", "new", "events"), OBJECTS.values(), ids=OBJECTS)
def test_events_of_other_object_updates(old, new, events):
    assert labels_of(object_events(old, new)) == events
