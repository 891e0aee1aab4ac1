"""The least change that places a pod: known answers."""

from __future__ import annotations

import pytest

import moorage
from moorage.laboratory.change.change_sets import combined, covers, weakened
from moorage.laboratory.change.least_change import ChangeLimits, find_least_change
from moorage.laboratory.costs import Costs
from moorage.laboratory.edit.edits import parse_edit
from moorage.testing.builders import a_node, a_pod
from tests.laboratory.fresh_trials import FreshTrials

AMOUNTS = {"cpu": "2", "memory": "4Gi", "pods": 10}
HOST = "kubernetes.io/hostname"


def asking(name, cpu="1", labels=None, node="", **spec):
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return a_pod(name, labels, containers=containers, **({"nodeName": node} if node else {}), **spec).pod


def answers(*objects, pod="default/new", **options):
    cluster = moorage.Cluster.from_objects(objects)
    held = cluster.objects()
    return find_least_change(FreshTrials(held, pod, cluster.options), held, ChangeLimits(**options))


def lines(found):
    return [(one.owner, one.cost, " and ".join(one.texts), one.nodes) for one in found.remedies]


@pytest.mark.slow
def test_the_demo_has_one_answer_for_each_owner():
    cluster = moorage.Cluster.read("examples/demo")
    cluster.run()
    found = cluster.least_change("search-2")
    assert [(one.kind, one.owner, one.cost, " and ".join(one.texts), one.nodes) for one in found] == [
        ("repair", "node", 2, "kubectl uncordon general-c2", ("general-c2",)),
        ("grow", "cluster", 8.122232, "add a node like general-a1", ("general-a1-new",)),
        ("loosen", "pod", 10, "drop nodeSelector disk", ("general-a2", "general-b2")),
        ("loosen", "pod", 10, "anti-affinity required → preferred", ("general-a1", "general-b1")),
        ("loosen", "node", 10.5, "kubectl label node general-a2 disk=ssd", ("general-a2",)),
    ]
    assert all(one.minimal for one in found)
    every = cluster.least_change("search-2", all_changes=True)
    assert {one.owner for one in every} == {"pod", "node", "cluster", "config"}
    assert next(one for one in every if one.owner == "cluster").stranded == ("default/search-0",)


def test_a_request_shrinks_to_a_round_number_on_the_best_node():
    nodes = [a_node(f"n{i}", allocatable=AMOUNTS) for i in range(2)]
    found = answers(*nodes, asking("a", "1317m", node="n0"), asking("b", "1500m", node="n1"), asking("new"), may=["pod"])
    assert lines(found)[0] == ("pod", round(4 + 2 * (1000 / 683 - 1), 6), "requests.cpu 1 → 650m", ("n0",))
    assert found.proof == "exhaustive"
    assert found.remedies[0].alike == ()


def test_two_refusals_need_two_changes():
    found = answers(
        a_node("n", allocatable=AMOUNTS, unschedulable=True), asking("new", nodeSelector={"disk": "ssd"}), may=["node"]
    )
    assert lines(found) == [("node", 5, "kubectl label node n disk=ssd and kubectl uncordon n", ("n",))]


def test_owners_join_where_none_can_do_it_alone():
    node = a_node("n", {"topology.kubernetes.io/zone": "a"}, allocatable=AMOUNTS, unschedulable=True)
    found = answers(node, asking("new", nodeSelector={"topology.kubernetes.io/zone": "b"}), may=["pod", "node"])
    assert lines(found) == [("pod+node", 12, "drop nodeSelector topology.kubernetes.io/zone and kubectl uncordon n", ("n",))]


def test_an_eviction_says_who_finds_no_place():
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": True}]
    held = a_pod("held", metadata={"ownerReferences": owner}, nodeName="n", containers=asking("x", "2").spec.containers).pod
    objects = (a_node("n", allocatable=AMOUNTS), held, asking("new"))
    (first, second) = answers(*objects, may=["cluster"], all_changes=True).remedies
    assert (first.cost, first.texts[0].startswith("evict default/held"), len(first.stranded)) == (6, True, 1)
    assert second.texts == ("add a node like n",)
    found = answers(*objects, may=["cluster"])
    assert [one.kind for one in found.remedies] == ["grow"]
    assert found.left_out == {"capacity": 1, "filter": 1, "nothing": 1, "stranded": 1}


def test_a_higher_priority_is_the_lowest_that_preempts():
    held = [asking(f"p{i}", "2", node=f"n{i}", priority=p) for i, p in enumerate((100, 1000))]
    found = answers(
        *(a_node(f"n{i}", allocatable=AMOUNTS) for i in range(2)), *held, asking("new", "2", priority=0), may=["pod"]
    )
    raised = next(one for one in found.remedies if "priority" in one.texts[0])
    text = "create PriorityClass priority-101 (101), priorityClassName (none) → priority-101"
    assert (raised.texts, raised.displaced, raised.cost) == ((text,), ("default/p0",), 9.5)


def test_gates_and_schedulers_come_first():
    pod = asking("new", schedulingGates=[{"name": "wait"}], schedulerName="mine")
    found = answers(a_node("n", allocatable=AMOUNTS), pod, may=["pod"])
    assert found.remedies[0].cost == 3
    assert set(found.remedies[0].texts) == {
        "remove scheduling gate wait", "schedulerName mine → default-scheduler",
    }  # fmt: skip


def test_another_profile_serves_a_scheduler_that_none_has():
    found = answers(a_node("n", allocatable=AMOUNTS), asking("new", schedulerName="mine"), may=["config"])
    assert [(one.texts, one.cost, one.nodes) for one in found.remedies] == [(("add a profile for scheduler mine",), 12, ("n",))]


def test_costs_choose_between_answers():
    objects = (a_node("n", allocatable=AMOUNTS), asking("new", nodeSelector={"disk": "ssd"}))
    dear = Costs({**Costs().table, "effort.label": 11})
    assert [one.owner for one in answers(*objects, may=["pod", "node"]).remedies] == ["node", "pod"]
    assert [one.owner for one in answers(*objects, may=["pod", "node"], costs=dear).remedies] == ["pod", "node"]


def test_a_pod_that_fits_needs_no_change_and_an_impossible_one_has_none():
    node = a_node("n", allocatable=AMOUNTS)
    assert answers(node, asking("new")).is_placed
    assert answers(a_node("n", {HOST: "n"}), asking("new", nodeSelector={HOST: "m"}), may=["node"]).remedies == ()


def test_few_probes_leave_the_answer_unproven():
    objects = [a_node(f"n{i}", allocatable=AMOUNTS) for i in range(3)]
    found = answers(*objects, asking("new", "8", nodeSelector={"a": "b", "c": "d"}), probes=4)
    assert (found.proof, found.runs <= 12) == ("bounded", True)


def test_numbers_are_weakened_in_the_order_of_their_texts():
    texts = [f"node/n{at} allocatable.cpu=3" for at in range(9)]
    weaker = list(weakened(frozenset(map(parse_edit, reversed(texts)))))
    assert [[one.target for one in some if one.new == 2999] for some in weaker] == [[f"node/n{at}"] for at in range(9)]


def test_sets_of_changes_combine_by_field():
    one, other = parse_edit("pod/new requests.cpu=1"), parse_edit("pod/new requests.cpu=500m")
    assert combined([one], [other]) == {other}
    assert covers(frozenset([other]), frozenset([one]))
    assert not covers(frozenset([one]), frozenset([other]))
    assert combined([parse_edit("node/n labels.a=b")], [parse_edit("node/n labels.a=c")]) is None
    assert (
        len(combined([parse_edit("pod/new tolerations=a:NoSchedule")], [parse_edit("pod/new tolerations=b:NoSchedule")])) == 2
    )
