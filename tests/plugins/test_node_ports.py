"""Test that a host port is used once on a node."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import SKIP, Code, Status
from moorage.plugins.node_ports import NodePorts
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import refusals, wakes

NO = Status(Code.UNSCHEDULABLE, "NodePorts", ("node(s) didn't have free ports for the requested pod ports",))

CASES = {  # the pod's ports, the node's used ports, rejected?
    "no host port requested": ([], ["TCP/10.0.0.1/80"], False),
    "no port in use": (["TCP/10.0.0.1/80"], [], False),
    "same port and address": (["TCP/10.0.0.1/80"], ["TCP/10.0.0.1/80"], True),
    "other port": (["TCP/10.0.0.1/80"], ["TCP/10.0.0.1/81"], False),
    "other protocol": (["TCP/10.0.0.1/80"], ["UDP/10.0.0.1/80"], False),
    "other address": (["TCP/10.0.0.1/80"], ["TCP/10.0.0.2/80"], False),
    "every address requested": (["TCP/0.0.0.0/80"], ["TCP/10.0.0.2/80"], True),
    "every address in use": (["TCP/10.0.0.1/80"], ["TCP/0.0.0.0/80"], True),
    "no address is every address": (["TCP//80"], ["TCP/10.0.0.2/80"], True),
    "one of several in use": (["TCP//80", "TCP//443"], ["UDP//80", "TCP//443"], True),
}


def port(text):
    protocol, address, number = text.split("/")
    return {"protocol": protocol, "hostIP": address, "hostPort": int(number), "containerPort": 1}


def requesting(*ports, name="pod", **spec):
    return a_pod(name, containers=[{"name": "c", "ports": [port(p)]} for p in ports], **spec)


def using(*ports):
    return a_cluster([a_node("n")], {"n": [requesting(*ports, name="held")]})


@pytest.mark.parametrize(("requested", "used", "rejected"), CASES.values(), ids=CASES)
def test_rejects(requested, used, rejected):
    assert refusals(NodePorts(), requesting(*requested), using(*used).snapshot) == ({"n": NO} if rejected else {})


@pytest.mark.parametrize(("requested", "used", "rejected"), CASES.values(), ids=CASES)
def test_the_deletion_of_the_port_owner_wakes_the_pods_it_blocked(requested, used, rejected):
    gone = requesting(*used, name="gone", nodeName="n")
    assert wakes(NodePorts(), requesting(*requested), Resource.POD, Action.DELETE, gone) is rejected


def test_a_sidecar_uses_its_port_and_an_init_container_does_not():
    def starting(policy):
        return a_pod("s", initContainers=[{"name": "i", "ports": [port("TCP//80")], "restartPolicy": policy}])

    for pod, rejected in ((starting("Always"), {"n": NO}), (starting(None), {})):
        assert refusals(NodePorts(), requesting("TCP//80"), a_cluster([a_node("n")], {"n": [pod]}).snapshot) == rejected
        assert refusals(NodePorts(), pod, using("TCP//80").snapshot) == rejected


def test_skips_pods_without_host_ports():
    snapshot = using("TCP//80").snapshot
    assert NodePorts().pre_filter(a_pod(containers=[{"ports": [{"containerPort": 80}]}]), snapshot) is SKIP


def test_the_deletion_of_an_unassigned_pod_wakes_no_pod():
    assert not wakes(NodePorts(), requesting("TCP//80"), Resource.POD, Action.DELETE, requesting("TCP//80", name="gone"))


def test_an_added_node_wakes():
    assert wakes(NodePorts(), requesting("TCP//80"), Resource.NODE, Action.ADD, None, a_node("n"))


ports = st.builds(
    "{}/{}/{}".format, st.sampled_from(["TCP", "UDP"]), st.sampled_from(["", "0.0.0.0", "10.0.0.1"]), st.sampled_from([80, 81])
)
port_sets = st.lists(ports, max_size=3, unique=True)


def conflicts(one, other):
    protocol, address, number = one.split("/")
    its_protocol, its_address, its_number = other.split("/")
    everywhere = {"", "0.0.0.0"}
    same_address = address == its_address or address in everywhere or its_address in everywhere
    return (protocol, number) == (its_protocol, its_number) and same_address


@settings(max_examples=40)
@given(port_sets, st.lists(st.lists(port_sets, max_size=2), max_size=4), st.data())
def test_agrees_with_a_reference_implementation(requested, held_by_pods, data):
    names = [f"n{i}" for i in range(len(held_by_pods))]
    placed = {
        name: [requesting(*held, name=f"{name}-{i}") for i, held in enumerate(pods)]
        for name, pods in zip(names, held_by_pods, strict=True)
    }
    nodes = a_cluster(map(a_node, names), placed).snapshot.nodes
    part = {name for name in names if data.draw(st.booleans())}
    expected = {
        name: NO
        for name, pods in zip(names, held_by_pods, strict=True)
        if name in part and any(conflicts(a, h) for a in requested for held in pods for h in held)
    }
    assert refusals(NodePorts(), requesting(*requested), nodes.only(nodes.named(part))) == expected


@settings(max_examples=40)
@given(port_sets, port_sets, port_sets)
def test_every_deletion_that_frees_a_port_wakes(requested, deleted, kept):
    cluster = a_cluster([a_node("n")], {"n": [requesting(*kept, name="stays"), requesting(*deleted, name="leaves")]})
    pod, gone = requesting(*requested), requesting(*deleted, name="leaves", nodeName="n")
    before = refusals(NodePorts(), pod, cluster.snapshot)
    cluster.remove_pod(gone.uid)
    if before and not refusals(NodePorts(), pod, cluster.snapshot):
        assert wakes(NodePorts(), pod, Resource.POD, Action.DELETE, gone)
