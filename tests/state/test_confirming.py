"""Assumed pods that come back from the API server: what was accounted stays where nothing else has changed."""

from __future__ import annotations

import json

import msgspec
import pytest

from moorage.api.core import Node, Pod
from moorage.state.cluster import ClusterState
from moorage.state.pod_info import PodInfo

NODE = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}}
POD = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"app": "web"}, "resourceVersion": "1"},
    "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}, "ports": [{"hostPort": 80}]}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
                ]
            }
        },
    },
    "status": {"phase": "Pending"},
}
BOUND = {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}, "metadata": {"resourceVersion": "2"}}
REPORT = [{"name": "c", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]

CASES = {  # what else the API server tells of the pod; is the row left alone?
    "nothing else": ({}, True),
    "an annotation": ({"metadata": {"annotations": {"a": "b"}}}, True),
    "it was nominated": ({"status": {"nominatedNodeName": "n1"}}, True),
    "a label": ({"metadata": {"labels": {"app": "other"}}}, False),
    "it has started": ({"status": {"startTime": "2026-11-21T03:00:00Z"}}, False),
    "an owner": ({"metadata": {"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "x"}]}}, False),
    "it is to go": ({"metadata": {"deletionTimestamp": "2026-11-21T03:00:00Z"}}, False),
    "other requests": ({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}, False),
    "another toleration": ({"spec": {"tolerations": []}}, False),
    "no affinity any more": ({"spec": {"affinity": None}}, False),
    "its node has reported on it": ({"status": {"containerStatuses": REPORT}}, False),
    "claims that were made for it": ({"status": {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "b"}]}}, False),
}  # fmt: skip


def merged(held, change):
    if not isinstance(held, dict) or not isinstance(change, dict):
        return change
    return {**held, **{name: merged(held.get(name), value) for name, value in change.items()}}


def decoded(document):
    return PodInfo(msgspec.json.decode(json.dumps(document), type=Pod))


def a_cluster():
    cluster = ClusterState()
    cluster.set_node(msgspec.json.decode(json.dumps(NODE), type=Node))
    return cluster


def accounts(table):
    requested = {name: int(table.requested(name).data[0]) for name in ("cpu", "memory")}
    classes = {key: dict(one.rows) for key, one in table.pod_counts._classes.items()}
    terms = {held: of.total for held, of in table.required_anti_affinity._held.items()}
    return requested, int(table.nonzero_cpu.data[0]), int(table.pod_count.data[0]), table.host_ports, classes, terms


@pytest.mark.parametrize(("change", "left_alone"), CASES.values(), ids=CASES)
def test_a_row_changes_only_where_the_confirmed_pod_differs(change, left_alone):
    confirmed = decoded(merged(merged(merged(POD, BOUND), {"spec": {"nodeName": "n1"}}), change))
    pod = decoded(POD)
    assert pod.needs.requests["cpu"] == 1000
    cluster, fresh = a_cluster(), a_cluster()
    cluster.assume(pod, "n1")  # as the engine does: the assumed pod names no node yet
    before = cluster.table.changes.position

    cluster.place(confirmed, "n1")

    assert (cluster.table.changes.position == before) is left_alone
    assert not cluster.is_assumed("u")
    assert cluster.pod("u") is confirmed
    fresh.place(decoded(merged(merged(POD, BOUND), change)), "n1")
    assert accounts(cluster.table) == accounts(fresh.table)
    cluster.remove_pod("u")
    assert accounts(cluster.table) == accounts(a_cluster().table)
