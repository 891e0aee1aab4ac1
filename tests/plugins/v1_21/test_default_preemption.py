"""Preemption finds what today's finds, and says nothing where it finds nothing."""

from __future__ import annotations

import pytest

from moorage.cycle.cycle import Cycle
from moorage.framework.points import PostFilterResult
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import Code
from moorage.plugins.node_affinity import NodeAffinity
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.plugins.v1_21.default_preemption import DefaultPreemption
from moorage.testing.builders import a_cluster, a_node, a_pod

BEFORE = "2026-01-01T00:00:00Z"
NOTHING = PostFilterResult(Code.UNSCHEDULABLE)


def wants(cpu, priority, name="pod", *, nominated="", leaving=False, **spec):
    metadata = {"deletionTimestamp": BEFORE} if leaving else {}
    containers = [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]
    status = {"nominatedNodeName": nominated}
    return a_pod(name, metadata=metadata, status=status, priority=priority, containers=containers, **spec)


def attempt(pod, *held):
    plugins = {p.name: p for p in (NodeAffinity(), NodeResourcesFit(), DefaultPreemption())}
    asked = ["NodeAffinity", "NodeResourcesFit"]
    profile = make_profile("old", plugins, {"preFilter": asked, "filter": asked, "postFilter": ["DefaultPreemption"]}, {})
    cluster = a_cluster([a_node("n", allocatable={"cpu": "4", "pods": 10})], {"n": held})
    return Cycle().decide(profile, pod, cluster.snapshot)


def test_it_nominates_and_names_victims():
    found = attempt(wants(3, 10), wants(3, 0, "low")).post_filter
    assert found.nominated == "n"
    assert [victim.name for victim in found.victims] == ["low"]


SILENT = {  # the pod, who is on the node
    "nobody of lower priority": (wants(3, 0), wants(3, 5, "high")),
    "never": (wants(3, 10, preemptionPolicy="Never"), wants(3, 0, "low")),
    "a pod is leaving the nominated node": (wants(3, 10, nominated="n"), wants(3, 0, "low", leaving=True)),
}


@pytest.mark.parametrize(("pod", "held"), SILENT.values(), ids=SILENT)
def test_it_says_nothing_and_leaves_nominations(pod, held):
    decision = attempt(pod, held)
    assert decision.post_filter == NOTHING
    assert decision.message == "0/1 nodes are available: 1 Insufficient cpu."


BOLD = {  # the pod preempts: it waits for nobody
    "the one that leaves is more important": (
        wants(3, 10, nominated="n"),
        [wants(1, 20, "vip", leaving=True), wants(3, 0, "low")],
    ),
    "it is nominated elsewhere": (wants(3, 10, nominated="gone"), [wants(1, 0, "old", leaving=True), wants(3, 0, "low")]),
    "nobody is leaving": (wants(3, 10, nominated="n"), [wants(3, 0, "low")]),
}


@pytest.mark.parametrize(("pod", "held"), BOLD.values(), ids=BOLD)
def test_it_waits_for_pods_that_make_room_alone(pod, held):
    assert attempt(pod, *held).post_filter.nominated == "n"
