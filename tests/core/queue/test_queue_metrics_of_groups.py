"""What the metrics of the queue say of groups that are queued as one, as kube-scheduler 1.37 counts them.

Source  kube-scheduler 1.37, backend/queue/scheduling_queue.go, addPodGroupMember, DeleteGenericPodGroup,
        recordIncomingEntitiesMetrics, AddAttemptedPodGroupIfNeeded
"""

from __future__ import annotations

import pytest

from moorage.core.queue import QueuePlace
from moorage.framework.verdicts import Code
from tests.core.engine.driving import node, pod
from tests.core.engine.test_group_trees import GATES as TREES
from tests.core.engine.test_group_trees import composite, leaf, workers
from tests.core.engine.test_groups_as_one import driven
from tests.core.engine.test_pod_groups import gang, member

ACTIVE, BACKOFF, GATED = QueuePlace.ACTIVE, QueuePlace.BACKOFF, QueuePlace.GATED
ADDED = "UnschedulablePodAdd"
FAILED = "ScheduleAttemptFailure"

#: What is seen, gates beyond GenericWorkload → pods without their group; entities that wait, by (place, kind).
WITHOUT = {
    "a group that is there": ((gang(), member("a"), member("b")), "", 0, {(ACTIVE, "podgroup"): 1}),
    "a group that is incomplete": ((gang(least=3), member("a")), "", 0, {(GATED, "podgroup"): 1}),
    "no group": ((member("a"), member("b"), pod("p")), "", 2, {(ACTIVE, "pod"): 1}),
    "a group that comes later": ((member("a"), member("b"), gang()), "", 0, {(ACTIVE, "podgroup"): 1}),
    "a tree": ((composite("top"), leaf("g", "top"), *workers("g", 2)), TREES, 0, {}),
    "a tree without its root": ((leaf("g", "top"), *workers("g", 2)), TREES, 2, {}),
    "a parent while trees are off": ((leaf("g", "top"), *workers("g", 2)), "", 0, {(ACTIVE, "podgroup"): 1}),
}


@pytest.mark.parametrize("case", WITHOUT)
def test_pods_without_their_group_are_counted_apart(case):
    objects, gates, incomplete, entities = WITHOUT[case]
    run = driven(gates or "GenericWorkload=true")
    run.see(node(), *objects)
    queue = run.engine.queue
    assert queue.counts_of_groups() == {"incomplete": incomplete, "pending": 0}
    assert dict(queue.entities()) == entities
    assert not (incomplete and queue.rejections())


def test_other_releases_have_no_such_counts():
    run = driven("GenericWorkload=true,GangScheduling=true", "1.36")
    run.see(member("a"))
    assert run.engine.queue.counts_of_groups() == {}


def test_a_group_that_is_deleted_leaves_its_waiting_pods_without_one():
    run = driven()
    run.see(node(cpu="8"), gang(), member("a"), member("b"))
    run.gone(gang())
    assert run.engine.queue.counts_of_groups()["incomplete"] == 2
    assert run.steps() == []
    run.see(gang())
    assert sorted(run.steps()) == [("a", "n"), ("b", "n")]


def test_a_pod_that_joins_counts_all_pods_of_its_group_again():
    run = driven()
    run.see(node(cpu="0"), gang(least=1), member("a"), member("b"), member("c"), pod("p"))
    queue = run.engine.queue
    assert (queue.members_in["active", ADDED], queue.incoming["active", ADDED]) == (1 + 2 + 3, 1)
    assert dict(queue.incoming_entities()) == {("active", ADDED, "pod"): 1, ("active", ADDED, "podgroup"): 1}


def test_a_group_counts_at_each_new_place():
    run = driven("GenericWorkload=true,SchedulerPopFromBackoffQ=false")
    run.see(node(cpu="0"), gang(least=1), member("a"), member("b"))
    run.steps()
    run.steps(3.0)
    groups = {
        (place, event): count for (place, event, kind), count in run.engine.queue.incoming_entities() if kind == "podgroup"
    }
    assert groups == {("active", ADDED): 1, ("backoff", FAILED): 2, ("active", "BackoffComplete"): 1}


def test_pods_that_come_back_wait_for_the_end_of_their_groups_attempt():
    run = driven()
    run.see(node(cpu="8"), gang(), member("a"), member("b"))
    queue = run.engine.queue
    first = queue.pop(0.0)
    queue.requeue(first, 0.0, rejected_by=["NodeResourcesFit"])
    assert queue.counts_of_groups() == {"incomplete": 0, "pending": 1}
    queue.end_group("default/g", Code.UNSCHEDULABLE, 0.0)
    assert queue.counts_of_groups() == {"incomplete": 0, "pending": 0}


@pytest.mark.parametrize(("came_back", "since"), [(True, 0.0), (False, 5.0)])
def test_a_success_ends_the_backoff_of_a_group_and_keeps_its_turn_for_those_that_failed(came_back, since):
    """Source  AddAttemptedPodGroupIfNeeded: both counts of failures end; only pods of the attempt keep the old time."""
    run = driven()
    run.see(node(cpu="8"), gang(least=1), member("a"))
    queue = run.engine.queue
    popped = queue.pop(0.0)
    group = queue._groups["default/g"]
    group.unschedulable_count, group.consecutive_errors = 3, 2
    if came_back:
        queue.requeue(popped, 5.0, rejected_by=["NodeResourcesFit"])
    else:
        queue.done(popped.uid)
        run.now = 5.0
        run.see(member("late"))
    queue.end_group("default/g", Code.SUCCESS, 5.0)
    assert (group.unschedulable_count, group.consecutive_errors, group.timestamp) == (0, 0, since)
