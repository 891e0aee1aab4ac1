"""Bugs that kube-scheduler's queue has had, re-created: none of them strands a pod or hoards memory here."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from moorage.core.queue import QueuePlace, QueueProfile, SchedulingQueue
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.verdicts import Hold
from moorage.testing.builders import a_pod

POD_GONE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
POD_PLACED = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
CLAIM_ADDED = ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD)


def a_queue(wakes, *gates):
    profiles = {"default-scheduler": QueueProfile(gates, wakes)}
    return SchedulingQueue(lambda queued: queued.timestamp, profiles, on_fault=lambda fault: None)


def test_a_gate_opens_on_the_event_of_the_object_it_depends_on():
    """Kubernetes 125223, 125527: gated pods were skipped by every event, also by the one that opened the gate."""
    claims = set()
    gate = ("Claims", lambda pod: None if pod.name in claims else Hold.because("no claim"))
    queue = a_queue({"Claims": (Wake(CLAIM_ADDED),)}, gate)
    assert queue.add(a_pod("p"), 0.0) is QueuePlace.GATED
    queue.event(CLAIM_ADDED, None, None, 1.0)
    assert queue.get("default/p").place is QueuePlace.GATED
    claims.add("p")
    queue.event(CLAIM_ADDED, None, None, 2.0)
    assert queue.pop(2.0).pod.name == "p"


def preemptor_whose_event_was_missed():
    """A preemptor, gated while its preemption runs; then the gate opens, and no hint says a word. Returns queue and gate."""
    running = set()
    gate = ("Preemption", lambda pod: Hold.because("preemption is running") if pod.uid in running else None)
    queue = a_queue({"Fit": (Wake(POD_GONE),), "Preemption": (Wake(POD_GONE, lambda pod, old, new: False),)}, gate)
    queue.add(a_pod("p"), 0.0)
    queued = queue.pop(0.0)
    running.add(queued.uid)
    queue.requeue(queued, 0.0, rejected_by=["Fit"])
    queue.event(POD_GONE, None, None, 0.1)
    assert queued.place is QueuePlace.GATED
    return queue, running


def test_a_gated_preemptor_with_a_missed_event_is_flushed_after_five_minutes():
    """Kubernetes 139162: a gated pod did not react to the flush, and stayed for good."""
    queue, running = preemptor_whose_event_was_missed()
    running.clear()
    assert queue.next_deadline(0.2) == 330.0
    queue.tick(330.0)
    queued = queue.pop(330.0)
    assert (queued.pod.name, queued.was_flushed) == ("p", True)


def test_a_gated_pod_is_rechecked_every_five_minutes_not_at_every_flush():
    """Kubernetes 139330, 139331: such a pod was asked every 30 s from then on, and counted as let go."""
    queue, _ = preemptor_whose_event_was_missed()
    queue.tick(330.0)
    queued = queue.get("default/p")
    assert (queued.place, queued.was_flushed, queued.timestamp) == (QueuePlace.GATED, False, 0.0)
    assert queue.next_deadline(330.0) == 660.0


ENDS = {  # how attempts end
    "bound": lambda queue, queued, now: queue.done(queued.uid),
    "deleted, then noticed": lambda queue, queued, now: (queue.delete(queued.pod, now), queue.requeue(queued, now)),
    "deleted, then skipped": lambda queue, queued, now: (queue.delete(queued.pod, now), queue.done(queued.uid)),
    "failed, then deleted": lambda queue, queued, now: (
        queue.requeue(queued, now, rejected_by=["Fit"]), queue.delete(queued.pod, now),
    ),
    "made again under its name": lambda queue, queued, now: (
        queue.delete(queued.pod, now), queue.requeue(queued, now, rejected_by=["Fit"]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_finished_attempts_leave_no_in_flight_state(end):
    """Kubernetes 120622, 126962, 138316: events for pods in flight were kept for pods that had left long ago."""
    queue = a_queue({"Fit": (Wake(POD_PLACED),)})

    def churn(rounds):
        for number in range(rounds):
            queue.add(a_pod("p", uid=f"{number}"), 1.0)
            queued = queue.pop(1.0)
            for _ in range(10):
                queue.event(POD_PLACED, None, None, 1.0)
            end(queue, queued, 1.0)

    churn(50)
    gc.freeze()  # what is there before is not collected again
    tracemalloc.start()
    churn(200)
    gc.collect()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(queue), queue.logged_events, queue.next_deadline(1.0)) == (0, 0, None)
    assert grown < 20_000


@pytest.mark.slow
def test_in_flight_events_are_dropped_when_their_attempt_ends():
    queue = a_queue({"Fit": (Wake(POD_PLACED),)})
    queue.add(a_pod("slow"), 0.0)
    slow = queue.pop(0.0)
    for _ in range(100_000):
        queue.event(POD_PLACED, None, None, 0.0)
    assert queue.logged_events == 100_000
    queue.done(slow.uid)
    assert queue.logged_events == 0


def test_an_error_after_a_rejection_counts_as_an_error():
    """Kubernetes 120334: plugins remembered from an earlier attempt parked a pod that had only met an error."""
    queue = a_queue({"Fit": (Wake(POD_GONE),)})
    queue.add(a_pod("p"), 0.0)
    assert queue.requeue(queue.pop(0.0), 0.0, rejected_by=["Fit"]) is QueuePlace.UNSCHEDULABLE
    queue.activate([a_pod("p")], 1.0)
    assert queue.requeue(queue.pop(1.0), 1.0) is QueuePlace.BACKOFF
    queue.tick(3.0)
    assert queue.get("default/p").place is QueuePlace.ACTIVE
