"""A node changes a label by which pods are counted; a held term counts by another label."""

from moorage.plugins.inter_pod_affinity import InterPodAffinity
from moorage.plugins.pod_topology_spread import PodTopologySpread
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import refusals

HOST, ZONE = "kubernetes.io/hostname", "zone"
APP = {"matchLabels": {"app": "x"}}


def anti(key):
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": APP}]}}


def node(name, zone):
    return a_node(name, {HOST: name, ZONE: zone})


def test_held_terms_follow_a_label_that_counts_of_pods_do_not_use():
    cluster = a_cluster([node("a", "1"), node("b", "2"), node("c", "3")])
    cluster.place(a_pod("held", {"app": "y"}, affinity=anti(ZONE)), "a")
    new = a_pod("new", {"app": "x"})
    assert set(refusals(InterPodAffinity(), new, cluster.snapshot)) == {"a"}
    cluster.set_node(node("a", "2"))
    assert set(refusals(InterPodAffinity(), new, cluster.snapshot)) == {"a", "b"}


def test_counts_follow_a_label_that_held_terms_do_not_use():
    cluster = a_cluster([node("a", "1"), node("b", "2")])
    cluster.place(a_pod("one", {"app": "x"}), "a")
    cluster.place(a_pod("held", {"app": "y"}, affinity=anti(HOST)), "b")
    spread = [{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": APP}]
    new = a_pod("new", {"app": "x"}, topologySpreadConstraints=spread)
    assert set(refusals(PodTopologySpread(), new, cluster.snapshot)) == {"a"}
    cluster.set_node(node("a", "2"))
    cluster.set_node(node("b", "1"))
    assert set(refusals(PodTopologySpread(), new, cluster.snapshot)) == {"a"}
