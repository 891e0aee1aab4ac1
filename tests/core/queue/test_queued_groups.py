"""Groups queued as one, as 1.37 does: their pods wait in one place, and are gated, delayed and tried together."""

from __future__ import annotations

import pytest

from moorage.core.queue import QueuePlace
from moorage.framework.verdicts import Code
from tests.core.engine.driving import node, pod
from tests.core.engine.test_groups_as_one import driven, high, ranked
from tests.core.engine.test_pod_groups import gang, member, messages

ACTIVE, BACKOFF, GATED = QueuePlace.ACTIVE, QueuePlace.BACKOFF, QueuePlace.GATED


def places(run):
    queue = run.engine.queue
    return {one.pod.name: one.place for one in queue.pending()}


def gated_member(name, **spec):
    return member(name, schedulingGates=[{"name": "example.com/later"}], **spec)


def test_a_gated_pod_holds_its_whole_group():
    run = driven()
    run.see(node(cpu="8"), gang(least=2), member("a"), member("b"), gated_member("c"))
    assert places(run) == {"a": GATED, "b": GATED, "c": GATED}
    assert {one.reasons for one in run.engine.queue.pending()} == {("waiting for scheduling gates: [example.com/later]",)}
    assert run.steps() == []
    run.see(member("c"))
    assert places(run) == {"a": ACTIVE, "b": ACTIVE, "c": ACTIVE}
    assert sorted(run.steps()) == [("a", "n"), ("b", "n"), ("c", "n")]


def test_the_others_of_a_deleted_gated_pod_are_retried_after_five_minutes():
    """No event concerns the plugin that gated the deleted pod."""
    run = driven()
    gated = gated_member("c")
    run.see(node(cpu="8"), gang(least=2), member("a"), member("b"), gated)
    run.gone(gated)
    assert run.steps(290.0) == []
    assert sorted(run.steps(60.0)) == [("a", "n"), ("b", "n")]


def test_a_group_that_lost_a_pod_has_to_be_complete_again():
    run = driven()
    lost = member("b")
    run.see(node(cpu="8"), gang(least=2), member("a"), lost)
    assert places(run) == {"a": ACTIVE, "b": ACTIVE}
    run.gone(lost)
    assert places(run) == {"a": GATED}
    run.see(member("c"))
    assert sorted(run.steps()) == [("a", "n"), ("c", "n")]


#: Seconds until the next attempt after each failure: the backoff doubles up to 10 s times the square root of the pods.
DELAYS = {1: [1, 2, 4, 8, 10, 10], 4: [1, 2, 4, 8, 16, 20, 20]}


@pytest.mark.parametrize("pods", DELAYS)
def test_a_large_group_waits_longer(pods):
    run = driven("GenericWorkload=true,SchedulerPopFromBackoffQ=false")
    run.see(node(cpu="0"), gang(least=1), *(member(f"p{at}") for at in range(pods)))
    assert len(run.steps()) == pods
    for expected in DELAYS[pods]:
        assert set(places(run).values()) == {BACKOFF}
        waited = 0
        while not run.steps(1.0):
            waited += 1
        assert waited in {expected, expected - 1}


def test_a_pod_that_joins_waits_for_the_backoff_of_its_group():
    run = driven("GenericWorkload=true,SchedulerPopFromBackoffQ=false")
    run.see(node(cpu="0"), gang(least=1), member("a"))
    assert run.steps() == [("a", None)]
    run.see(member("b"))
    assert places(run) == {"a": BACKOFF, "b": BACKOFF}
    assert sorted(run.steps(3.0)) == [("a", None), ("b", None)]
    run.now += 20.0
    run.see(member("c"))  # the backoff is over, and no attempt was made since
    assert places(run) == {"a": ACTIVE, "b": ACTIVE, "c": ACTIVE}


@pytest.mark.parametrize(("release", "place"), [("1.36", "n"), ("1.37", None)])
def test_a_gated_pod_keeps_the_room_that_it_is_nominated_to(release, place):
    run = driven("", release)
    held = pod("held", nominated="n", priority=10, schedulingGates=[{"name": "example.com/later"}])
    run.see(node(cpu="1"), held, pod("low"))
    assert run.steps() == [("low", place)]


def test_pods_left_over_by_a_success_are_tried_at_once_and_keep_their_turn():
    """The group has what it needs, so it may preempt for the rest before others have their turn."""
    run = driven()
    run.see(node(cpu="1"), ranked(least=1), high("a"), high("b"))
    run.now = 1.0
    run.see(pod("later", priority=10))
    first, second = run.step(), run.step()
    assert {first[1], second[1]} == {"n", None}
    assert run.step()[0] == next(name for name, where in (first, second) if where is None)
    assert run.step() == ("later", None)


def test_a_group_has_its_turn_by_its_priority_and_age():
    run = driven()
    run.see(node(cpu="8"), ranked("old", 1, 5), ranked("high", 1, 10), ranked("new", 1, 5))
    for now, name, group in ((0.0, "o", "old"), (1.0, "n", "new"), (2.0, "h", "high"), (3.0, "o2", "old")):
        run.now = now
        run.see(member(name, group=group, priority=10 if group == "high" else 5))
    assert [name for name, _ in run.steps()] == ["h", "o", "o2", "n"]


def test_what_a_failed_attempt_changed_can_be_undone():
    run = driven()
    run.see(node(cpu="0"), gang(least=1), member("a"), member("b"))
    queue = run.engine.queue
    undo = queue.save()
    before = [(one.pod.name, one.place, one.attempts) for one in queue.pending()]
    messages(run)
    assert [(one.pod.name, one.place, one.attempts) for one in queue.pending()] != before
    undo()
    assert [(one.pod.name, one.place, one.attempts) for one in queue.pending()] == before
    assert sorted(run.steps()) == [("a", None), ("b", None)]


def test_the_end_of_an_attempt_that_is_not_under_way_changes_nothing():
    run = driven()
    run.see(node(cpu="0"), gang(least=1), member("a"))
    run.engine.queue.end_group("default/g", Code.ERROR, 0.0)
    assert places(run) == {"a": ACTIVE}
