"""Test how pod groups and workloads are decoded, and how conditions are set."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.decode import decode
from moorage.api.pod_groups import Condition, PodGroup, PodGroupStatus, Workload, find_condition, with_condition

GANG = {
    "apiVersion": "scheduling.k8s.io/v1alpha2",
    "kind": "PodGroup",
    "metadata": {"name": "train", "namespace": "ml", "generation": 3, "uid": "u1"},
    "spec": {
        "podGroupTemplateRef": {"workload": {"workloadName": "job", "podGroupTemplateName": "workers"}},
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
        "disruptionMode": "PodGroup",
        "priorityClassName": "high",
        "priority": 100,
    },
    "status": {"conditions": None},
}


def test_a_gang_is_decoded_with_its_scheduling_fields() -> None:
    group = decode(GANG, PodGroup, "file")
    assert (group.key, group.min_count, group.priority, group.topology_keys) == ("ml/train", 4, 100, ("rack",))
    assert group.spec.disruption_mode == "PodGroup"
    assert group.metadata.generation == 3
    assert group.status.conditions == ()


def test_a_basic_group_has_no_minimum() -> None:
    group = decode({"spec": {"schedulingPolicy": {"basic": {}}}}, PodGroup, "file")
    assert group.spec.scheduling_policy.basic is not None
    assert (group.min_count, group.priority, group.topology_keys) == (None, 0, ())


def test_a_workload_is_decoded_with_its_templates() -> None:
    spec = {"podGroupTemplates": [{"name": "workers", "schedulingPolicy": {"gang": {"minCount": 2}}}]}
    workload = decode({"metadata": {"name": "job"}, "spec": spec}, Workload, "file")
    gang = workload.spec.pod_group_templates[0].scheduling_policy.gang
    assert gang is not None
    assert gang.min_count == 2


def test_a_pod_names_its_group() -> None:
    pod = decode({"spec": {"schedulingGroup": {"podGroupName": "train"}}}, Pod, "file")
    assert pod.spec.scheduling_group is not None
    assert pod.spec.scheduling_group.pod_group_name == "train"


HELD = Condition(
    type="PodGroupScheduled",
    status="False",
    reason="Unschedulable",
    message="m",
    observed_generation=1,
    last_transition_time="t0",
)
OTHER = Condition(type="DisruptionTarget", status="True", last_transition_time="t0")
NEXT = {  # the new condition, the condition that results
    "the same condition": (replace(HELD, last_transition_time=None), HELD),
    "another message": (
        replace(HELD, message="n", last_transition_time=None),
        replace(HELD, message="n"),
    ),
    "another generation": (
        replace(HELD, observed_generation=2, last_transition_time=None),
        replace(HELD, observed_generation=2),
    ),
    "another status": (
        Condition(type="PodGroupScheduled", status="True", reason="Scheduled"),
        Condition(type="PodGroupScheduled", status="True", reason="Scheduled", last_transition_time="t1"),
    ),
}


@pytest.mark.parametrize(("new", "expected"), NEXT.values(), ids=NEXT)
def test_a_condition_replaces_that_of_its_type_and_keeps_its_time_unless_the_status_changes(
    new: Condition, expected: Condition
) -> None:
    group = PodGroup(status=PodGroupStatus(conditions=(HELD, OTHER)))
    after = with_condition(group, new, "t1")
    assert after.status.conditions == (expected, OTHER)
    assert (after is group) == (expected == HELD)


def test_a_condition_of_a_new_type_is_appended() -> None:
    after = with_condition(PodGroup(status=PodGroupStatus(conditions=(OTHER,))), replace(HELD, last_transition_time=None), "t1")
    assert after.status.conditions == (OTHER, replace(HELD, last_transition_time="t1"))
    assert find_condition(after, "PodGroupScheduled") == replace(HELD, last_transition_time="t1")
    assert find_condition(after, "Other") is None
