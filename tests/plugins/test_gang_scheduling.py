"""Test GangScheduling: PreEnqueue, Permit, and the events that wake pods of a group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.meta import ObjectMeta
from moorage.api.pod_groups import (
    BasicSchedulingPolicy,
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
)
from moorage.errors import AttemptError
from moorage.framework.events import Action, ClusterEvent, Resource
from moorage.framework.verdicts import Wait
from moorage.plugins.gang_scheduling import GangScheduling
from moorage.state.cluster import ClusterState
from moorage.testing.builders import a_node, a_pod


def group(name="g", least=None, namespace="default"):
    policy = (
        PodGroupSchedulingPolicy(basic=BasicSchedulingPolicy())
        if least is None
        else PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=least))
    )
    return PodGroup(metadata=ObjectMeta(name=name, namespace=namespace), spec=PodGroupSpec(scheduling_policy=policy))


def member(name, group="g", namespace="default"):
    return a_pod(name, namespace=namespace, schedulingGroup={"podGroupName": group})


class Held:
    def __init__(self, pod):
        self.pod, self.node, self.pending, self.allowed = pod, "n", ("GangScheduling",), []

    def allow(self, plugin):
        self.allowed.append(plugin)


class Running:
    """The part of a scheduler that the plugin uses."""

    def __init__(self, groups=(), pending=(), placed=(), waiting=()):
        cluster = ClusterState(keep_groups=True)
        cluster.set_node(a_node("n"))
        for one in groups:
            cluster.set_object(one)
        for pod in pending:
            cluster.groups.note(pod)
        for pod in placed:
            cluster.place(pod, "n")
        self.snapshot, self.held, self.activated = cluster.snapshot, [Held(pod) for pod in waiting], []

    def waiting(self):
        return self.held

    def activate_group(self, pod):
        self.activated += [other.name for other in self.snapshot.group_of(pod).unscheduled]


def attached(**kwargs):
    plugin, running = GangScheduling(), Running(**kwargs)
    plugin.attach(running)
    return plugin, running


NO_GROUP = 'waiting for pods\'s pod group "g" to appear in scheduling queue'
TOO_FEW = "waiting for minCount pods from a gang to appear in scheduling queue"

QUEUED = {  # the pod; the groups; other pending pods; placed pods; why the pod is held back
    "of no group": (a_pod("p"), [group(least=9)], [], [], None),
    "its group does not exist": (member("p"), [group("other", 1)], [], [], NO_GROUP),
    "its group is in another namespace": (member("p"), [group(least=1, namespace="other")], [], [], NO_GROUP),
    "a basic group": (member("p"), [group()], [], [], None),
    "minCount is 1": (member("p"), [group(least=1)], [], [], None),
    "one is missing": (member("p"), [group(least=3)], ["a"], [], TOO_FEW),
    "the others are pending": (member("p"), [group(least=3)], ["a", "b"], [], None),
    "the others are placed": (member("p"), [group(least=3)], [], ["a", "b"], None),
    "some are pending, some placed": (member("p"), [group(least=3)], ["a"], ["b"], None),
}


@pytest.mark.parametrize(("pod", "groups", "pending", "placed", "why"), QUEUED.values(), ids=QUEUED)
def test_pre_enqueue(pod, groups, pending, placed, why):
    plugin, _ = attached(groups=groups, pending=[pod, *map(member, pending)], placed=map(member, placed))
    hold = plugin.pre_enqueue(pod)
    assert (hold and hold.reasons) == (None if why is None else (why,))
    assert hold is None or hold.unresolvable


PERMITTED = {  # minCount; pods placed before the pod; does it wait?
    "a basic group": (None, [], False),
    "it is enough": (1, [], False),
    "it completes the gang": (3, ["a", "b"], False),
    "one is missing": (3, ["a"], True),
    "more than minCount": (2, ["a", "b", "c"], False),
}


@pytest.mark.parametrize(("least", "placed", "waits"), PERMITTED.values(), ids=PERMITTED)
def test_permit(least, placed, waits):
    pod = member("p")
    plugin, running = attached(
        groups=[group(least=least)], pending=[member("late")], placed=[pod, *map(member, placed)],
        waiting=[member("a"), member("x", "other"), a_pod("single")],
    )  # fmt: skip
    answer = plugin.permit(None, pod, "n")
    assert answer == (Wait(300.0, ("waiting for minCount pods from a gang to be scheduled",)) if waits else None)
    assert running.activated == (["late"] if waits else [])
    allowed = [held.pod.name for held in running.held if held.allowed]
    assert allowed == ([] if waits or least is None else ["a"])


def test_permit_fails_without_the_group():
    plugin, _ = attached(placed=[member("p")])
    with pytest.raises(AttemptError, match="failed to get podGroup default/g"):
        plugin.permit(None, member("p"), "n")
    assert plugin.permit(None, a_pod("single"), "n") is None


ADDED = ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD), ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
HINTS = {  # the event and its object; is the pod woken?
    "a pod of the group": (ADDED[0], member("x"), True),
    "a placed pod of the group": (ADDED[1], member("x"), True),
    "of another group": (ADDED[0], member("x", "other"), False),
    "of another namespace": (ADDED[0], member("x", namespace="other"), False),
    "of no group": (ADDED[0], a_pod("x"), False),
    "the group": (ClusterEvent(Resource.POD_GROUP, Action.ADD), group(least=1), True),
    "another group": (ClusterEvent(Resource.POD_GROUP, Action.ADD), group("other"), False),
    "a group of that name elsewhere": (ClusterEvent(Resource.POD_GROUP, Action.ADD), group(namespace="other"), False),
    "the group is updated": (ClusterEvent(Resource.POD_GROUP, Action.UPDATE_OTHER), group(), False),
    "a node": (ClusterEvent(Resource.NODE, Action.ADD), a_node("n"), False),
}


@pytest.mark.parametrize(("event", "new", "again"), HINTS.values(), ids=HINTS)
def test_hints_for_a_held_pod(event, new, again):
    wakes = [wake for wake in GangScheduling().wakes_on() if wake.event.covers(event)]
    assert any(wake.when(member("p"), None, new) for wake in wakes) == again


names = st.sampled_from(["g", "h"])


@given(
    pods=st.lists(st.tuples(names, st.booleans()), max_size=6), least=st.integers(1, 5),
    comes=st.one_of(st.tuples(st.just("pod"), names), st.tuples(st.just("group"), names)),
)  # fmt: skip
def test_every_event_that_releases_a_pod_has_a_hint_that_wakes_it(pods, least, comes):
    """If an added object releases the hold, the hint says so."""
    pod = member("p")
    others = [(member(f"o{at}", name), placed) for at, (name, placed) in enumerate(pods)]
    groups = [group("g", least)] if comes != ("group", "g") else []
    known = {
        "pending": [pod, *(other for other, placed in others if not placed)],
        "placed": [other for other, placed in others if placed],
    }
    before, _ = attached(groups=groups, **known)
    new = member("new", comes[1]) if comes[0] == "pod" else group(comes[1], least)
    pending = [*known["pending"], new] if comes[0] == "pod" else known["pending"]
    after, _ = attached(groups=[*groups, new] if comes[0] == "group" else groups, pending=pending, placed=known["placed"])
    if before.pre_enqueue(pod) is not None and after.pre_enqueue(pod) is None:
        resource = Resource.UNSCHEDULED_POD if comes[0] == "pod" else Resource.POD_GROUP
        wakes = [wake for wake in before.wakes_on() if wake.event.covers(ClusterEvent(resource, Action.ADD))]
        assert any(wake.when(pod, None, new) for wake in wakes)


def test_no_hint_is_called_while_a_group_is_incomplete():
    lone, other = member("lone"), member("other", "h")
    plugin, _ = attached(groups=[group("g", 2), group("h", 1)], pending=[lone, other])
    (wake,) = [wake for wake in plugin.wakes_on() if wake.event.covers(ADDED[0])]
    assert [wake.whom(None, new) for new in (lone, other, a_pod("single"))] == [False, True, False]
