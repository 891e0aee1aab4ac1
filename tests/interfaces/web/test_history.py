"""The cluster at a time in the past agrees with the charts of the past at every sample."""

import random

import pytest

from moorage.api.core import Node, NodeStatus
from moorage.api.meta import ObjectMeta
from moorage.interfaces.web.history import TimelineRows, rows_at, timeline_document
from moorage.interfaces.web.mirror import Header, Mirror, SnapshotRows, View, snapshot_document
from moorage.interfaces.web.rows import PodRow

HEADER = Header(release="1.36", id="", at="", live=False, writable=False, user="")


def a_mirror(random, pods=60):
    mirror = Mirror()
    for number in range(3):
        allocatable = {"cpu": "64", "memory": "64Gi", "pods": "110"}
        mirror.put_node(Node(metadata=ObjectMeta(name=f"n{number}"), status=NodeStatus(allocatable=allocatable)))
    for number in range(pods):
        arrived = 1000.0 + (number and random.randrange(100) + 0.5)
        bound = random.choice([0.0, arrived, arrived + random.randrange(30)])
        node = random.choice([None, "n0", "n1"])
        state = random.choice(["bound", "terminating"]) if node else "pending"
        row = PodRow(f"a/p{number}", "", node, state, 0, {"cpu": 500, "memory": 1 << 30}, "", arrived, 1, bound, str(number))
        mirror.put_pod(row, arrived)
    for number in range(0, pods, 4):
        mirror.drop_pod(f"a/p{number}", 1130.5 + random.randrange(50))
    return mirror


def test_a_span_of_the_past_has_its_own_samples_and_lanes():
    mirror = a_mirror(random.Random(1))
    whole, part = (timeline_document(TimelineRows.of(mirror), 1599.0, View(), span) for span in (None, (1010.0, 1039.95)))
    assert (whole["began"], part["began"]) == (1000.0, 1000.0)
    assert part["samples"]["at"][::20] == whole["samples"]["at"][10:40]
    assert part["samples"]["pending"][::20] == whole["samples"]["pending"][10:40]
    lanes = part["lanes"]
    assert 0 < len(lanes["pod"]) < len(whole["lanes"]["pod"])
    assert all(arrived <= 1040 for arrived in lanes["arrived"])


def test_what_many_pods_do_at_once_is_marked():
    mirror = Mirror()
    mirror.put_pod(PodRow("a/first", "", "n0", "bound", 0, {}, "", 10.0, 1, 10.0, "first"), 10.0)
    for number, arrived in enumerate([50.0, 55.0, 70.0, 89.0, 200.0, 210.0]):
        row = PodRow(f"a/p{number}", "Deployment/web", "n1", "bound", 0, {}, "", arrived, 1, arrived, f"u{number}")
        mirror.put_pod(row, arrived)
    for number, at in enumerate([300.0, 301.0, 302.0, 303.0, 330.0]):
        mirror.drop_pod(f"a/p{number}", at)
    marks = timeline_document(TimelineRows.of(mirror), 400.0, View())["marks"]
    assert marks == [
        {"at": 50.0, "text": "4 pods of Deployment/web in a come"},
        {"at": 300.0, "text": "4 pods leave n1"},
    ]


@pytest.mark.parametrize("seed", range(3))
def test_each_moment_is_as_the_charts_say(seed):
    mirror = a_mirror(random.Random(seed))
    samples = timeline_document(TimelineRows.of(mirror), 1599.0, View())["samples"]  # one for each whole second
    for index in range(0, 200, 7):
        rows = rows_at(SnapshotRows.of(mirror), list(mirror.gone), samples["at"][index])
        found = snapshot_document(rows, HEADER, View())
        assert sum(node < 0 for node in found["pods"]["node"]) == samples["pending"][index]
        for name, values in samples["utilisation"].items():
            share = sum(found["nodes"]["requested"][name]) / sum(found["nodes"]["allocatable"][name])
            assert share == pytest.approx(values[index], abs=1e-4)


def test_a_pod_that_was_bound_later_was_pending_without_a_known_cause():
    mirror = Mirror()
    mirror.put_pod(PodRow("a/p", "", "n0", "bound", 0, {}, "", 10.0, 4, 20.0, "u"), 20.0)
    (row,) = rows_at(SnapshotRows.of(mirror), [], 15.0).pods.values()
    assert (row.node, row.state, row.cause, row.attempts) == (None, "pending", "", 0)
    assert rows_at(SnapshotRows.of(mirror), [], 9.0).pods == {}


def test_nodes_come_and_go_over_time_and_cost_what_they_cost():
    mirror = Mirror()
    mirror.price_of = lambda labels: {"large": 2.0}.get(labels["kind"])
    for name, kind, born in (("n1", "large", "1970-01-01T00:16:40Z"), ("n2", "other", "1970-01-01T00:20:00Z")):
        meta = ObjectMeta(name=name, labels={"kind": kind}, creation_timestamp=born)
        mirror.put_node(Node(metadata=meta))
    mirror.drop_node("n1", 1400.0)
    samples = timeline_document(TimelineRows.of(mirror), 1599.0, View(), (1000.0, 1599.0))["samples"]
    at = {second: samples["nodes"][second - 1000] for second in (1001, 1201, 1401)}
    assert at == {1001: 1, 1201: 2, 1401: 1}
    assert (samples["cost"][1], samples["cost"][450]) == (2.0, 0.0)
    assert "cost" not in timeline_document(TimelineRows.of(Mirror()), 1599.0, View())["samples"]


@pytest.mark.parametrize(("observed", "unknown"), [(None, 0), (1000.0, 0), (1300.0, 300), (5000.0, 600)])
def test_sums_from_before_the_observation_are_not_known(observed, unknown):
    mirror = Mirror()
    made = ObjectMeta(name="n1", creation_timestamp="1970-01-01T00:16:40Z")
    mirror.put_node(Node(metadata=made, status=NodeStatus(allocatable={"cpu": "1", "memory": "1Gi", "pods": "10"})))
    mirror.observed = observed
    document = timeline_document(TimelineRows.of(mirror), 1599.0, View(), (1000.0, 1599.0))
    samples = document["samples"]
    assert document["observed"] == observed
    assert [len(samples["at"]), samples["at"].count(None)] == [600, 0]
    for values in (samples["pending"], samples["nodes"], *samples["utilisation"].values()):
        assert values[:unknown] == [None] * unknown
        assert None not in values[unknown:]
