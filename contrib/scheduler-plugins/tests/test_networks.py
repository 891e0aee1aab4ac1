"""Applications whose workloads are placed near each other."""

from __future__ import annotations

import pytest

from moorage.api.custom_objects import read_custom
from moorage.framework.verdicts import SKIP
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.fake_handle import FakeHandle
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores, refusals
from moorage_scheduler_plugins.app_groups import APP_GROUPS, LABEL, NETWORK_TOPOLOGIES, WORKLOAD_LABEL
from moorage_scheduler_plugins.network_overhead import REGION, ZONE, NetworkOverhead
from moorage_scheduler_plugins.topological_sort import TopologicalSort


def an_app(most=15, order=("P1", "P2", "P3")):
    def workload(name):
        return {"kind": "Deployment", "name": name, "selector": name, "apiVersion": "apps/v1", "namespace": "default"}

    needs = [{"workload": workload("P2"), "maxNetworkCost": most}]
    document = {
        "apiVersion": "appgroup.diktyo.x-k8s.io/v1alpha1", "kind": "AppGroup",
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": {"workloads": [{"workload": workload("P1"), "dependencies": needs}, {"workload": workload("P2")}]},
        "status": {"topologyOrder": [{"workload": workload(name), "index": at} for at, name in enumerate(order, 1)]},
    }  # fmt: skip
    return read_custom(document, APP_GROUPS, "the test")


def a_topology(weights="UserDefined"):
    def costs(origin, **to):
        return {"origin": origin, "costList": [{"destination": one, "networkCost": cost} for one, cost in to.items()]}

    places = [
        {"topologyKey": REGION, "originList": [costs("west", east=20), costs("east", west=20)]},
        {"topologyKey": ZONE, "originList": [costs("z1", z2=5), costs("z2", z1=5)]},
    ]
    document = {
        "apiVersion": "networktopology.diktyo.x-k8s.io/v1alpha1", "kind": "NetworkTopology",
        "metadata": {"name": "nt-default", "namespace": "default"},
        "spec": {"weights": [{"name": weights, "topologyList": places}]},
    }  # fmt: skip
    return read_custom(document, NETWORK_TOPOLOGIES, "the test")


PLACES = {"n1": ("west", "z1"), "n2": ("west", "z1"), "n3": ("west", "z2"), "n4": ("east", "z3"), "n5": ("", "")}


def a_part(name, workload="P1", group="shop", **spec):
    return a_pod(name, {LABEL: group, WORKLOAD_LABEL: workload}, containers=[{"name": "c"}], **spec)


def a_world(*objects, **placed):
    """Return a cluster in five places, and a plugin that has heard of these pods, by node."""
    nodes = [
        a_node(name, {key: value for key, value in zip((REGION, ZONE), where, strict=True) if value})
        for name, where in PLACES.items()
    ]
    cluster = a_cluster(nodes)
    cluster.custom_kinds = frozenset({APP_GROUPS, NETWORK_TOPOLOGIES})
    for one in objects:
        cluster.set_object(one)
    plugin = NetworkOverhead()
    for node, workload in placed.items():
        plugin.pod_changed(None, a_part(f"there-{node}", workload, nodeName=node))
    return cluster, plugin


def test_scores_prefer_near_nodes():
    cluster, plugin = a_world(an_app(), a_topology(), n1="P2")
    assert plugin.pre_filter(a_part("p"), cluster.snapshot) == {
        "n1": (1, 0, 0), "n2": (1, 0, 1), "n3": (1, 0, 5), "n4": (0, 1, 20), "n5": (0, 0, 100),
    }  # fmt: skip
    assert final_scores(plugin, a_part("p"), cluster.snapshot) == {"n1": 100, "n2": 99, "n3": 95, "n4": 80, "n5": 0}


def test_nodes_too_far_from_most_are_refused():
    cluster, plugin = a_world(an_app(), a_topology(), n1="P2")
    refused = refusals(plugin, a_part("p"), cluster.snapshot)
    assert {name: one.message for name, one in refused.items()} == {
        "n4": "Node n4 does not meet several network requirements from Workload dependencies: Satisfied: 0 Violated: 1"
    }
    cluster, plugin = a_world(an_app(most=30), a_topology(), n1="P2")
    assert refusals(plugin, a_part("p"), cluster.snapshot) == {}
    cluster, plugin = a_world(an_app(), a_topology(), n1="P2", n4="P2")
    assert refusals(plugin, a_part("p"), cluster.snapshot) == {}, "as many are near enough"


@pytest.mark.parametrize(
    ("objects", "placed", "pod"),
    [
        ((), {"n1": "P2"}, a_part("p")),
        ((an_app(), a_topology()), {}, a_part("p")),
        ((an_app(), a_topology()), {"n1": "P2"}, a_part("p", "P2")),
        ((an_app(), a_topology()), {"n1": "P2"}, a_pod("p")),
        ((an_app(), a_topology()), {"n1": "P2"}, a_part("p", group="other")),
    ],
    ids=["no application", "no pod placed", "no dependency", "no label", "another application"],
)
def test_pods_that_depend_on_nothing_skip(objects, placed, pod):
    cluster, plugin = a_world(*objects, **placed)
    assert plugin.pre_filter(pod, cluster.snapshot) is SKIP


def test_other_weights_are_not_read():
    cluster, plugin = a_world(an_app(), a_topology("NetperfCosts"), n1="P2")
    assert plugin.pre_filter(a_part("p"), cluster.snapshot)["n3"] == (0, 0, 100)


def test_pods_count_while_they_are_there():
    cluster, plugin = a_world(an_app(), a_topology())
    other = a_part("q", "P2")
    plugin.reserve(None, other, "n1")
    assert plugin.pre_filter(a_part("p"), cluster.snapshot)["n1"] == (1, 0, 0)
    plugin.unreserve(None, other, "n1")
    assert plugin.pre_filter(a_part("p"), cluster.snapshot) is SKIP
    plugin.pod_changed(None, other.on("n1"))
    plugin.pod_changed(other, None)
    assert plugin.pre_filter(a_part("p"), cluster.snapshot) is SKIP


class Queued:
    def __init__(self, pod, timestamp):
        self.pod, self.timestamp = pod, timestamp


def test_workloads_are_ordered_as_they_depend_on_each_other():
    cluster, _ = a_world(an_app(order=("P3", "P2", "P1")))
    plugin = TopologicalSort()
    plugin.attach(FakeHandle(cluster.snapshot))
    queue = [
        Queued(a_part("a", "P1"), 1),
        Queued(a_part("b", "P2"), 2),
        Queued(a_part("c", "P3"), 3),
        Queued(a_part("d", "P3"), 2),
    ]
    assert [one.pod.name for one in sorted(queue, key=plugin.sort_key)] == ["d", "c", "b", "a"]
    others = [Queued(a_pod("x"), 5), Queued(a_pod("y", priority=9), 6), Queued(a_part("z", "P1", "unknown"), 4)]
    assert [one.pod.name for one in sorted(others, key=plugin.sort_key)] == ["y", "z", "x"]


def test_the_contract_is_kept():
    cluster, plugin = a_world(an_app(), a_topology(), n1="P2")
    check_plugin(plugin, pods=[a_part("p"), a_pod("q")], cluster=cluster)
    check_plugin(TopologicalSort(), cluster=cluster)
