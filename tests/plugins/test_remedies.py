"""Test the changes that plugins offer to lift a rejection, and their exact thresholds."""

from __future__ import annotations

import pytest

from moorage.framework.changes import RemedyingPlugin
from moorage.plugins import BUILTIN
from moorage.plugins.node_affinity import NodeAffinity
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.plugins.pod_topology_spread import PodTopologySpread
from moorage.plugins.shared.releases import PLUGINS_1_21
from moorage.plugins.taint_toleration import TaintToleration
from moorage.testing.builders import a_cluster, a_node, a_pod


def offers(plugin, pod, cluster, row=0):
    """Return each offer as (owner, verb, target, path, old, new); a list for changes that only help together."""
    snapshot = cluster.snapshot
    state = plugin.pre_filter(pod, snapshot) if hasattr(plugin, "pre_filter") else pod
    found = plugin.remedies(state, pod, snapshot.nodes.at(row))

    def plain(change):
        return (change.owner, change.verb, change.target, change.path, change.old, change.new)

    return [[plain(c) for c in one] if isinstance(one, tuple) else plain(one) for one in found]


def test_every_filter_plugin_offers_remedies():
    filters = [cls for cls in (*BUILTIN, *PLUGINS_1_21.values()) if hasattr(cls, "filter")]
    assert len(filters) > 25
    assert [cls.__name__ for cls in filters if not callable(getattr(cls, "remedies", None))] == []
    assert isinstance(TaintToleration(), RemedyingPlugin)


def test_amounts_are_exact_thresholds():
    node = a_node("n", allocatable={"cpu": "2", "memory": "1Gi", "pods": 10})
    held = a_pod("held", containers=[{"name": "c", "resources": {"requests": {"cpu": "1317m"}}}])
    pod = a_pod("new", containers=[{"name": "c", "resources": {"requests": {"cpu": "700m", "memory": "2Gi"}}}])
    assert offers(NodeResourcesFit(), pod, a_cluster([node], {"n": [held]})) == [
        ("pod", "request", "pod/default/new", "requests.cpu", 700, 683),
        ("node", "allocatable", "node/n", "allocatable.cpu", 2000, 2017),
        [("cluster", "evict", "pod/default/held", "", "n", None)],
        ("pod", "request", "pod/default/new", "requests.memory", 2 * 2**30, 2**30),
        ("node", "allocatable", "node/n", "allocatable.memory", 2**30, 2 * 2**30),
    ]


def test_only_the_pods_that_free_enough_are_offered():
    node = a_node("n", allocatable={"cpu": "3", "pods": 10})
    held = [
        a_pod(f"p{cpu}", containers=[{"name": "c", "resources": {"requests": {"cpu": f"{cpu}m"}}}]) for cpu in (1500, 900, 600)
    ]
    pod = a_pod("new", containers=[{"name": "c", "resources": {"requests": {"cpu": "1400m"}}}])
    found = offers(NodeResourcesFit(), pod, a_cluster([node], {"n": held}))
    sets = [
        [target for _, _, target, *_ in one]
        for one in found
        if isinstance(one, list) and {verb for _, verb, *_ in one} == {"evict"}
    ]
    assert sets == [["pod/default/p1500"], ["pod/default/p900", "pod/default/p600"]]


def test_labels_are_not_offered_for_facts_about_a_node():
    node = a_node("n", {"topology.kubernetes.io/zone": "a"})
    pod = a_pod("new", nodeSelector={"topology.kubernetes.io/zone": "b", "disk": "ssd"})
    verbs = [(verb, path) for _, verb, _, path, _, _ in offers(NodeAffinity(), pod, a_cluster([node]))]
    assert verbs == [
        ("drop-selector", "nodeSelector.topology.kubernetes.io/zone"),
        ("label", "labels.disk"),
        ("drop-selector", "nodeSelector.disk"),
    ]


def test_the_cordons_taint_is_removed_with_the_cordon():
    taints = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"},
    ]
    cluster = a_cluster([a_node("n", unschedulable=True, taints=taints)])
    assert [(verb, old or new) for _, verb, _, _, old, new in offers(TaintToleration(), a_pod("new"), cluster)] == [
        ("uncordon", True),
        ("untaint", "gpu=yes:NoSchedule"),
        ("tolerate", "gpu=yes:NoSchedule"),
    ]


def test_a_skew_is_the_smallest_that_admits_the_pod():
    zones = [a_node(f"n{zone}", {"zone": zone}) for zone in "ab"]
    constraint = {
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }  # fmt: skip
    held = [a_pod(f"w{i}", {"app": "web"}) for i in range(3)]
    pod = a_pod(
        "new", {"app": "web"}, topologySpreadConstraints=[{**constraint, "whenUnsatisfiable": "ScheduleAnyway"}, constraint]
    )
    found = offers(PodTopologySpread(), pod, a_cluster(zones, {"na": held}))
    assert found[1] == ("pod", "max-skew", "pod/default/new", "topologySpreadConstraints[1].maxSkew", 1, 4)
    assert len(found) == 3
    assert len(found[2]) == 3


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
TAINTED = {  # the taints of a node, its labels, the pod's tolerations, and whether counting it may be what rejects the pod
    "a taint": ([TAINT], {"zone": "b"}, [], True),
    "a taint that evicts": ([{**TAINT, "effect": "NoExecute"}], {"zone": "b"}, [], True),
    "none": ([], {"zone": "b"}, [], False),
    "a taint that only costs score": ([{**TAINT, "effect": "PreferNoSchedule"}], {"zone": "b"}, [], False),
    "a taint that the pod tolerates": ([TAINT], {"zone": "b"}, [{"key": "gpu", "operator": "Exists"}], False),
    "a taint on a node outside all domains": ([TAINT], {}, [], False),
    "a taint on a node that does not count": ([TAINT], {"zone": "b", "disk": "hdd"}, [], False),
}


@pytest.mark.parametrize(("taints", "labels", "tolerations", "may_help"), TAINTED.values(), ids=TAINTED)
def test_taints_are_honored_only_where_a_tainted_node_counts(taints, labels, tolerations, may_help):
    constraint = {
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }  # fmt: skip
    nodes = [a_node("na", {"zone": "a", "disk": "ssd"}), a_node("nc", {"zone": "c", "disk": "ssd"})]
    cluster = a_cluster([*nodes, a_node("nb", {"disk": "ssd", **labels}, taints=taints)], {
        "na": [a_pod(f"w{i}", {"app": "web"}) for i in range(3)],
    })  # fmt: skip
    pod = a_pod(
        "new", {"app": "web"}, topologySpreadConstraints=[constraint], tolerations=tolerations, nodeSelector={"disk": "ssd"}
    )
    verbs = [offer[1] for offer in offers(PodTopologySpread(), pod, cluster) if isinstance(offer, tuple)]
    assert ("honor-taints" in verbs) is may_help
