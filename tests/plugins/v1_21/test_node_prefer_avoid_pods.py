"""Test the node annotation that names the controllers whose pods a node prefers to avoid."""

from __future__ import annotations

import json

import msgspec
import pytest

from moorage.plugins.v1_21.node_prefer_avoid_pods import ANNOTATION, NodePreferAvoidPods
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores


def annotated(text, name="n"):
    node = a_node(name)
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations={ANNOTATION: text}))


def avoiding(kind, uid):
    return json.dumps({"preferAvoidPods": [{"podSignature": {"podController": {"kind": kind, "uid": uid}}, "reason": "r"}]})


def owned(kind, uid, *, controller=True):
    owner = {"apiVersion": "v1", "kind": kind, "name": "x", "uid": uid, "controller": controller}
    return a_pod(metadata={"ownerReferences": [owner]})


CASES = {  # the annotation, the pod, its score
    "the pod's controller": (avoiding("ReplicaSet", "1"), owned("ReplicaSet", "1"), 0),
    "a replication controller": (avoiding("ReplicationController", "1"), owned("ReplicationController", "1"), 0),
    "another UID": (avoiding("ReplicaSet", "2"), owned("ReplicaSet", "1"), 100),
    "another kind": (avoiding("ReplicationController", "1"), owned("ReplicaSet", "1"), 100),
    "a kind that is never considered": (avoiding("StatefulSet", "1"), owned("StatefulSet", "1"), 100),
    "an owner that is not its controller": (avoiding("ReplicaSet", "1"), owned("ReplicaSet", "1", controller=False), 100),
    "no owner": (avoiding("ReplicaSet", "1"), a_pod(), 100),
    "keys in any case": (avoiding("ReplicaSet", "1").replace("podSignature", "PODSIGNATURE").replace("uid", "UID"),
                    owned("ReplicaSet", "1"), 0),
    "with empty optional fields": (
        '{"preferAvoidPods": [null, {"podSignature": null, "evictionTime": null}]}', owned("ReplicaSet", "1"), 100,
    ),
    "with unknown fields": (
        avoiding("ReplicaSet", "1").replace('"reason"', '"more"'), owned("ReplicaSet", "1"), 0,
    ),
    "with a field of the wrong type": (
        avoiding("ReplicaSet", "1").replace('"reason": "r"', '"reason": 1'), owned("ReplicaSet", "1"), 100,
    ),
    "no object": ("[]", owned("ReplicaSet", "1"), 100),
    "no JSON": ("{", owned("ReplicaSet", "1"), 100),
    "no signature": ('{"preferAvoidPods": [{}]}', owned("ReplicaSet", "1"), 100),
    "null": ('{"preferAvoidPods": null}', owned("ReplicaSet", "1"), 100),
}  # fmt: skip


@pytest.mark.parametrize(("text", "pod", "score"), CASES.values(), ids=CASES)
def test_scores(text, pod, score):
    cluster = a_cluster([annotated(text), a_node("plain")])
    assert final_scores(NodePreferAvoidPods(), pod, cluster.snapshot) == {"n": score, "plain": 100}


def test_follows_node_updates():
    rule, pod = NodePreferAvoidPods(), owned("ReplicaSet", "1")
    cluster = a_cluster([a_node("n")])
    assert final_scores(rule, pod, cluster.snapshot) == {"n": 100}
    cluster.set_node(annotated(avoiding("ReplicaSet", "1")))
    assert final_scores(rule, pod, cluster.snapshot) == {"n": 0}
    cluster.set_node(a_node("n"))
    assert final_scores(rule, pod, cluster.snapshot) == {"n": 100}


def test_satisfies_the_plugin_contract():
    check_plugin(NodePreferAvoidPods(), pods=[owned("ReplicaSet", "1")], cluster=a_cluster([annotated("{"), a_node("m")]))
