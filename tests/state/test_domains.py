"""Sums over topology domains."""

from __future__ import annotations

import numpy as np

from moorage.state.view import domain_ids, domain_sums, domains_with, rows_with_labels
from moorage.testing.builders import a_cluster, a_node

NODES = [
    a_node("n0", {"zone": "a"}),
    a_node("n1", {"zone": "b", "rack": ""}),
    a_node("n2", {"rack": "r"}),
    a_node("n3", {"zone": "a"}),
]


def by_value(nodes, key, per_domain):
    return dict(zip(nodes.label(key).values, per_domain.tolist(), strict=True))


def test_sums_exclude_rows_without_the_label():
    nodes = a_cluster(NODES).snapshot.nodes
    assert by_value(nodes, "zone", domain_sums(nodes, "zone", np.array([1, 2, 4, 8]))) == {None: 0, "a": 9, "b": 2}
    assert by_value(nodes, "rack", domain_sums(nodes, "rack", np.array([1, 2, 4, 8]))) == {None: 0, "": 2, "r": 4}


def test_sums_over_some_rows():
    nodes = a_cluster(NODES).snapshot.nodes
    some = np.array([True, False, True, False])
    assert by_value(nodes, "zone", domain_sums(nodes, "zone", np.array([1, 2, 4, 8]), some)) == {None: 0, "a": 1, "b": 0}
    assert by_value(nodes, "zone", domains_with(nodes, "zone", some)) == {None: False, "a": True, "b": False}


def test_sums_are_not_shared():
    nodes = a_cluster(NODES).snapshot.nodes
    column = np.array([1, 2, 4, 8])
    sums = domain_sums(nodes, "zone", column)
    sums += 1
    assert column.tolist() == [1, 2, 4, 8]


def test_rows():
    cluster = a_cluster(NODES)
    nodes = cluster.snapshot.nodes
    assert domain_ids(nodes, "zone")[2] == 0
    assert rows_with_labels(nodes, ["zone", "rack"]).tolist() == [False, True, False, False]
    assert rows_with_labels(nodes, []) is None
    assert rows_with_labels(nodes.only(np.array([True, False, False, True])), ["zone"]).tolist() == [True, True]
    cluster.remove_node("n2")
    assert rows_with_labels(nodes, ["zone"]) is None
    assert nodes.one(2).domain("zone") == nodes.one(0).domain("zone") != 0
    assert nodes.one(0).domain("rack") == 0


def test_values_without_nodes_are_no_domains():
    cluster = a_cluster(NODES)
    nodes = cluster.snapshot.nodes
    assert by_value(nodes, "zone", domains_with(nodes, "zone", np.ones(4, dtype=bool)))["b"]
    cluster.remove_node("n1")
    assert not by_value(nodes, "zone", domains_with(nodes, "zone", np.ones(3, dtype=bool)))["b"]


def test_a_label_that_no_node_has_yet_is_found_once_one_has():
    cluster = a_cluster(NODES)
    nodes = cluster.snapshot.nodes
    assert nodes.label("shelf") is nodes.label("row")  # nothing is kept for keys that no node has
    assert not nodes.label("shelf").is_everywhere
    assert by_value(nodes, "shelf", domains_with(nodes, "shelf")) == {None: False}
    cluster.set_node(a_node("n9", {"shelf": "s"}))
    assert rows_with_labels(nodes, ["shelf"]).tolist() == [False, False, False, False, True]
    assert by_value(nodes, "shelf", domains_with(nodes, "shelf")) == {None: False, "s": True}
    cluster.set_node(a_node("n9", {"row": "r"}))
    assert rows_with_labels(nodes, ["shelf"]).tolist() == [False] * 5
    assert nodes.one(4).domain("row") != 0
    cluster.remove_node("n9")
    assert not rows_with_labels(nodes, ["row"]).any()
