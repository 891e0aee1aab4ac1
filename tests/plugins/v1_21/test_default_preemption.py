"""Test preemption in 1.21: the current search with another ranking of victims, and no message when it finds no node."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.workloads import PodDisruptionBudget
from moorage.core.cycle.cycle import Cycle
from moorage.framework.points import PostFilterResult
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import Code, Reject
from moorage.plugins import default_preemption as today
from moorage.plugins.earlier.default_preemption import DefaultPreemptionV121
from moorage.plugins.node_affinity import NodeAffinity
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.storage import with_objects

BEFORE = "2026-01-01T00:00:00Z"
NOTHING = PostFilterResult(Code.UNSCHEDULABLE)


def wants(cpu, priority, name="pod", labels=None, *, nominated="", leaving=False, **spec):
    metadata = {"deletionTimestamp": BEFORE} if leaving else {}
    containers = [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]
    status = {"nominatedNodeName": nominated}
    return a_pod(name, labels, metadata=metadata, status=status, priority=priority, containers=containers, **spec)


def profile_with(*rules, preemption):
    names = [rule.name for rule in rules]
    plugins = {rule.name: rule for rule in (*rules, preemption)}
    prepared = [rule.name for rule in rules if hasattr(rule, "pre_filter")]
    return make_profile("old", plugins, {"preFilter": prepared, "filter": names, "postFilter": [preemption.name]}, {})


def attempt(pod, *held, preemption=None):
    profile = profile_with(NodeAffinity(), NodeResourcesFit(), preemption=preemption or DefaultPreemptionV121())
    cluster = a_cluster([a_node("n", allocatable={"cpu": "4", "pods": 10})], {"n": held})
    return Cycle().decide(profile, pod, cluster.snapshot)


def test_nominates_a_node_and_lists_victims():
    found = attempt(wants(3, 10), wants(3, 0, "low")).post_filter
    assert found.nominated == "n"
    assert [victim.name for victim in found.victims] == ["low"]


SILENT = {  # the pod, pods on the node
    "no pod of lower priority": (wants(3, 0), wants(3, 5, "high")),
    "never": (wants(3, 10, preemptionPolicy="Never"), wants(3, 0, "low")),
    "a pod terminates on the nominated node": (wants(3, 10, nominated="n"), wants(3, 0, "low", leaving=True)),
    "it was nominated, and no pod of lower priority is left": (wants(3, 0, nominated="n"), wants(3, 5, "high")),
}


@pytest.mark.parametrize(("pod", "held"), SILENT.values(), ids=SILENT)
def test_returns_no_message_and_keeps_nominations(pod, held):
    decision = attempt(pod, held)
    assert decision.post_filter == NOTHING
    assert decision.message == "0/1 nodes are available: 1 Insufficient cpu."


def test_the_nomination_is_cleared_when_no_node_is_a_candidate():
    elsewhere = wants(1, 10, nominated="n", nodeSelector={"disk": "ssd"})
    assert attempt(elsewhere, wants(3, 0, "low")).post_filter == PostFilterResult(Code.UNSCHEDULABLE, nominated="")


BOLD = {  # the pod preempts, since it need not wait
    "the terminating pod has a higher priority": (
        wants(3, 10, nominated="n"),
        [wants(1, 20, "vip", leaving=True), wants(3, 0, "low")],
    ),
    "it is nominated to another node": (wants(3, 10, nominated="gone"), [wants(1, 0, "old", leaving=True), wants(3, 0, "low")]),
    "no pod is terminating": (wants(3, 10, nominated="n"), [wants(3, 0, "low")]),
}


@pytest.mark.parametrize(("pod", "held"), BOLD.values(), ids=BOLD)
def test_waits_only_for_terminating_pods_of_lower_priority(pod, held):
    assert attempt(pod, *held).post_filter.nominated == "n"


# -- which victims it selects ---------------------------------------------------------------------------------------------


def budget(allowed, **labels):
    spec = {"selector": {"matchLabels": labels}}
    status = {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    return msgspec.convert(
        {"metadata": {"name": "-".join(labels), "namespace": "default"}, "spec": spec, "status": status}, PodDisruptionBudget
    )


def among(preemption, nodes, *budgets):
    """Return the victims' names and the node for a pod that needs a whole node. ``nodes``: pods on each, by name."""
    cluster = a_cluster([a_node(name, allocatable={"cpu": "4", "pods": 10}) for name in nodes], nodes)
    found = Cycle().decide(
        profile_with(NodeResourcesFit(), preemption=preemption), wants(4, 100), with_objects(cluster, *budgets).snapshot
    )
    return found.post_filter.nominated, [victim.name for victim in found.post_filter.victims]


KEPT = {"app": "kept"}


def test_budget_violations_are_listed_first():
    on_node = {"n": [wants(1, 1, "low", KEPT), wants(1, 9, "high"), wants(1, 5, "middle", KEPT)]}
    assert among(DefaultPreemptionV121(), on_node, budget(0, **KEPT)) == ("n", ["middle", "low", "high"])
    assert among(today.DefaultPreemption(), on_node, budget(0, **KEPT)) == ("n", ["high", "middle", "low"])


def test_a_budget_violation_hides_a_more_important_victim():
    nodes = {
        "hides": [wants(2, 1, "cheap", KEPT), wants(2, 9, "dear")],
        "plain": [wants(2, 5, "one", KEPT), wants(2, 5, "two")],
    }
    assert among(DefaultPreemptionV121(), nodes, budget(0, **KEPT)) == ("hides", ["cheap", "dear"])
    assert among(today.DefaultPreemption(), nodes, budget(0, **KEPT))[0] == "plain"


WEIGHED = {  # pods of two nodes (priority, labels); the node selected by the first criterion that differs
    "fewest budget violations": ([(1, KEPT), (1, {})], [(50, {}), (50, {})], "b"),
    "lowest priority": ([(9, {})], [(8, {}), (8, {})], "b"),
    "lowest sum": ([(9, {}), (5, {})], [(9, {}), (4, {})], "b"),
    "fewest": ([(-5, {}), (-(2**31), {})], [(-5, {})], "b"),
    "equal, the first": ([(1, {})], [(1, {})], "a"),
}


@pytest.mark.parametrize(("one", "other", "node"), WEIGHED.values(), ids=WEIGHED)
def test_the_best_candidate(one, other, node):
    nodes = {
        name: [wants(4 / len(pods), priority, f"{name}{at}", labels) for at, (priority, labels) in enumerate(pods)]
        for name, pods in (("a", one), ("b", other))
    }
    assert among(DefaultPreemptionV121(), nodes, budget(0, **KEPT))[0] == node


class RejectsUntilRemoval:
    """Reject every node until a pod is removed."""

    name = "Moody"

    def pre_filter(self, pod, snapshot):
        return False

    def add_pod(self, was_removed, pod, other, node):
        return was_removed

    def remove_pod(self, was_removed, pod, other, node):
        return True

    def filter(self, was_removed, nodes):
        yield Reject(nodes.false() if was_removed else ~nodes.false(), "in a mood")


@pytest.mark.parametrize(
    ("preemption", "outcome"), [(DefaultPreemptionV121(), Code.SUCCESS), (today.DefaultPreemption(), Code.ERROR)]
)
def test_a_node_that_needs_no_victim_is_nominated(preemption, outcome):
    cluster = a_cluster([a_node("n")], {"n": [wants(1, 0, "low")]})
    found = (
        Cycle().decide(profile_with(RejectsUntilRemoval(), preemption=preemption), wants(1, 10), cluster.snapshot).post_filter
    )
    assert found.code is outcome
    assert (found.nominated or "", found.victims) == ("n" if outcome is Code.SUCCESS else "", ())


def test_nodes_on_which_a_filter_fails_are_skipped():
    class Broken(RejectsUntilRemoval):
        def filter(self, was_removed, nodes):
            yield Reject(~nodes.false(), "cannot tell" if was_removed else "in a mood", error=was_removed)

    cluster = a_cluster([a_node("n")], {"n": [wants(1, 0, "low")]})
    profile = profile_with(Broken(), preemption=DefaultPreemptionV121())
    assert Cycle().decide(profile, wants(1, 10), cluster.snapshot).post_filter == NOTHING
