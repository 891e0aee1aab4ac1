"""The queue of earlier releases: events during an attempt while hints are off."""

from __future__ import annotations

import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.core.queue import QueuePlace, QueueProfile, SchedulingQueue
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.testing.builders import a_pod

NODE_ADDED = ClusterEvent(Resource.NODE, Action.ADD)
POD_GONE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
DRIVER_GONE = ClusterEvent(Resource.CSI_DRIVER, Action.DELETE)
WAKES = {"Fit": (Wake(ClusterEvent(Resource.POD, Action.DELETE)),), "Node": (Wake(NODE_ADDED),)}
HINTS = {"SchedulerQueueingHints": True}
NO_HINTS = {"SchedulerQueueingHints": False}
WAITS, RETRIED = QueuePlace.UNSCHEDULABLE, QueuePlace.BACKOFF

#: During an attempt → the release, its gates, the event, the plugins that reject the pod then, and its place.
ATTEMPTS = {
    "with hints, an event that the plugin does not name": ("1.36", {}, NODE_ADDED, ["Fit"], WAITS),
    "without, one that another plugin names": ("1.31.8", {}, NODE_ADDED, ["Fit"], RETRIED),
    "without, the plugin's": ("1.31.8", {}, POD_GONE, ["Fit"], RETRIED),
    "with hints in 1.31": ("1.31.8", HINTS, NODE_ADDED, ["Fit"], WAITS),
    "without hints in 1.32": ("1.32.5", NO_HINTS, NODE_ADDED, ["Fit"], RETRIED),
    "an event that no plugin names": ("1.23.5", {}, DRIVER_GONE, ["Fit"], WAITS),
    "no event": ("1.23.5", {}, None, ["Fit"], WAITS),
}


def queue_of(release, gates=None):
    profiles = {"default-scheduler": QueueProfile((), WAKES)}
    return SchedulingQueue(
        lambda queued: queued.timestamp, profiles, on_fault=lambda fault: None, gates=FeatureGates(gates, release)
    )


@pytest.mark.parametrize("case", ATTEMPTS)
def test_the_place_of_a_pod_after_an_attempt(case):
    release, gates, event, rejected_by, place = ATTEMPTS[case]
    queue = queue_of(release, gates)
    queue.add(a_pod("p"), 0.0)
    queued = queue.pop(0.0)
    if event is not None:
        queue.event(event, None, None, 0.0)
    assert queue.requeue(queued, 0.0, rejected_by=rejected_by) is place
    assert queue.logged_events == 0
