"""Whom an event gives another chance, and how soon."""

from __future__ import annotations

import pytest

from moorage.core.queue import QueueProfile, SchedulingQueue
from moorage.core.queue.hints import HintOutcome, Hints, wakes_of
from moorage.core.queue.queued_pod import QueuedPod
from moorage.framework.events import ANY_EVENT, Action, ClusterEvent, Resource, Wake
from moorage.testing.builders import a_pod

NODE_ADDED = ClusterEvent(Resource.NODE, Action.ADD)
NODE_LABELLED = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NODE_TAINTED = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
POD_GONE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
EVERYTHING = ClusterEvent(Resource.ANY, Action.ALL, "ForceActivate")


def no(_pod, _old, _new):
    return False


def yes(_pod, _old, _new):
    return True


def broken(_pod, _old, _new):
    raise KeyError("zone")


WAKES = {
    "Fit": [Wake(ClusterEvent(Resource.POD, Action.DELETE), yes), Wake(NODE_ADDED, no)],
    "Zone": [Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)), Wake(NODE_TAINTED, no)],
    "Broken": [Wake(NODE_LABELLED, broken)],
    "Twice": [Wake(NODE_LABELLED, no), Wake(ClusterEvent(Resource.NODE, Action.UPDATE), yes)],
    "Quiet": [],
    "Any": [Wake(ANY_EVENT)],
}


def rejected(*plugins, pending=(), name="p"):
    return QueuedPod(a_pod(name), 0.0, unschedulable_plugins=frozenset(plugins), pending_plugins=frozenset(pending))


STAY, LATER, NOW = HintOutcome.SKIP, HintOutcome.AFTER_BACKOFF, HintOutcome.AT_ONCE
OUTCOMES = {  # turned down by, pending, event, outcome
    "the plugin does not listen": (["Fit"], [], NODE_LABELLED, STAY),
    "the plugin never listens": (["Quiet"], [], NODE_ADDED, STAY),
    "its hint says no": (["Fit"], [], NODE_ADDED, STAY),
    "its hint says yes": (["Fit"], [], POD_GONE, LATER),
    "without a hint": (["Zone"], [], NODE_ADDED, LATER),
    "one of two says yes": (["Fit", "Zone"], [], NODE_ADDED, LATER),
    "one of two hints says yes": (["Twice"], [], NODE_LABELLED, LATER),
    "a hint that raises": (["Broken"], [], NODE_LABELLED, LATER),
    "others that would say yes are not asked": (["Quiet"], [], POD_GONE, STAY),
    "a pending plugin says yes": ([], ["Zone"], NODE_ADDED, NOW),
    "a pending plugin says no": ([], ["Fit"], NODE_ADDED, STAY),
    "a pending one says no, another says yes": (["Zone"], ["Fit"], NODE_ADDED, LATER),
    "a pending one says yes after another": (["Fit"], ["Any"], POD_GONE, NOW),
    "a plugin that waits for anything": (["Any"], [], NODE_TAINTED, LATER),
    "rejected by no plugin": ([], [], NODE_LABELLED, LATER),
    "an event for everyone": (["Quiet"], [], EVERYTHING, LATER),
    "an event for everyone skips no backoff": ([], ["Zone"], EVERYTHING, LATER),
}


@pytest.mark.parametrize(("plugins", "pending", "event", "outcome"), OUTCOMES.values(), ids=OUTCOMES)
def test_an_event_queues_or_skips_a_pod(plugins, pending, event, outcome):
    hints = Hints({"default-scheduler": WAKES}, on_fault=lambda fault: None)
    assert hints.outcome(rejected(*plugins, pending=pending), event, None, None) is outcome


@pytest.mark.parametrize(("meant", "outcome"), [("p", LATER), ("q", STAY)])
def test_an_event_for_all_pods_may_target_one(meant, outcome):
    hints = Hints({"default-scheduler": WAKES}, on_fault=lambda fault: None)
    assert hints.outcome(rejected("Fit"), EVERYTHING, None, a_pod(meant)) is outcome


def test_a_failing_hint_is_reported_with_its_context():
    faults = []
    Hints({"default-scheduler": WAKES}, faults.append).outcome(rejected("Broken"), NODE_LABELLED, None, None)
    where = "plugin Broken failed in a queueing hint for pod default/p on NodeUpdateNodeLabel"
    assert [str(fault) for fault in faults] == [f"{where}: KeyError: 'zone' (test_hints.py, line 29); the pod is tried again"]


def test_hints_see_the_pod_and_both_sides_of_the_change():
    seen = []
    wakes = {"default-scheduler": {"Fit": [Wake(NODE_LABELLED, lambda *change: seen.append(change) or True)]}}
    queued = rejected("Fit")
    Hints(wakes, on_fault=lambda fault: None).outcome(queued, NODE_LABELLED, "before", "after")
    assert seen == [(queued.pod, "before", "after")]


def test_hints_of_one_profile_do_not_apply_to_another():
    hints = Hints({"default-scheduler": {}, "other": WAKES}, on_fault=lambda fault: None)
    assert hints.interest(POD_GONE) is not None
    assert hints.outcome(rejected("Fit"), POD_GONE, None, None) is STAY


def test_an_unregistered_event_wakes_no_pod():
    hints = Hints({"default-scheduler": {"Fit": WAKES["Fit"]}}, on_fault=lambda fault: None)
    assert hints.interest(NODE_LABELLED) is None


TAINTS = {  # what the plugin listens to, does it hear of taints?
    "new nodes": ([Wake(NODE_ADDED, no)], True),
    "new nodes and labels": ([Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL), no)], True),
    "labels": ([Wake(NODE_LABELLED, no)], False),
    "pods": ([Wake(POD_GONE, no)], False),
    "new nodes and taints": ([Wake(NODE_ADDED, no), Wake(NODE_TAINTED, no)], False),
}


@pytest.mark.parametrize(("wakes", "hears"), TAINTS.values(), ids=TAINTS)
def test_a_plugin_registered_for_node_add_receives_node_becoming_usable(wakes, hears):
    hints = Hints({"default-scheduler": {"Mine": wakes}}, on_fault=lambda fault: None)
    assert (hints.outcome(rejected("Mine"), NODE_TAINTED, None, None) is LATER) is hears


class Filters:
    name = "Filters"

    def filter_node(self, state, node):
        return None


class Wakeful(Filters):
    def wakes_on(self):
        yield Wake(NODE_ADDED)


class Scores:
    name = "Scores"

    def score_node(self, state, node):
        return 0


WAKES_OF = {  # plugin, what wakes its rejections
    "says": (Wakeful(), (Wake(NODE_ADDED),)),
    "does not say": (Filters(), (Wake(ANY_EVENT),)),
    "turns nothing down": (Scores(), ()),
}


@pytest.mark.parametrize(("plugin", "wakes"), WAKES_OF.values(), ids=WAKES_OF)
def test_plugins_without_registered_events_are_woken_by_every_event(plugin, wakes):
    assert wakes_of(plugin) == wakes


@pytest.mark.parametrize(("by_shape", "asked", "moved"), [(True, 2, 21), (False, 41, 21)])
def test_a_hint_by_shape_runs_once_for_each_shape(by_shape, asked, moved):
    seen = []

    def is_web(pod, old, new):
        seen.append(pod.uid)
        return pod.labels["app"] == "web"

    wakes = {"Fit": [Wake(NODE_ADDED, is_web, by_shape=by_shape)]}
    queue = SchedulingQueue(
        lambda queued: 0, {"default-scheduler": QueueProfile(wakes=wakes)}, on_fault=lambda fault: None
    )  # fmt: skip
    for number in range(41):
        queue.add(a_pod(f"p{number}", {"app": "db" if number % 2 else "web"}), 0.0)
        queue.requeue(queue.pop(0.0), 0.0, rejected_by=["Fit"])
    assert queue.event(NODE_ADDED, None, None, 100.0) == moved
    assert len(seen) == asked
    assert [queue.pop(100.0).pod.name for _ in range(moved)] == [f"p{number}" for number in range(0, 41, 2)]
