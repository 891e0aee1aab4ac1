"""A pod group that is part of a tree is explained with the tree: which groups go together, where, and how each was tried."""

from __future__ import annotations

import pytest

import moorage
from moorage.laboratory.explain.explain_gang import explain_group, group_named

GATES = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
TREES = f"{GATES},CompositePodGroup=true"


def a_node(name, cpu, rack):
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"rack": rack}},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}},
    }  # fmt: skip


def a_group(name, least, parent=None, key=None, *, tree=False):
    policy = {"gang": {"minGroupCount" if tree else "minCount": least}}
    within = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
    above = {"parentCompositePodGroupName": parent} if parent else {}
    reference = {"workloadRef": {"workloadName": "w", "templateName": name}} if tree else {}
    version, kind = ("v1alpha3", "CompositePodGroup") if tree else ("v1beta1", "PodGroup")
    return {
        "apiVersion": f"scheduling.k8s.io/{version}", "kind": kind, "metadata": {"name": name, "namespace": "x"},
        "spec": {"schedulingPolicy": policy, **within, **above, **reference},
    }  # fmt: skip


def pods_of(group, number=2):
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulingGroup": {"podGroupName": group}, "containers": [container]}
    names = [{"name": f"{group}-{at}", "namespace": "x"} for at in range(number)]
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec} for meta in names]


def a_cluster(cpu, gates=TREES, *, top="top"):
    """Two racks, and a tree of a group a and, below another composite group, a group b; each needs both of its pods."""
    tree = [a_group(top, 2, key="rack", tree=True), a_group("mid", 1, top, tree=True)]
    groups = [a_group("a", 2, top), a_group("b", 2, "mid")]
    nodes = [a_node("n1", cpu, "r1"), a_node("n2", cpu, "r2")]
    objects = [*nodes, *tree, *groups, *pods_of("a"), *pods_of("b")]
    return moorage.Cluster.from_objects(*objects, feature_gates=gates, release="1.37")


def explained(cluster, name):
    key = group_named(cluster, name)
    cluster.run()
    return explain_group(cluster, key)


@pytest.mark.parametrize("name", ["podgroup/a", "podgroup/b", "compositepodgroup/top", "compositepodgroup/mid"])
def test_a_group_that_fits_waits_for_its_tree(name):
    answer = explained(a_cluster("3"), name)
    assert (answer.state, answer.largest, answer.needed) == ("tree", 2, 2)
    assert answer.summary.endswith("waits for other groups of its tree, x/top: the 2 pods that it needs fit together now.")
    told = [(part.state, part.count, part.why) for part in answer.parts if part.state in {"tree", "group"}]
    found = {why.partition(";")[0]: why.partition(";")[2] for _, _, why in told}
    assert [(state, count, why.partition(";")[0]) for state, count, why in told] == [
        ("tree", 4, "x/top: at least 2 of its 2 groups together, within one rack"),
        ("tree", 2, "x/mid: at least 1 of its 1 group together"),
        ("group", 2, "x/b: at least 2 together"),
        ("group", 2, "x/a: at least 2 together"),
    ]
    assert sorted(found.values()) == [
        "",
        "",
        "",
        " 1 found a node",
    ]  # of the two groups in the rack the second has room for one
    assert "  tree     4 pods: x/top: at least 2 of its 2 groups together, within one rack" in answer.text()


@pytest.mark.parametrize(("cpu", "state"), [("4", "scheduled"), ("0", "never")])
def test_a_tree_that_runs_and_a_group_that_never_fits(cpu, state):
    assert explained(a_cluster(cpu), "podgroup/a").state == state


@pytest.mark.parametrize(
    ("cpu", "room", "said"),
    [
        (0, 0, "can never start here: the cluster holds none of the 4 pods that it needs, even without other pods."),
        (3, 1, "can never start here: the cluster holds at most 3 of the 4 pods that it needs, even without other pods."),
        (6, 0, "cannot start: none of the 4 pods that it needs fit together."),
        (6, 3, "cannot start: 3 of the 4 pods that it needs fit together."),
    ],
)
def test_the_pods_that_fit_are_those_that_are_tried_first(cpu, room, said):
    request = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu - room)}}}]}
    other = {"metadata": {"name": "other", "namespace": "x"}, "spec": {**request, "nodeName": "n1"}}
    objects = [a_node("n1", str(cpu), "r1"), a_group("a", 4), *pods_of("a", 4)]
    objects += [{"apiVersion": "v1", "kind": "Pod", **other}] if cpu > room else []
    answer = explained(moorage.Cluster.from_objects(*objects, feature_gates=GATES, release="1.37"), "podgroup/a")
    assert answer.summary == f"x/a {said}"
    fits = [part.pods for part in answer.parts if part.state == "fits"]
    assert fits == [tuple(f"a-{at}" for at in range(room))][: bool(room)]


def test_without_the_gate_there_is_no_tree():
    answer = explained(a_cluster("3", GATES), "podgroup/a")
    assert answer.state == "scheduled"
    assert not [part for part in answer.parts if part.state in {"tree", "group"}]


def test_an_unknown_tree_has_no_group():
    assert group_named(a_cluster("3"), "compositepodgroup/none") is None
