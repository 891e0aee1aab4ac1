"""Changes of a trial wake no waiting pods, and leave the queue as it is."""

from __future__ import annotations

import pytest

import moorage
from moorage.core.queue import QueuePlace
from moorage.framework.changes import Change
from moorage.laboratory.trial.cluster_trials import ClusterTrials
from moorage.laboratory.trial.recorded_state import RecordedQueue, UndoLog
from tests.laboratory.test_explanations import node, pod


def places(cluster):
    return {one.pod.name: one.place for one in cluster.scheduler.queue.ranked()} | {
        name: cluster.scheduler.queue.get(cluster.pod(name).metadata.uid).place for name in ("big", "other")
    }


def waiting():
    """A cluster in which two pods are unschedulable, and a label that helps the first."""
    cluster = moorage.Cluster.from_objects(
        node("n1"), pod("big", cpu="2", nodeSelector={"disk": "ssd"}), pod("other", nodeSelector={"disk": "ssd"})
    )
    cluster.schedule()
    assert set(places(cluster).values()) == {QueuePlace.UNSCHEDULABLE}
    return cluster, Change("node", "label", "node/n1", "labels.disk", None, "ssd")


def test_an_event_wakes_pods_except_in_the_block():
    cluster, label = waiting()
    with cluster.transaction(), cluster.scheduler.queue.waking_nobody():
        cluster.apply(label)
        assert set(places(cluster).values()) == {QueuePlace.UNSCHEDULABLE}
    with cluster.transaction():
        cluster.apply(label)
        assert QueuePlace.UNSCHEDULABLE not in places(cluster).values()
    assert set(places(cluster).values()) == {QueuePlace.UNSCHEDULABLE}


def test_a_trial_wakes_nobody_unless_pods_ahead_are_tried_first(monkeypatch):
    cluster, label = waiting()
    woken = []
    event = RecordedQueue.event
    monkeypatch.setattr(RecordedQueue, "event", lambda self, *args: woken.append(event(self, *args)) or woken[-1])
    assert ClusterTrials(cluster, "default/big").attempt([label]).node == "n1"
    assert not any(woken)
    assert ClusterTrials(cluster, "default/big", with_queue=True).attempt([label]).node == "n1"
    assert any(woken)


def test_after_an_entry_that_raises_changes_are_recorded_again():
    log, undone = UndoLog(), []

    def broken():
        raise RuntimeError("cannot be undone")

    log.begin()  # the transaction around
    log.begin()
    log.add(lambda: undone.append("first"))
    log.add(broken)
    with pytest.raises(RuntimeError, match="cannot be undone"):
        log.roll_back()
    assert log.is_new("part")  # not while changes are reversed
    assert (log.roll_back(), undone) == (False, [])  # what is left has to be rebuilt
