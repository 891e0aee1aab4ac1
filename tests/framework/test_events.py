"""Events carry the names that kube-scheduler's logs and metrics give them."""

from __future__ import annotations

import pytest

from moorage.framework.events import ANY_EVENT, Action, ClusterEvent, Resource

LABELS = {  # the event, its name
    "AssignedPodAdd": ClusterEvent(Resource.ASSIGNED_POD, Action.ADD),
    "AssignedPodDelete": ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE),
    "UnschedulablePodUpdate": ClusterEvent(Resource.UNSCHEDULED_POD, Action.UPDATE_OTHER),
    "UnschedulablePodUpdatePodToleration": ClusterEvent(Resource.UNSCHEDULED_POD, Action.UPDATE_POD_TOLERATION),
    "UnschedulablePodUpdatePodSchedulingGatesEliminated": ClusterEvent(
        Resource.UNSCHEDULED_POD, Action.UPDATE_POD_GATES_ELIMINATED
    ),
    "UnschedulablePodUpdatePodGeneratedResourceClaim": ClusterEvent(
        Resource.UNSCHEDULED_POD, Action.UPDATE_POD_GENERATED_CLAIM
    ),
    "NodeUpdateNodeTaint": ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT),
    "storage.k8s.io/CSINodeUpdate": ClusterEvent(Resource.CSI_NODE, Action.UPDATE),
    "*All": ANY_EVENT,
    "UnschedulableTimeout": ClusterEvent(Resource.ANY, Action.ALL, "UnschedulableTimeout"),
}


@pytest.mark.parametrize(("label", "event"), LABELS.items(), ids=LABELS)
def test_events_are_named_as_in_kube_schedulers_metrics(label, event):
    assert str(event) == label


@pytest.mark.parametrize("happened", [Action.UPDATE_OTHER, Action.UPDATE_POD_LABEL])
def test_an_interest_in_updates_covers_every_kind_of_update(happened):
    assert ClusterEvent(Resource.POD, Action.UPDATE).covers(ClusterEvent(Resource.ASSIGNED_POD, happened))


def test_an_interest_in_one_kind_of_update_does_not_cover_an_unspecific_one():
    interest = ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL)
    assert not interest.covers(ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_OTHER))
