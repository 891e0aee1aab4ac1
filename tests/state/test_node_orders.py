"""kube-scheduler goes through nodes zone by zone, one of each in turn."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.state.node_orders import zone_of
from moorage.testing.builders import a_cluster, a_node

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"

ZONES = {  # labels, region and zone
    "none": ({"disk": "ssd"}, None),
    "zone": ({ZONE: "a"}, ("", "a")),
    "region": ({REGION: "r"}, ("r", "")),
    "both": ({ZONE: "a", REGION: "r"}, ("r", "a")),
    "deprecated labels": ({OLD_ZONE: "a", OLD_REGION: "r"}, ("r", "a")),
    "deprecated labels take precedence": ({OLD_ZONE: "a", ZONE: "b"}, ("", "a")),
    "even where they are empty": ({OLD_ZONE: "", ZONE: "b"}, None),
}


@pytest.mark.parametrize(("labels", "zone"), ZONES.values(), ids=ZONES)
def test_zone_of_a_node(labels, zone):
    assert zone_of(labels) == zone


def node(name, zone=""):
    return a_node(name, {ZONE: zone} if zone else {})


def in_turn(cluster):
    return " ".join(cluster.table.nodes[row].name for row in cluster.table.rows_in_turn())


def test_zones_take_turns():
    cluster = a_cluster([node(name, name[0]) for name in ("a1", "a2", "b1", "c1", "a3", "b2")])
    assert in_turn(cluster) == "a1 b1 c1 a2 b2 a3"


def test_nodes_without_a_zone_are_a_zone():
    assert in_turn(a_cluster([node("x"), node("a1", "a"), node("y"), node("a2", "a")])) == "x a1 y a2"


def test_a_zone_keeps_its_place_as_long_as_it_has_a_node():
    cluster = a_cluster([node("a1", "a"), node("b1", "b"), node("a2", "a")])
    cluster.remove_node("a1")
    assert in_turn(cluster) == "a2 b1"
    cluster.remove_node("a2")
    cluster.set_node(node("a3", "a"))
    assert in_turn(cluster) == "b1 a3"


def test_a_node_that_changes_its_zone_is_last_in_the_rebuilt_order():
    cluster = a_cluster([node("a1", "a"), node("b1", "b"), node("b2", "b")])
    assert in_turn(cluster) == "a1 b1 b2"
    cluster.set_node(node("a1", "b"))
    assert in_turn(cluster) == "a1 b1 b2", "no node was added or deleted"
    cluster.set_node(node("c1", "c"))
    assert in_turn(cluster) == "b1 c1 b2 a1"


class Plain:
    """The same, as lists."""

    def __init__(self):
        self.zones = []
        self.order = []

    def set(self, name, zone):
        found = next((names for names in self.zones if name in names[1]), None)
        if found is not None and found[0] == zone:
            return
        if found is not None:
            self.drop(name, found)
        known = next((names for names in self.zones if names[0] == zone), None)
        if known is None:
            self.zones.append((zone, [name]))
        else:
            known[1].append(name)
        if found is None:
            self.make()

    def drop(self, name, found):
        found[1].remove(name)
        if not found[1]:
            self.zones.remove(found)

    def remove(self, name):
        found = next((names for names in self.zones if name in names[1]), None)
        if found is not None:
            self.drop(name, found)
            self.make()

    def make(self):
        longest = max((len(names) for _, names in self.zones), default=0)
        self.order = [names[turn] for turn in range(longest) for _, names in self.zones if turn < len(names)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("pqrstu"), st.sampled_from(["", "a", "b", None])), max_size=20))
def test_the_order_equals_that_of_plain_lists(changes):
    cluster, plain = a_cluster([]), Plain()
    for name, zone in changes:
        if zone is None:
            if name in cluster.table.row_of:
                cluster.remove_node(name)
            plain.remove(name)
        else:
            cluster.set_node(node(name, zone))
            plain.set(name, zone)
        assert in_turn(cluster).split() == plain.order
