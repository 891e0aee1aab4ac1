"""Test SelectorSpread: pods of one service or controller prefer nodes, and even more zones, with fewer of them."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import ReplicationController, Service
from moorage.api.workloads import ReplicaSet, StatefulSet
from moorage.plugins.v1_21.selector_spread import SelectorSpread, spread_scores
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores
from moorage.testing.storage import with_objects

WEB = {"app": "web"}
SLACK = Fraction(1, 10**9)
ZONE = "topology.kubernetes.io/zone"


def a_service(name="web", namespace="default", **selector):
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}}, Service)


def holding(*counts, zones=None, labels=WEB, **fields):
    """Return a cluster of nodes n0, n1 … with this many pods on each."""
    nodes = [a_node(f"n{at}", {ZONE: zones[at]} if zones else {}) for at in range(len(counts))]
    pods = {f"n{at}": [a_pod(f"p{at}-{i}", labels, **fields) for i in range(count)] for at, count in enumerate(counts)}
    return a_cluster(nodes, pods)


def scores(cluster, pod):
    return list(final_scores(SelectorSpread(), pod, cluster.snapshot).values())


CASES = {  # pods on each node, zone of each, scores
    "no pods": ((0, 0), None, [100, 100]),
    "fewer pods score higher": ((4, 2, 1, 0), None, [0, 50, 75, 100]),
    "zones weigh two thirds": ((2, 0, 0), "aab", [0, 33, 100]),
    "equal zones": ((2, 0, 1, 1), "aabb", [0, 33, 16, 16]),
}


@pytest.mark.parametrize(("counts", "zones", "expected"), CASES.values(), ids=CASES)
def test_scores(counts, zones, expected):
    cluster = with_objects(holding(*counts, zones=zones), a_service(app="web"))
    assert scores(cluster, a_pod("new", WEB)) == expected


def test_only_pods_of_the_same_owner_count():
    pod = a_pod("new", WEB)
    assert scores(holding(2, 0), pod) == [100, 100], "no service selects them"
    service = a_service(app="web")
    assert scores(with_objects(holding(2, 0, labels={"app": "db"}), service), pod) == [100, 100]
    assert scores(with_objects(holding(2, 0, namespace="other"), service), pod) == [100, 100]
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    leaving = a_cluster([a_node("n0"), a_node("n1")], {"n0": [a_pod("p", WEB, metadata=gone)]})
    assert scores(with_objects(leaving, service), pod) == [100, 100]
    assert scores(with_objects(holding(2, 0), a_service(namespace="other", app="web")), pod) == [100, 100]


def an_owner(kind, selector, namespace="default"):
    found = {"metadata": {"name": "web", "namespace": namespace}, "spec": {"selector": selector}}
    return msgspec.convert(found, kind)


OF_WEB = {"matchLabels": WEB}
OWNERS = {  # a service or controller, does it own the pod?
    "a service": (an_owner(Service, WEB), True),
    "a service that selects other pods": (an_owner(Service, {"app": "db"}), False),
    "a replication controller": (an_owner(ReplicationController, WEB), True),
    "a replication controller of other pods": (an_owner(ReplicationController, {"app": "db"}), False),
    "a replica set": (an_owner(ReplicaSet, OF_WEB), True),
    "a replica set of other pods": (an_owner(ReplicaSet, {"matchLabels": {"app": "db"}}), False),
    "a replica set in another namespace": (an_owner(ReplicaSet, OF_WEB, "other"), False),
    "a stateful set": (an_owner(StatefulSet, OF_WEB), True),
    "a stateful set by expression": (
        an_owner(StatefulSet, {"matchExpressions": [{"key": "app", "operator": "Exists"}]}), True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("owner", "its"), OWNERS.values(), ids=OWNERS)
def test_which_owners_select_the_pod(owner, its):
    assert scores(with_objects(holding(2, 0), owner), a_pod("new", WEB)) == ([0, 100] if its else [100, 100])


def test_the_selectors_of_all_owners_are_combined():
    """A pod of two owners spreads over the pods that both select."""
    cluster = holding(2, 0, labels={**WEB, "tier": "front"})
    cluster.place(a_pod("back", {**WEB, "tier": "back"}), "n1")
    with_objects(cluster, an_owner(Service, WEB), an_owner(ReplicaSet, {"matchLabels": {"tier": "front"}}))
    assert scores(cluster, a_pod("new", {**WEB, "tier": "front"})) == [0, 100]


def test_a_pod_with_spread_constraints_is_skipped():
    own = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": WEB}}
    cluster = with_objects(holding(2, 0), a_service(app="web"))
    assert scores(cluster, a_pod("new", WEB, topologySpreadConstraints=[own])) == [0, 0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), min_size=1, max_size=8))
def test_a_nodes_score_combines_node_and_zone(nodes):
    counts, zones = (np.array(column, dtype=np.int64) for column in zip(*nodes, strict=True))
    in_zone = {zone: sum(n for n, z in nodes if z == zone) for _, zone in nodes if zone}

    def fewer(count, most):
        return Fraction(100 * (most - count), most) if most else Fraction(100)

    for score, (count, zone) in zip(spread_scores(counts, zones).tolist(), nodes, strict=True):
        exact = fewer(count, int(counts.max()))
        if zone:
            exact = exact / 3 + fewer(in_zone[zone], max(in_zone.values())) * 2 / 3
        assert -SLACK <= exact - score < 1 + SLACK  # float64 may fall just short of a whole number, or reach it


def test_satisfies_the_plugin_contract():
    check_plugin(SelectorSpread(), cluster=with_objects(holding(2, 0, 1, zones="abb"), a_service(app="web")))
