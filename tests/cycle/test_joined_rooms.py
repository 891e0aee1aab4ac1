"""Scores that are computed for many classes at once are those that the plugins give each class."""

from __future__ import annotations

from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.cycle import pod_class
from moorage.cycle.cycle import Cycle
from moorage.cycle.first_look import look_again
from moorage.cycle.joined_rooms import DistinctScores, JoinedRooms, JoinedScores
from moorage.cycle.room_scores import LOW, REFUSED_ROOM
from moorage.framework.profile import make_profile
from moorage.framework.reuse import Join, Joins, Reuse, Scope
from moorage.framework.verdicts import Reject
from moorage.state import distinct_rooms
from moorage.state.distinct_rooms import KEY_BITS
from moorage.testing.builders import a_cluster, a_node, a_pod


class Asks:
    """Refuses a pod where fewer than its amount is left of ten millicores, and scores what is left."""

    name = "Asks"
    asked = 0

    @property
    def reuse(self):
        join = Join(lambda state: "amount", np.vstack)
        return Reuse(Scope.USAGE, lambda pod: {"amount": pod.labels["amount"]}, (), joins=Joins(join, join))

    def pre_filter(self, pod, snapshot):
        return int(pod.labels["amount"])

    def filter(self, amount, nodes):
        yield Reject(10 - nodes.requested("cpu") < amount, "full")

    def score(self, amount, nodes):
        self.asked += 1
        return np.abs(60 - 7 * nodes.requested("cpu") + amount) % 101


def asks_steps(plugin=None):
    profile = make_profile("s", {"Asks": plugin or Asks()}, {"filter": ["Asks"], "score": ["Asks"]}, {})
    return profile.at("filter"), profile.at("score")


def joined(plugin):
    return JoinedRooms(JoinedScores, *asks_steps(plugin), [2])


def expected(amount, used):
    return 2 * (abs(60 - 7 * used + amount) % 101) if 10 - used >= amount else REFUSED_ROOM


LIMITS = [
    {},
    {"joined_rooms._WORTH_JOINING": 1, "joined_rooms._FEWEST": 1},
    {"joined_rooms._WORTH_JOINING": 2, "joined_rooms._IDLE": -5, "room_scores._FEWEST": 1},
    {"joined_rooms._WORTH_JOINING": 1, "joined_rooms._MOST_KEPT": 8, "joined_rooms._MOST_ANSWERS": 3},
]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    used=st.lists(st.integers(0, 12), min_size=1, max_size=8),
    turns=st.lists(st.tuples(st.integers(0, 6), st.sets(st.integers(0, 7), min_size=1)), min_size=1, max_size=30),
    limits=st.sampled_from(LIMITS),
)
def test_each_class_finds_the_scores_of_its_own(used, turns, limits):
    pods = {f"n{i}": [a_pod(f"p{i}", containers=[cpu(amount)])] for i, amount in enumerate(used)}
    snapshot = a_cluster([a_node(f"n{i}") for i in range(len(used))], pods).snapshot
    with ExitStack() as patches:
        for name, limit in limits.items():
            patches.enter_context(patch(f"moorage.cycle.{name}", limit))
        rooms = joined(Asks())
        for amount, some in turns:
            rows = np.array([row for row in some if row < len(used)], dtype=np.intp)
            numbers = snapshot.table.rooms.followed().data[rows]
            scores = rooms.of((amount, amount))
            _, unknown = scores.find(numbers)
            rooms.learn(scores, numbers[unknown], rows[unknown], snapshot)
            found, unknown = scores.find(numbers)
            for at in set(range(len(rows))) - set(unknown.tolist()):
                assert found[at] == expected(amount, used[rows[at]])


def cpu(milli):
    return {"name": "c", "resources": {"requests": {"cpu": f"{milli}m"}}}


def test_a_new_room_is_computed_once_for_all_classes():
    plugin = Asks()
    rooms = joined(plugin)
    snapshot = a_cluster([a_node("n0"), a_node("n1")], {"n1": [a_pod("p", containers=[cpu(4)])]}).snapshot
    rows = np.arange(2)
    numbers = snapshot.table.rooms.followed().data[rows]
    classes = [rooms.of((amount, amount)) for amount in range(6)]
    for scores in classes:
        if len(scores.find(numbers)[1]):
            rooms.learn(scores, numbers, rows, snapshot)
    assert plugin.asked == 1  # when there were enough classes; those that come later know nothing yet
    for amount, scores in enumerate(classes[:4]):
        assert scores.find(numbers)[0].tolist() == [expected(amount, 0), expected(amount, 4)]


def test_a_class_that_nobody_asks_about_leaves_and_may_return():
    cluster = a_cluster([a_node("n0")])
    rooms, table = joined(Asks()), cluster.snapshot.table
    classes = [rooms.of((amount, amount)) for amount in range(4)]
    for turn in range(400):
        cluster.assume(a_pod(f"p{turn}", containers=[cpu(0)]), "n0")  # which makes a new room
        for scores in classes[turn > 0 :]:
            numbers = table.rooms.followed().data[:1]
            if len(scores.find(numbers)[1]):
                rooms.learn(scores, numbers, np.arange(1), cluster.snapshot)
            rooms.admit(scores)
    assert [scores.last >= 0 for scores in classes] == [False, True, True, True]
    assert len(classes[0].find(numbers)[1]) == 1
    rooms.learn(classes[0], numbers, np.arange(1), cluster.snapshot)
    assert classes[0].last >= 0


def test_classes_with_equal_states_share_their_scores():
    rooms = joined(Asks())
    first = rooms.of((1, 1))
    assert rooms.of((1, 1)) is first
    assert rooms.of((2, 2)) is not first


@pytest.mark.parametrize("looks", [False, True], ids=["arrays", "looks"])
def test_decisions_of_classes_in_turn_are_those_of_the_full_path(looks, monkeypatch):
    joins, looked, compute = [], [], JoinedRooms._answers
    monkeypatch.setattr(JoinedRooms, "_answers", lambda self, view: joins.append(len(view)) or compute(self, view))
    monkeypatch.setattr(pod_class, "look_again", lambda *args: looked.append(look_again(*args)) or looked[-1])
    if looks:
        monkeypatch.setattr(pod_class, "_LONG_AWAY", 6)
        monkeypatch.setattr(distinct_rooms, "_WORTH_IT", 1)
    profile = make_profile("s", {"Asks": Asks()}, {"preFilter": ["Asks"], "filter": ["Asks"], "score": ["Asks"]}, {})
    cluster = a_cluster([a_node(f"n{i}", allocatable={"cpu": "10m", "pods": "110"}) for i in range(40)])
    quick, plain, placed = Cycle(seed=3), Cycle(seed=3, by_class=False), []
    for number in range(240):
        pod = a_pod(f"p{number}", labels={"amount": str(number % 12)}, containers=[cpu(number % 3)])
        decision, expects = (cycle.decide(profile, pod, cluster.snapshot) for cycle in (quick, plain))
        assert (decision.node, decision.feasible) == (expects.node, expects.feasible)
        if decision.node is not None:
            cluster.assume(pod, decision.node)
            placed.append(pod)
        if number % 7 == 6:  # a node becomes as it was before
            cluster.remove_pod(placed.pop(number % len(placed)).uid)
        if number % 90 == 89:
            cluster.set_node(a_node("n3", allocatable={"cpu": "10m", "pods": str(number)}))
    assert joins
    assert any(look is not None for look in looked) == looks


def test_a_class_that_joins_late_knows_rooms_that_return():
    """A room that no node has while a class joins is unknown to the class alone."""
    rooms = JoinedRooms(DistinctScores, *asks_steps(), [2])
    cluster = a_cluster([a_node(f"n{i}") for i in range(4)])
    snapshot = cluster.snapshot
    pods = [a_pod(f"p{i}", containers=[cpu(4)]) for i in range(1)]
    judged = []
    with patch("moorage.state.distinct_rooms._WORTH_IT", 1):

        def ask(amount):
            scores = rooms.of((amount, amount))
            keys = snapshot.table.distinct_rooms.find_keys()
            scores.admit(len(keys))
            unknown = (scores.of_all(keys) > LOW).nonzero()[0]
            found = snapshot.table.distinct_rooms.find()
            if len(unknown) and rooms.learn(scores, keys[unknown] >> KEY_BITS, found.rows[unknown], snapshot, unknown):
                unknown = unknown[scores.of_all(keys)[unknown] > LOW]
            judged.append(len(unknown))
            worths = [expected(amount, 4 if snapshot.table.pods[row] else 0) for row in found.rows]
            known = [at for at in range(len(keys)) if found.held[at] and at not in unknown]
            assert [scores.of_all(keys)[at] - 1 for at in known] == [worths[at] for at in known]

        cluster.assume(pods[0], "n0")
        for amount in range(4):
            ask(amount)
        cluster.remove_pod(pods[0].uid)
        ask(5)
        cluster.assume(pods[0], "n2")
        for amount in (1, 2, 3, 5):
            ask(amount)
    assert judged == [2, 2, 2, 0, 1, 0, 0, 0, 2]
