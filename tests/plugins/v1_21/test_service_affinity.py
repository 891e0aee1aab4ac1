"""Test ServiceAffinity: pods of a service share the values of some labels and spread over those of others."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.core import Service
from moorage.framework.verdicts import Code, Status
from moorage.plugins.v1_21.service_affinity import ServiceAffinity, ServiceAffinityArgs
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores, refusals
from moorage.testing.storage import with_objects

WEB = {"app": "web"}
NO = Status(Code.UNSCHEDULABLE, "ServiceAffinity", ("node(s) didn't match service affinity",))
SERVICE = msgspec.convert({"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": WEB}}, Service)
NODES = {
    "n0": {"region": "r1", "rack": "a"},
    "n1": {"region": "r1", "rack": "b"},
    "n2": {"region": "r2", "rack": "a"},
    "n3": {},
}


def cluster_with(service=True, **held):
    found = a_cluster([a_node(name, labels) for name, labels in NODES.items()], held)
    return with_objects(found, SERVICE) if service else found


def refused(cluster, pod, *keys):
    found = refusals(ServiceAffinity(ServiceAffinityArgs(affinity_labels=keys)), pod, cluster.snapshot)
    assert set(found.values()) <= {NO}
    return "".join(name[1] for name in sorted(found))


SIBLING, STRANGER = a_pod("first", WEB), a_pod("db", {"app": "db"})
FILTERS = {  # placed pods, the pod, is there a service, the labels, the nodes rejected
    "the service's first pod": ({}, a_pod(labels=WEB), True, ["region"], ""),
    "follows the placed pod": ({"n0": [SIBLING]}, a_pod(labels=WEB), True, ["region"], "23"),
    "in all labels": ({"n0": [SIBLING]}, a_pod(labels=WEB), True, ["region", "rack"], "123"),
    "no service": ({"n0": [SIBLING]}, a_pod(labels=WEB), False, ["region"], ""),
    "pods of other services are not followed": ({"n0": [STRANGER]}, a_pod(labels=WEB), True, ["region"], ""),
    "the pod's own node selector": ({}, a_pod(labels=WEB, nodeSelector={"region": "r2"}), True, ["region"], "013"),
    "the node selector before the placed pod": (
        {"n0": [SIBLING]}, a_pod(labels=WEB, nodeSelector={"region": "r2"}), True, ["region"], "013",
    ),
    "the remaining labels from the placed pod": (
        {"n0": [SIBLING]}, a_pod(labels=WEB, nodeSelector={"region": "r2"}), True, ["region", "rack"], "013",
    ),
    "a label the placed pod's node lacks": ({"n3": [SIBLING]}, a_pod(labels=WEB), True, ["region"], ""),
    "no labels": ({"n0": [SIBLING]}, a_pod(labels=WEB), True, [], ""),
}  # fmt: skip


@pytest.mark.parametrize(("held", "pod", "service", "keys", "expected"), FILTERS.values(), ids=FILTERS)
def test_rejects(held, pod, service, keys, expected):
    assert refused(cluster_with(service, **held), pod, *keys) == expected


ORDERS = {  # nodes in order of creation with their zones, nodes with pods of the service; the node followed
    "the first node with a pod": ("a b c", {"n1": "b", "n2": "c"}, "b"),
    "nodes alternate between zones": ("a a b", {"n1": "a", "n2": "b"}, "b"),
    "zones have the order of their first nodes": ("a b a", {"n1": "b", "n2": "a"}, "b"),
}


@pytest.mark.parametrize(("zones", "held", "followed"), ORDERS.values(), ids=ORDERS)
def test_the_first_pod_in_kube_schedulers_node_order_is_followed(zones, held, followed):
    nodes = [
        a_node(f"n{at}", {"topology.kubernetes.io/zone": zone, "region": f"r{at}"}) for at, zone in enumerate(zones.split())
    ]
    cluster = with_objects(a_cluster(nodes, {name: [a_pod(f"on-{name}", WEB)] for name in held}), SERVICE)
    (expected,) = (name for name, zone in held.items() if zone == followed)
    rule = ServiceAffinity(ServiceAffinityArgs(affinity_labels=("region",)))
    assert {"n0", "n1", "n2"} - set(refusals(rule, a_pod("new", WEB), cluster.snapshot)) == {expected}


PODS = {"n0": [a_pod("p0", WEB), a_pod("p1", WEB)], "n2": [a_pod("p2", WEB)]}
SCORES = {  # placed pods, the labels, scores; n3 has neither label
    "no pods": ({}, ["region"], [100, 100, 100, 0]),
    "values with fewer pods score higher": (PODS, ["region"], [33, 33, 66, 0]),
    "by rack": (PODS, ["rack"], [0, 100, 0, 0]),
    "the mean over both labels": (PODS, ["region", "rack"], [16, 66, 33, 0]),
    "no labels": (PODS, [], [0, 0, 0, 0]),
}


@pytest.mark.parametrize(("held", "keys", "expected"), SCORES.values(), ids=SCORES)
def test_scores(held, keys, expected):
    rule = ServiceAffinity(ServiceAffinityArgs(anti_affinity_labels_preference=tuple(keys)))
    assert list(final_scores(rule, a_pod("new", WEB), cluster_with(**held).snapshot).values()) == expected


def test_satisfies_the_plugin_contract():
    rule = ServiceAffinity(ServiceAffinityArgs(("region",), ("rack",)))
    check_plugin(rule, pods=[a_pod("new", WEB), a_pod("other")], cluster=cluster_with(**PODS))
