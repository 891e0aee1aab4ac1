"""A pending pod's life: who is next, where a failed pod waits, and what brings it back."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.core.queue import QueuePlace, QueueProfile, QueueTimes, SchedulingQueue, node_events
from moorage.errors import StateError
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import Hold
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.plugins.priority_sort import PrioritySort
from moorage.plugins.scheduling_gates import SchedulingGates
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_node, a_pod

NODE_ADDED = ClusterEvent(Resource.NODE, Action.ADD)
NODE_LABELLED = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
POD_GONE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
CLAIM_ADDED = ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD)
NO_EARLY_POP = FeatureGates({"SchedulerPopFromBackoffQ": False})


def by_priority(queued):
    return -queued.pod.priority, queued.timestamp


def own_labels(pod, old, new):
    return new.uid == pod.uid


WAKES = {
    "Fit": (
        Wake(ClusterEvent(Resource.POD, Action.DELETE)),
        Wake(ClusterEvent(Resource.POD, Action.UPDATE_POD_SCALE_DOWN | Action.UPDATE_POD_LABEL), own_labels),
    ),
    "Zone": (Wake(NODE_LABELLED),),
    "Wait": (Wake(NODE_ADDED),),
    "Claims": (Wake(ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD)),),
    "SchedulingGates": (Wake(ClusterEvent(Resource.POD, Action.UPDATE_POD_GATES_ELIMINATED), own_labels),),
}


def scheduling_gates(pod):
    return Hold.because("waiting for scheduling gates") if pod.spec.scheduling_gates else None


class World:
    """A queue, the gates that a test opens and closes, and the reported faults."""

    def __init__(self, **settings):
        self.closed = set()
        self.asked = []
        self.faults = []
        gates = (("SchedulingGates", scheduling_gates), ("Claims", self._claims))
        profiles = {"default-scheduler": QueueProfile(gates, WAKES)}
        self.queue = SchedulingQueue(by_priority, profiles, on_fault=self.faults.append, **settings)

    def _claims(self, pod):
        self.asked.append(pod.name)
        return Hold.because("claim is missing") if pod.name in self.closed else None

    def place(self, name):
        queued = self.queue.get(f"default/{name}")
        return None if queued is None else queued.place

    def names(self, now=0.0):
        """Pop everything."""
        return [queued.pod.name for queued in iter(lambda: self.queue.pop(now), None)]

    def failed(self, name="p", *, now=0.0, times=1, rejected_by=("Fit",), **spec):
        """Let a pod fail some attempts; returns the place it is in then."""
        self.queue.add(a_pod(name, **spec), now)
        for _ in range(times):
            self.queue.activate([a_pod(name)], now)
            queued = self.queue.pop(now)
            assert queued.pod.name == name
            place = self.queue.requeue(queued, now, rejected_by=rejected_by)
        return place


def changed(pod, *, labels=None, status=None, version="", **spec):
    """Return the pod with some of it changed."""
    new = msgspec.to_builtins(pod.pod)
    new["spec"].update(spec)
    new["metadata"].update({"labels": labels or {}, "resourceVersion": version})
    new["status"] = status or {}
    return PodInfo(msgspec.convert(new, type(pod.pod)))


# -- whose turn it is ---------------------------------------------------------------------------------------------------


def test_pods_pop_by_priority_then_by_queue_time():
    world = World()
    for at, (name, priority) in enumerate([("a", 0), ("b", 5), ("c", 0), ("d", 5)]):
        world.queue.add(a_pod(name, priority=priority), float(at))
    assert world.names(9.0) == ["b", "d", "a", "c"]


def test_pods_of_the_same_queue_time_keep_their_order():
    world = World()
    for name in "abcd":
        world.queue.add(a_pod(name), 0.0)
    assert world.names() == ["a", "b", "c", "d"]


def test_a_failed_pod_pops_after_its_equals():
    world = World()
    for name in "ab":
        world.queue.add(a_pod(name), 0.0)
    failed = world.queue.pop(0.0)
    world.queue.requeue(failed, 0.0, rejected_by=["Fit"])
    world.queue.activate([failed.pod], 0.0)
    assert world.names() == ["b", "a"]


def test_a_priority_change_reorders_the_pod():
    world = World()
    for name in "ab":
        world.queue.add(a_pod(name), 0.0)
    world.queue.update(a_pod("b"), changed(a_pod("b"), priority=7), 1.0)
    assert world.names(1.0) == ["b", "a"]


def test_an_empty_active_queue_pops_from_backoff():
    world = World()
    world.failed("early")
    world.failed("errored", rejected_by=())
    world.queue.event(POD_GONE, a_pod("other"), None, 0.5)
    assert world.place("early") is QueuePlace.BACKOFF
    world.queue.add(a_pod("ready"), 0.6)
    assert world.names(0.6) == ["ready", "early"]
    assert world.place("errored") is QueuePlace.BACKOFF
    assert world.queue.incoming["active", "PopFromBackoffQ"] == 1


def test_no_pod_pops_from_backoff_without_the_gate():
    world = World(gates=NO_EARLY_POP)
    world.failed()
    world.queue.event(POD_GONE, a_pod("other"), None, 0.5)
    assert world.names(1.0) == []
    assert world.names(2.0) == ["p"]


def test_a_pod_past_its_backoff_is_ready_without_a_flush():
    world = World()
    world.failed("great", priority=9)
    world.queue.event(POD_GONE, a_pod("other"), None, 0.5)
    world.queue.add(a_pod("small"), 0.0)
    assert world.names(2.0) == ["great", "small"]


# -- where a failed pod waits -------------------------------------------------------------------------------------------

AFTER = {  # rejected by, pending, what happens meanwhile, place
    "turned down": (["Fit"], [], [], QueuePlace.UNSCHEDULABLE),
    "an error": ([], [], [], QueuePlace.BACKOFF),
    "something that its plugin waits for happened": (["Fit"], [], [POD_GONE], QueuePlace.BACKOFF),
    "something else happened": (["Fit"], [], [NODE_LABELLED], QueuePlace.UNSCHEDULABLE),
    "the second of two things mattered": (["Zone"], [], [POD_GONE, NODE_LABELLED], QueuePlace.BACKOFF),
    "what a pending plugin waits for happened": (["Fit"], ["Wait"], [NODE_ADDED], QueuePlace.ACTIVE),
    "both": (["Fit"], ["Wait"], [POD_GONE, NODE_ADDED], QueuePlace.ACTIVE),
    "only the other plugin's": (["Fit"], ["Wait"], [POD_GONE], QueuePlace.BACKOFF),
}


@pytest.mark.parametrize(("rejected_by", "pending_on", "events", "place"), AFTER.values(), ids=AFTER)
def test_the_queue_of_a_pod_after_a_failed_attempt(rejected_by, pending_on, events, place):
    world = World()
    world.queue.add(a_pod("p"), 0.0)
    queued = world.queue.pop(0.0)
    for event in events:
        world.queue.event(event, None, None, 0.0)
    assert world.queue.requeue(queued, 0.0, rejected_by=rejected_by, pending_on=pending_on) is place
    assert world.queue.logged_events == 0


def test_only_events_during_the_attempt_count_for_it():
    world = World()
    for name in "abc":
        world.queue.add(a_pod(name), 0.0)
    first = world.queue.pop(0.0)
    world.queue.event(POD_GONE, None, None, 0.0)
    second = world.queue.pop(0.0)
    assert world.queue.requeue(second, 0.0, rejected_by=["Fit"]) is QueuePlace.UNSCHEDULABLE
    assert world.queue.requeue(first, 0.0, rejected_by=["Fit"]) is QueuePlace.BACKOFF


def test_activating_a_pod_in_flight_requeues_only_that_pod():
    world = World()
    for name in "ab":
        world.queue.add(a_pod(name), 0.0)
    first, second = world.queue.pop(0.0), world.queue.pop(0.0)
    world.queue.activate([first.pod], 0.0)
    assert world.queue.requeue(first, 0.0, rejected_by=["Fit"]) is QueuePlace.BACKOFF
    assert world.queue.requeue(second, 0.0, rejected_by=["Fit"]) is QueuePlace.UNSCHEDULABLE


def test_a_pod_with_a_failed_binding_is_requeued_after_done():
    world = World()
    world.queue.add(a_pod("p"), 0.0)
    queued = world.queue.pop(0.0)
    world.queue.done(queued.uid)
    assert len(world.queue) == 0
    assert world.queue.requeue(queued, 1.0, rejected_by=["Fit"]) is QueuePlace.BACKOFF
    assert queued.backoff_until == 2.0


def test_a_queued_pod_cannot_be_requeued():
    world = World()
    world.queue.add(a_pod("p"), 0.0)
    queued = world.queue.pop(0.0)
    world.queue.requeue(queued, 0.0, rejected_by=["Fit"])
    with pytest.raises(StateError, match=r"default/p .* came back from an attempt, but it is unschedulable already"):
        world.queue.requeue(queued, 0.0, rejected_by=["Fit"])


def test_a_pod_deleted_during_its_attempt_is_not_requeued():
    world = World()
    world.queue.add(a_pod("p"), 0.0)
    queued = world.queue.pop(0.0)
    assert world.queue.delete(queued.pod, 0.0) is queued
    assert world.queue.requeue(queued, 0.0, rejected_by=["Fit"]) is None
    world.queue.nominate(queued.pod, "n1")
    assert (len(world.queue), world.queue.logged_events, dict(world.queue.nominated)) == (0, 0, {})


def test_a_skipped_pod_drops_its_nomination():
    world = World()
    world.queue.add(a_pod("p"), 0.0)
    queued = world.queue.pop(0.0)
    world.queue.nominate(queued.pod, "n1")
    world.queue.done(queued.uid)
    assert dict(world.queue.nominated) == {}


def test_a_pod_changed_during_its_attempt_is_requeued_in_its_new_version():
    world = World()
    world.queue.add(a_pod("p"), 0.0)
    queued = world.queue.pop(0.0)
    new = changed(a_pod("p"), labels={"app": "web"})
    world.queue.update(a_pod("p"), new, 0.0)
    assert world.queue.requeue(queued, 0.0, rejected_by=["Fit"]) is QueuePlace.BACKOFF
    assert world.queue.pop(0.0).pod is new


def test_errors_and_rejections_are_counted_separately():
    world = World()
    world.failed(times=3)
    queued = world.queue.get("default/p")
    assert (queued.attempts, queued.unschedulable_count, queued.consecutive_errors) == (3, 3, 0)
    world.queue.activate([queued.pod], 0.0)
    world.queue.requeue(world.queue.pop(0.0), 0.0)
    assert (queued.unschedulable_count, queued.consecutive_errors) == (3, 1)
    assert world.queue.next_deadline(0.0) == 2.0
    world.queue.activate([queued.pod], 0.0)
    world.queue.requeue(world.queue.pop(0.0), 0.0, rejected_by=["Fit"])
    assert (queued.unschedulable_count, queued.consecutive_errors) == (4, 0)


# -- what brings parked pods back ---------------------------------------------------------------------------------------

MOVES = {  # turned down by, event, after seconds, place
    "at once: still backing off": (["Fit"], POD_GONE, 0.5, QueuePlace.BACKOFF),
    "in the window in which its backoff ends": (["Fit"], POD_GONE, 1.9, QueuePlace.BACKOFF),
    "its backoff is over": (["Fit"], POD_GONE, 2.0, QueuePlace.ACTIVE),
    "an unregistered event": (["Fit"], NODE_LABELLED, 2.0, QueuePlace.UNSCHEDULABLE),
    "one of two plugins asked for this": (["Fit", "Zone"], NODE_LABELLED, 2.0, QueuePlace.ACTIVE),
}


@pytest.mark.parametrize(("rejected_by", "event", "now", "place"), MOVES.values(), ids=MOVES)
def test_an_event_moves_the_pods_whose_plugins_registered_it(rejected_by, event, now, place):
    world = World()
    world.failed(rejected_by=rejected_by)
    assert world.queue.event(event, None, None, now) == (place is not QueuePlace.UNSCHEDULABLE)
    assert world.place("p") is place


def test_an_event_can_be_for_some_pods_only():
    world = World()
    world.failed("small", priority=1)
    world.failed("great", priority=5)
    assert world.queue.event(POD_GONE, None, None, 5.0, only=lambda pod: pod.priority <= 3) == 1
    assert world.names(5.0) == ["small"]


def test_a_label_event_skips_pods_without_a_label_plugin():
    asked = []
    wakes = {
        "Fit": (Wake(POD_GONE, lambda pod, old, new: bool(asked.append(pod.name))),),
        "Zone": (Wake(NODE_LABELLED, lambda pod, old, new: bool(asked.append(pod.name))),),
    }
    queue = SchedulingQueue(by_priority, {"default-scheduler": QueueProfile((), wakes)}, on_fault=lambda fault: None)
    for name, plugin in [("a", "Fit"), ("b", "Zone"), ("c", "Fit")]:
        queue.add(a_pod(name), 0.0)
        queue.requeue(queue.pop(0.0), 0.0, rejected_by=[plugin])
    queue.event(NODE_LABELLED, None, None, 5.0)
    assert asked == ["b"]


OWN = {  # turned down by, what changes, place
    "what its plugin waits for": (["Fit"], {"labels": {"app": "web"}}, QueuePlace.ACTIVE),
    "what another plugin waits for": (["Zone"], {"labels": {"app": "web"}}, QueuePlace.UNSCHEDULABLE),
    "nothing in particular": (["Fit"], {"status": {"phase": "Pending"}}, QueuePlace.UNSCHEDULABLE),
}


@pytest.mark.parametrize(("rejected_by", "change", "place"), OWN.values(), ids=OWN)
def test_an_update_of_an_unschedulable_pod_can_move_it(rejected_by, change, place):
    world = World()
    world.failed(rejected_by=rejected_by)
    new = changed(a_pod("p"), **change)
    assert world.queue.update(a_pod("p"), new, 5.0) is place
    assert world.queue.get("default/p").pod is new


def test_two_events_of_one_change_move_a_pod_once():
    world = World()
    asking = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
    world.failed(**asking)
    less = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    old = a_pod("p", **asking)
    assert world.queue.update(old, changed(old, labels={"app": "web"}, **less), 5.0) is QueuePlace.ACTIVE
    moves = {event: count for (_, event), count in world.queue.incoming.items() if event.startswith("UnschedulablePodUpdate")}
    assert moves == {"UnschedulablePodUpdatePodLabel": 1}


def test_a_repeated_update_changes_nothing():
    world = World()
    world.failed()
    old = changed(a_pod("p"), version="7")
    world.queue.update(old, changed(a_pod("p"), labels={"app": "web"}, version="7"), 5.0)
    assert world.place("p") is QueuePlace.UNSCHEDULABLE


def test_a_recreated_pod_is_a_new_queue_entry():
    world = World()
    world.failed()
    world.queue.update(a_pod("p"), a_pod("p", uid="second"), 5.0)
    assert [line.pod.uid for line in world.queue.pending()] == ["second"]
    assert world.queue.get("second").unschedulable_count == 0


def test_update_of_an_unknown_pod_adds_and_add_of_a_known_pod_updates():
    world = World()
    world.queue.update(a_pod("p"), a_pod("p"), 0.0)
    world.queue.add(changed(a_pod("p"), labels={"app": "web"}), 0.0)
    assert len(world.queue) == 1
    assert world.queue.pop(0.0).pod.labels == {"app": "web"}


def test_activated_pods_skip_backoff():
    world = World()
    world.failed("parked")
    world.failed("errored", rejected_by=())
    world.queue.activate([a_pod("parked"), a_pod("errored"), a_pod("stranger")], 0.0)
    assert world.names() == ["parked", "errored"]


def test_pods_without_a_profile_are_rejected():
    with pytest.raises(StateError, match="names scheduler other, which no profile has"):
        World().queue.add(a_pod("p", schedulerName="other"), 0.0)


# -- gates --------------------------------------------------------------------------------------------------------------


def test_a_gated_pod_waits_only_for_its_gate():
    world = World()
    gated = a_pod("p", schedulingGates=[{"name": "quota"}])
    assert world.queue.add(gated, 0.0) is QueuePlace.GATED
    for event in (POD_GONE, NODE_LABELLED, CLAIM_ADDED):
        assert world.queue.event(event, None, None, 1.0) == 0
    (line,) = world.queue.pending()
    assert (line.place, line.plugins, line.reasons) == (
        QueuePlace.GATED,
        ("SchedulingGates",),
        ("waiting for scheduling gates",),
    )
    assert world.queue.update(gated, changed(gated, schedulingGates=[]), 2.0) is QueuePlace.ACTIVE
    assert (world.queue.counts()[QueuePlace.GATED], world.names(2.0)) == (0, ["p"])


def test_the_gating_plugin_runs_before_the_others():
    world = World()
    gated = a_pod("p", schedulingGates=[{"name": "quota"}])
    world.queue.add(gated, 0.0)
    assert world.asked == []
    world.closed.add("p")
    assert world.queue.update(gated, changed(gated, schedulingGates=[]), 1.0) is QueuePlace.GATED
    assert world.queue.get("default/p").gated_by == "Claims"
    world.closed.clear()
    assert world.queue.event(CLAIM_ADDED, None, None, 2.0) == 1
    assert world.queue.get("default/p").gate is None


def test_a_failed_pod_can_be_gated_before_backoff():
    world = World()
    world.failed(now=10.0)
    world.closed.add("p")
    assert world.queue.event(POD_GONE, None, None, 10.5) == 0
    assert world.place("p") is QueuePlace.GATED
    world.closed.clear()
    assert world.queue.event(POD_GONE, None, None, 10.5) == 0
    assert world.queue.event(CLAIM_ADDED, None, None, 10.6) == 1
    assert world.place("p") is QueuePlace.BACKOFF


@pytest.mark.parametrize(("gates", "asked"), [(FeatureGates(), 2), (NO_EARLY_POP, 2)])
def test_pre_enqueue_runs_once_on_the_way_through_backoff(gates, asked):
    world = World(gates=gates)
    world.failed()
    world.queue.event(POD_GONE, None, None, 0.5)
    world.queue.tick(5.0)
    assert world.place("p") is QueuePlace.ACTIVE
    assert len(world.asked) == asked


def test_a_raising_pre_enqueue_plugin_gates_the_pod_and_is_reported():
    faults = []
    profile = QueueProfile((("Broken", lambda pod: 1 // 0),), {"Broken": (Wake(NODE_ADDED),)})
    queue = SchedulingQueue(by_priority, {"default-scheduler": profile}, on_fault=faults.append)
    assert queue.add(a_pod("p"), 0.0) is QueuePlace.GATED
    (line,) = queue.pending()
    assert line.reasons[0].startswith("ZeroDivisionError: integer division or modulo by zero (test_scheduling_queue.py, line ")
    assert str(faults[0]).startswith("plugin Broken failed in preEnqueue for pod default/p: ZeroDivisionError")


# -- time ---------------------------------------------------------------------------------------------------------------


def test_deadlines_name_the_next_effective_tick():
    world = World(times=QueueTimes(start=7.0))
    assert world.queue.next_deadline(7.0) is None
    world.failed("parked", now=10.2)
    assert world.queue.next_deadline(10.2) == 337.0
    world.failed("errored", now=11.5, rejected_by=())
    assert world.queue.next_deadline(11.5) == 13.0
    world.queue.tick(12.99)
    assert world.place("errored") is QueuePlace.BACKOFF
    assert world.queue.next_deadline(14.0) == 14.0
    world.queue.tick(13.0)
    assert world.place("errored") is QueuePlace.ACTIVE
    world.queue.tick(336.9)
    assert world.place("parked") is QueuePlace.UNSCHEDULABLE
    world.queue.tick(337.0)
    assert world.place("parked") is QueuePlace.ACTIVE
    assert world.queue.next_deadline(337.0) is None


def test_a_pod_is_not_flushed_at_exactly_five_minutes():
    world = World()
    world.failed(now=30.0)
    world.queue.tick(330.0)
    assert world.place("p") is QueuePlace.UNSCHEDULABLE
    world.queue.tick(360.0)
    assert world.place("p") is QueuePlace.ACTIVE


def test_a_flushed_pod_is_marked_until_its_attempt_ends():
    world = World()
    world.failed()
    world.queue.tick(400.0)
    queued = world.queue.pop(400.0)
    assert queued.was_flushed
    world.queue.requeue(queued, 400.0, rejected_by=["Fit"])
    assert not queued.was_flushed
    assert world.queue.incoming["active", "UnschedulableTimeout"] == 1


def test_a_flush_reaches_pods_in_flight():
    world = World()
    world.failed()
    world.queue.add(a_pod("q"), 1.0)
    flying = world.queue.pop(1.0)
    world.queue.tick(400.0)
    assert world.queue.requeue(flying, 400.0, rejected_by=["Zone"]) is QueuePlace.BACKOFF


# -- nominations --------------------------------------------------------------------------------------------------------


def test_nominated_pods_are_listed_by_priority():
    world = World()
    for name, priority in [("a", 1), ("b", 9), ("c", 1)]:
        world.queue.add(a_pod(name, priority=priority), 0.0)
        world.queue.nominate(a_pod(name), "n1")
    world.queue.nominate(a_pod("stranger"), "n1")
    assert [pod.name for pod in world.queue.nominated["n1"]] == ["b", "a", "c"]
    world.queue.end_nomination("default/b")
    world.queue.nominate(a_pod("c"), "n2")
    assert {node: [pod.name for pod in pods] for node, pods in world.queue.nominated.items()} == {"n1": ["a"], "n2": ["c"]}
    assert world.queue.nomination("default/c") == "n2"


@pytest.mark.parametrize("known_as", ["added", "updated"])
def test_a_pod_added_with_a_nominated_node_is_nominated(known_as):
    world = World()
    pod = changed(a_pod("p"), status={"nominatedNodeName": "n1"})
    if known_as == "added":
        world.queue.add(pod, 0.0)
    else:
        world.queue.update(a_pod("p"), pod, 0.0)
    assert [pod.name for pod in world.queue.nominated["n1"]] == ["p"]


ROOM = {  # what becomes of the pod nominated to n1 (priority 5), does a parked pod of priority 5 hear of it?
    "deleted": (lambda queue, pod: queue.delete(pod, 9.0), True),
    "nomination taken back": (lambda queue, pod: queue.update(pod, changed(pod), 9.0), True),
    "nominated elsewhere": (lambda queue, pod: queue.update(pod, changed(pod, status={"nominatedNodeName": "n2"}), 9.0), True),
    "changed otherwise": (
        lambda queue, pod: queue.update(pod, changed(pod, labels={"a": "b"}, status={"nominatedNodeName": "n1"}), 9.0), False,
    ),
    "bound by another scheduler": (lambda queue, pod: queue.delete(pod, 9.0, bound=True), True),
    "assumed and bound here": (
        lambda queue, pod: (queue.end_nomination(pod.uid), queue.delete(pod, 9.0, bound=True)), False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "heard"), ROOM.values(), ids=ROOM)
def test_a_cleared_nomination_wakes_pods_of_equal_or_lower_priority(change, heard):
    world = World()
    world.failed("greater", priority=6)
    world.failed("equal", priority=5)
    nominated = changed(a_pod("p", priority=5), status={"nominatedNodeName": "n1"})
    world.queue.add(nominated, 0.0)
    change(world.queue, nominated)
    assert world.place("equal") is (QueuePlace.ACTIVE if heard else QueuePlace.UNSCHEDULABLE)
    assert world.place("greater") is QueuePlace.UNSCHEDULABLE


# -- profiles -----------------------------------------------------------------------------------------------------------


class GateKeeper:
    name = "GateKeeper"

    def pre_enqueue(self, pod):
        return None if "key" in pod.labels else Hold.because("no key")

    def wakes_on(self):
        yield Wake(ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL))


class Mute:
    name = "Mute"

    def score_node(self, state, node):
        return 0


def test_a_queue_is_built_from_a_profile():
    plugins = {"GateKeeper": GateKeeper(), "Mute": Mute()}
    profile = make_profile("default-scheduler", plugins, {"preEnqueue": ["GateKeeper"], "score": ["Mute"]}, {"Mute": 1})
    found = QueueProfile.of(profile)
    assert [name for name, _ in found.pre_enqueue] == list(found.wakes) == ["GateKeeper"]
    queue = SchedulingQueue(by_priority, {"default-scheduler": found}, on_fault=lambda fault: None)
    assert queue.add(a_pod("p"), 0.0) is QueuePlace.GATED
    assert queue.update(a_pod("p"), changed(a_pod("p"), labels={"key": "k"}), 0.0) is QueuePlace.ACTIVE


def test_pending_pods_are_listed_with_queue_and_reason():
    world = World()
    world.failed("parked", rejected_by=["Zone", "Fit"])
    world.failed("errored", rejected_by=(), now=1.5)
    world.queue.add(a_pod("flying"), 2.0)
    world.queue.pop(2.0)
    world.queue.add(a_pod("ready"), 2.0)
    assert [(line.pod.name, line.place, line.plugins, line.until) for line in world.queue.pending()] == [
        ("ready", QueuePlace.ACTIVE, (), None),
        ("errored", QueuePlace.BACKOFF, (), 2.0),
        ("parked", QueuePlace.UNSCHEDULABLE, ("Fit", "Zone"), None),
        ("flying", QueuePlace.IN_FLIGHT, (), None),
    ]
    assert set(world.queue.counts().values()) == {0, 1}
    assert world.queue.counts()[QueuePlace.GATED] == 0


# -- with built-in plugins ----------------------------------------------------------------------------------------------


def test_a_node_add_wakes_the_pods_that_fit_it():
    plugins = {plugin.name: plugin for plugin in (SchedulingGates(), NodeResourcesFit(NodeResourcesFit.Args()), PrioritySort())}
    points = {"queueSort": ["PrioritySort"], "preEnqueue": ["SchedulingGates"], "filter": ["NodeResourcesFit"]}
    profile = QueueProfile.of(make_profile("default-scheduler", plugins, points, {}))
    queue = SchedulingQueue(plugins["PrioritySort"].sort_key, {"default-scheduler": profile}, on_fault=pytest.fail)
    gated = a_pod("gated", schedulingGates=[{"name": "quota"}])
    queue.add(gated, 0.0)
    for name, cpu in [("small", "1"), ("great", "8")]:
        queue.add(a_pod(name, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}]), 0.0)
        queue.requeue(queue.pop(0.0), 0.0, rejected_by=["NodeResourcesFit"])
    node = a_node("n1", allocatable={"cpu": "4", "memory": "8Gi", "pods": 110})
    for event in node_events(None, node):
        assert queue.event(event, None, node, 5.0) == 1
    assert queue.update(gated, changed(gated, schedulingGates=[]), 6.0) is QueuePlace.ACTIVE
    assert [queue.pop(6.0).pod.name, queue.pop(6.0).pod.name, queue.pop(6.0)] == ["gated", "small", None]


DECISIONS = """
from moorage.core.queue import QueueProfile, SchedulingQueue
from moorage.core.queue.cluster_events import ASSIGNED_POD_DELETE
from moorage.framework.events import Wake
from moorage.testing.builders import a_pod
names = ["alpha", "beta", "gamma", "delta", "epsilon"]
wakes = {name: (Wake(ASSIGNED_POD_DELETE),) for name in names}
queue = SchedulingQueue(lambda queued: queued.timestamp, {"default-scheduler": QueueProfile((), wakes)}, on_fault=print)
for number in range(40):
    queue.add(a_pod(f"p{number}"), 0.0)
    queued = queue.pop(0.0)
    queue.requeue(queued, 0.0, rejected_by={names[number % 5], names[number % 3]})
print([line.plugins for line in queue.pending()])
queue.event(ASSIGNED_POD_DELETE, None, None, 5.0)
print([queue.pop(5.0).pod.name for _ in range(40)])
"""


@pytest.mark.slow
def test_hash_seeds_do_not_change_the_order():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = {
        subprocess.run(
            [sys.executable, "-c", DECISIONS], env={**environment, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1
    assert b"p39" in printed.pop()


# -- pods that are active too often ----------------------------------------------------------------------------------------


def attempts(world, until_s, a_second=1000):
    """Activate a pod again and again, and let each attempt fail; return how many attempts were made."""
    made = 0
    for now in (i / a_second for i in range(until_s * a_second)):
        world.queue.tick(now)
        world.queue.activate([a_pod("p")], now)
        if (queued := world.queue.pop(now)) is not None:
            made += 1
            world.queue.requeue(queued, now, rejected_by=["Fit"])
    return made


def test_a_pod_that_is_activated_without_end_backs_off():
    world = World()
    world.queue.most_active = 100
    world.queue.add(a_pod("p"), 0.0)
    assert attempts(world, 60) < 1500
    told = str(world.faults[0])
    assert told.startswith("pod default/p becomes active more than 100 times a second (ForceActivate); it backs off now")
    assert len(world.faults) < 15, "it backs off longer each time"


def test_in_simulated_time_no_pod_is_held_back():
    world = World()
    world.queue.add(a_pod("p"), 0.0)
    assert attempts(world, 3) == 3000
    assert world.faults == []


def test_a_pod_that_is_active_often_but_not_too_often_waits_for_nothing():
    world = World()
    world.queue.most_active = 100
    world.queue.add(a_pod("p"), 0.0)
    assert attempts(world, 10, a_second=80) == 800
    assert world.faults == []
