"""Preemption that spares some pods, and preemption across nodes."""

from __future__ import annotations

import pytest

from moorage.api.custom_objects import read_custom
from moorage.framework.verdicts import Code
from moorage.plugins.inter_pod_affinity import InterPodAffinity
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.testing.builders import a_cluster, a_node, a_pod, failed_attempt
from moorage.testing.fake_handle import FakeHandle
from moorage.testing.plugin_checks import check_plugin
from moorage_scheduler_plugins.cross_node_preemption import CrossNodePreemption
from moorage_scheduler_plugins.preemption_toleration import (
    LEAST_PRIORITY,
    PRIORITY_CLASSES,
    SECONDS,
    PreemptionToleration,
    toleration_of,
)

MINUTE = 60


def a_class(name="tolerant", value=10, **annotations):
    named = {"least": LEAST_PRIORITY, "seconds": SECONDS}
    metadata = {"name": name, "annotations": {named[key]: given for key, given in annotations.items()}}
    document = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value}
    return read_custom(document, PRIORITY_CLASSES, "the test")


def a_victim(scheduled=None, priority=10, name="v", of="tolerant", **spec):
    since = None if scheduled is None else f"1970-01-01T00:{scheduled // 60:02}:{scheduled % 60:02}Z"
    conditions = [] if since is None else [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since}]
    asks = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    given = {"priorityClassName": of} if of else {}
    return a_pod(name, containers=[asks], priority=priority, status={"conditions": conditions}, **given, **spec)


def a_preemptor(priority, **spec):
    return a_pod("p", containers=[{"name": "c", "resources": {"requests": {"cpu": "2"}}}], priority=priority, **spec)


def victims(pod, *placed, classes=(), now=10 * MINUTE):
    cluster = a_cluster([a_node("n1", allocatable={"cpu": "2", "pods": 5})], {"n1": placed})
    cluster.custom_kinds = frozenset({PRIORITY_CLASSES})
    for one in classes:
        cluster.set_object(one)
    plugin = PreemptionToleration()
    plugin.attach(FakeHandle(cluster.snapshot, now=now))
    found = plugin.post_filter(pod, failed_attempt([NodeResourcesFit()], pod, cluster.snapshot))
    return [one.name for one in found.victims] if found.code is Code.SUCCESS else found.reasons[0]


SPARED = "preemption: 0/1 nodes are available: 1 No victims found on node n1 for preemptor pod p."
TOLERATIONS = {
    "no class": (None, a_victim(of=""), 11, ["v"]),
    "a class without annotations": (a_class(), a_victim(), 11, ["v"]),
    "from its least priority on": (a_class(least="20", seconds="-1"), a_victim(), 20, ["v"]),
    "spared for good": (a_class(least="20", seconds="-1"), a_victim(60), 19, SPARED),
    "no seconds: not spared": (a_class(least="20"), a_victim(60), 19, ["v"]),
    "spared for a time": (a_class(least="20", seconds="600"), a_victim(60), 19, SPARED),
    "the time is over": (a_class(least="20", seconds="300"), a_victim(60), 19, ["v"]),
    "not scheduled yet": (a_class(least="20", seconds="1"), a_victim(), 19, SPARED),
    "an annotation that is no number": (a_class(least="high", seconds="-1"), a_victim(60), 19, ["v"]),
    "of its own priority": (a_class(), a_victim(), 10, SPARED),
}


@pytest.mark.parametrize(("of_victim", "victim", "priority", "expected"), TOLERATIONS.values(), ids=TOLERATIONS)
def test_classes_that_tolerate_preemption(of_victim, victim, priority, expected):
    assert victims(a_preemptor(priority), victim, classes=[of_victim] if of_victim else []) == expected


def test_what_a_class_says():
    assert toleration_of(a_class(value=7)) == (8, 0)
    assert toleration_of(a_class(least="100", seconds="3600")) == (100, 3600)
    assert toleration_of(a_class(seconds="soon")) is None


def test_pods_that_may_not_preempt_do_not():
    never = a_preemptor(50, preemptionPolicy="Never")
    assert victims(never, a_victim()) == "preemption: not eligible due to preemptionPolicy=Never."
    leaving = a_victim(metadata={"deletionTimestamp": "1970-01-01T00:00:01Z"})
    again = a_preemptor(50, status={"nominatedNodeName": "n1"})
    assert victims(again, leaving) == "preemption: not eligible due to a terminating pod on the nominated node."


# -- across nodes -------------------------------------------------------------------------------------------------------------

ZONE = "topology.kubernetes.io/zone"


def across(pod, placed):
    rules = NodeResourcesFit(), InterPodAffinity()
    nodes = [
        a_node(name, {ZONE: "a", "kubernetes.io/hostname": name}, allocatable={"cpu": "4", "pods": 5}) for name in ("n1", "n2")
    ]
    snapshot = a_cluster(nodes, placed).snapshot
    return CrossNodePreemption().post_filter(pod, failed_attempt(rules, pod, snapshot))


def an_enemy(name, priority=0):
    return a_pod(name, {"app": "enemy"}, containers=[{"name": "c", "resources": {"requests": {"cpu": "1"}}}], priority=priority)


def apart(**spec):
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "enemy"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return a_preemptor(10, affinity=affinity, **spec)


def test_pods_of_both_nodes_go_where_they_keep_it_off_together():
    found = across(apart(), {"n1": [an_enemy("a")], "n2": [an_enemy("b")]})
    assert found.code is Code.SUCCESS
    assert sorted(one.name for one in found.victims) == ["a", "b"]
    assert found.nominated in {"n1", "n2"}


def test_no_more_pods_go_than_needed():
    large = [
        a_pod(f"x{at}", containers=[{"name": "c", "resources": {"requests": {"cpu": "2"}}}], priority=at) for at in range(2)
    ]
    found = across(
        a_preemptor(10),
        {"n1": large, "n2": [a_pod("y", containers=[{"name": "c", "resources": {"requests": {"cpu": "3"}}}], priority=5)]},
    )
    assert [one.name for one in found.victims] == ["x0"]


def test_pods_of_its_own_priority_stay():
    found = across(apart(), {"n1": [an_enemy("a", 10)], "n2": [an_enemy("b")]})
    assert (found.code, found.victims) == (Code.UNSCHEDULABLE, ())


def test_the_contract_is_kept():
    cluster = a_cluster([a_node("n1", allocatable={"cpu": "2", "pods": 5})])
    cluster.custom_kinds = frozenset({PRIORITY_CLASSES})
    check_plugin(PreemptionToleration(), cluster=cluster)
    check_plugin(CrossNodePreemption())
