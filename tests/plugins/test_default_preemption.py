"""Test DefaultPreemption: which pods may preempt, what it nominates, and its message when it finds no node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.api.workloads import PodDisruptionBudget
from moorage.core.cycle.cycle import Cycle
from moorage.framework.events import Action, Resource
from moorage.framework.points import PostFilterResult
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import Code, Hold, Reject
from moorage.plugins.default_preemption import DefaultPreemption
from moorage.plugins.earlier.default_preemption import DefaultPreemptionV122, DefaultPreemptionV123
from moorage.plugins.node_affinity import NodeAffinity
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import wakes

BEFORE = "2026-01-01T00:00:00Z"
LEAVING = {"deletionTimestamp": BEFORE}
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


def wants(cpu, priority=0, name="pod", *, nominated="", leaving=False, conditions=(), **spec):
    container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}
    status = {"nominatedNodeName": nominated, "conditions": list(conditions), "startTime": BEFORE}
    return a_pod(
        name,
        {"app": name},
        metadata=LEAVING if leaving else {},
        status=status,
        priority=priority,
        containers=[container],
        **spec,
    )


def node(name, cpu=4):
    return a_node(name, {"name": name}, allocatable={"cpu": str(cpu), "pods": 10})


def decide(cluster, pod, nominated: Mapping[str, list] = {}, plugin=None, others=()):
    """Run an attempt with two filter plugins, and with DefaultPreemption after ``others`` in PostFilter."""
    plugins = [NodeAffinity(), NodeResourcesFit(), *others, plugin or DefaultPreemption()]
    post_filter = [p.name for p in plugins if hasattr(p, "post_filter")]
    points = {"preFilter": ["NodeAffinity", "NodeResourcesFit"], "filter": ["NodeAffinity", "NodeResourcesFit"]}
    profile = make_profile("default", {p.name: p for p in plugins}, {**points, "postFilter": post_filter}, {})
    return Cycle().decide(profile, pod, cluster.snapshot, nominated)


def preempt(*args, **more):
    return decide(*args, **more).post_filter


def keys(pods):
    return [pod.name for pod in pods]


# -- nominations ----------------------------------------------------------------------------------------------------------


def test_nominates_the_best_node_and_lists_victims_by_importance():
    placed = {"n1": [wants(4, 5, "a")], "n2": [wants(1, 1, "b"), wants(2, 2, "c"), wants(1, 3, "d")]}
    result = preempt(a_cluster([node("n1"), node("n2")], placed), wants(3, 10))
    assert (result.code, result.reasons, result.nominated) == (Code.SUCCESS, (), "n2")
    assert keys(result.victims) == ["c", "b"]
    assert result.effects == ()


def test_the_decision_adds_no_reasons_to_those_of_filter():
    decision = decide(a_cluster([node("n1")], {"n1": [wants(4, 1, "a")]}), wants(3, 10))
    assert decision.node is None
    assert decision.message == "0/1 nodes are available: 1 Insufficient cpu."


def test_budgets_of_the_snapshot_are_used():
    document = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}},
        "status": {"disruptionsAllowed": 0},
    }
    cluster = a_cluster([node("n1"), node("n2")], {"n1": [wants(4, 1, "a")], "n2": [wants(4, 2, "b")]})
    assert preempt(cluster, wants(3, 10)).nominated == "n1"
    cluster.set_object(msgspec.convert(document, PodDisruptionBudget))
    assert preempt(cluster, wants(3, 10)).nominated == "n2"


def test_terminating_victims_are_not_evicted_again():
    placed = [wants(2, 2, "a"), wants(2, 1, "b", leaving=True)]
    result = preempt(a_cluster([node("n1")], {"n1": placed}), wants(4, 10))
    assert (result.code, result.nominated, keys(result.victims)) == (Code.SUCCESS, "n1", ["a"])


def test_nominated_pods_of_lower_priority_lose_their_nomination_to_the_node():
    nominated = {
        "n1": [wants(1, 12, "more"), wants(1, 10, "equal"), wants(1, 9, "less"), wants(1, 8, "least")],
        "n2": [wants(1, 1, "elsewhere")],
    }
    cluster = a_cluster([node("n1"), node("n2")], {"n1": [wants(3, 1, "a")], "n2": [wants(4, 2, "b")]})
    result = preempt(cluster, wants(2, 10), nominated)
    assert (result.nominated, keys(result.displaced)) == ("n1", ["less", "least"])


# -- messages when no node helps ------------------------------------------------------------------------------------------


def test_message_when_no_node_helps():
    placed = {"n1": [wants(4, 10, "a")], "n2": [wants(3, 10, "b"), wants(1, 1, "c")], "n3": [wants(4, 1, "d")]}
    cluster = a_cluster([*map(node, placed), node("n4", cpu=1)], placed)
    pod = wants(2, 10, nodeSelector={"app": "any"})
    for name in ("n1", "n2", "n4"):
        here = cluster.table.nodes[cluster.table.row_of[name]]
        cluster.set_node(msgspec.structs.replace(here, metadata=msgspec.structs.replace(here.metadata, labels={"app": "any"})))
    decision = decide(cluster, pod)
    why = (
        "preemption: 0/4 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )
    assert decision.post_filter == PostFilterResult(Code.UNSCHEDULABLE, (why,), nominated="")
    assert decision.message == (
        "0/4 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 3 Insufficient cpu. " + why
    )


def outcome_with(rule, *placed, plugin=DefaultPreemption):
    """Preempt for a pod of priority 10 that requests 2 CPUs, with ``rule`` as the first filter plugin."""
    names = [f"n{at}" for at in range(len(placed))]
    cluster = a_cluster(map(node, names), dict(zip(names, placed, strict=True)))
    plugins = {p.name: p for p in (rule, NodeResourcesFit(), plugin())}
    points = {point: [rule.name, "NodeResourcesFit"] for point in ("preFilter", "filter")}
    points["postFilter"] = ["DefaultPreemption"]
    return Cycle().decide(make_profile("default", plugins, points, {}), wants(2, 10), cluster.snapshot).post_filter


class Forgetful:
    """Records that a pod is removed, and ignores that it is added back."""

    name = "Forgetful"

    def pre_filter(self, pod, snapshot):
        return "full"

    def remove_pod(self, state, pod, other, one):
        return "free"

    def filter_node(self, state, one):
        return Hold.because("full") if state == "full" else None


class Lost:
    """Returns an error for the first node once it is empty."""

    name = "Lost"

    def pre_filter(self, pod, snapshot):
        return None

    def filter(self, state, nodes):
        yield Reject(nodes.named(["n0"]) & (nodes.pod_count == 0), "no such claim", error=True)


def test_a_node_that_needs_no_victim_is_an_error_unless_another_node_helps():
    def outcome(*placed):
        return outcome_with(Forgetful(), *placed)

    text = 'expected at least one victim pod on node "{}"'
    assert outcome([wants(1, 1, "a")]) == PostFilterResult(Code.ERROR, (f"preemption: {text.format('n0')}",))
    both = f"preemption: [{text.format('n0')}, {text.format('n1')}]"
    assert outcome([wants(1, 1, "a")], [wants(1, 1, "b")]) == PostFilterResult(Code.ERROR, (both,))
    assert outcome([wants(1, 1, "a")], [wants(4, 1, "b")]).nominated == "n1"


def test_a_filter_error_on_a_node_is_an_error_unless_another_node_helps():
    text = 'preemption: running "Lost" filter plugin: no such claim'
    assert outcome_with(Lost(), [wants(4, 1, "a")]) == PostFilterResult(Code.ERROR, (text,))
    assert outcome_with(Lost(), [wants(4, 1, "a")], [wants(4, 2, "b")]).nominated == "n1"


@pytest.mark.parametrize(("rule", "cpu", "text"), [
    (Forgetful, 1, 'expected at least one victim pod on node "n0"'), (Lost, 4, 'running "Lost" filter plugin: no such claim'),
])  # fmt: skip
def test_up_to_1_22_errors_are_reasons_of_a_rejection(rule, cpu, text):
    found = outcome_with(rule(), [wants(cpu, 1, "a")], plugin=DefaultPreemptionV122)
    assert found == PostFilterResult(Code.UNSCHEDULABLE, (f"0/1 nodes are available: 1 {text}.",))
    assert outcome_with(rule(), [wants(cpu, 1, "a")], plugin=DefaultPreemptionV123).code is Code.ERROR


def test_up_to_1_22_a_nomination_stays_unless_no_node_may_help():
    cluster = a_cluster([node("n1")], {"n1": [wants(4, 20, "a")]})
    for plugin, pod, nominated in (
        (DefaultPreemptionV122(), wants(2, 10), None),
        (DefaultPreemptionV122(), wants(2, 10, nodeSelector={"no": "node"}), ""),
        (DefaultPreemptionV123(), wants(2, 10), ""),
    ):
        assert preempt(cluster, pod, plugin=plugin).nominated == nominated


# -- who may preempt ------------------------------------------------------------------------------------------------------

NOT_BY_US = {**PREEMPTED, "reason": "DeletionByTaintManager"}
ELIGIBLE = {  # the pod's nomination, other pods on the node than a possible victim, why the pod may not preempt
    "not nominated": ("", [wants(1, 1, "x", leaving=True, conditions=[PREEMPTED])], None),
    "nominated, victims are terminating": ("n1", [wants(1, 1, "x", leaving=True, conditions=[PREEMPTED])], "terminating"),
    "nominated, victims are not yet deleted": ("n1", [wants(1, 1, "x", conditions=[PREEMPTED])], None),
    "nominated, other pods are terminating": ("n1", [wants(1, 1, "x", leaving=True)], None),
    "nominated, pods terminate for another reason": ("n1", [wants(1, 1, "x", leaving=True, conditions=[NOT_BY_US])], None),
    "the first such condition decides": ("n1", [wants(1, 1, "x", leaving=True, conditions=[NOT_BY_US, PREEMPTED])], None),
    "the condition is False": (
        "n1",
        [wants(1, 1, "x", leaving=True, conditions=[{**PREEMPTED, "status": "False"}])],
        None,
    ),
    "after other conditions": (
        "n1",
        [wants(1, 1, "x", leaving=True, conditions=[{"type": "Ready", "status": "True"}, PREEMPTED])],
        "terminating",
    ),
    "the terminating pods have no lower priority": ("n1", [wants(1, 10, "x", leaving=True, conditions=[PREEMPTED])], None),
    "nominated to a deleted node": ("n9", [wants(1, 1, "x", leaving=True, conditions=[PREEMPTED])], None),
}
WHY_NOT = {"terminating": "preemption: not eligible due to a terminating pod on the nominated node."}


@pytest.mark.parametrize(("nominated", "there", "why_not"), ELIGIBLE.values(), ids=ELIGIBLE)
def test_which_nominated_pods_may_preempt_again(nominated, there, why_not):
    cluster = a_cluster([node("n1")], {"n1": [wants(3, 1, "a"), *there]})
    result = preempt(cluster, wants(2, 10, nominated=nominated))
    if why_not is None:
        assert result.code is Code.SUCCESS
    else:
        assert result == PostFilterResult(Code.UNSCHEDULABLE, (WHY_NOT[why_not],))


def test_may_preempt_again_where_the_nominated_node_became_unresolvable():
    leaving = wants(4, 1, "x", leaving=True, conditions=[PREEMPTED])
    cluster = a_cluster([node("n1"), node("n2")], {"n1": [leaving], "n2": [wants(4, 1, "a")]})
    assert preempt(cluster, wants(2, 10, nominated="n1")).code is Code.UNSCHEDULABLE
    away = wants(2, 10, nominated="n1", nodeSelector={"name": "n2"})
    assert preempt(cluster, away).nominated == "n2"


def test_preemption_policy_never():
    cluster = a_cluster([node("n1")], {"n1": [wants(4, 1, "a")]})
    result = preempt(cluster, wants(2, 10, preemptionPolicy="Never"))
    assert result == PostFilterResult(Code.UNSCHEDULABLE, ("preemption: not eligible due to preemptionPolicy=Never.",))
    assert preempt(cluster, wants(2, 10, preemptionPolicy="PreemptLowerPriority")).nominated == "n1"


# -- other plugins in PostFilter ------------------------------------------------------------------------------------------


class FixedResult:
    """A PostFilter plugin that runs first and returns a fixed result."""

    name = "Says"

    def __init__(self, result):
        self.post_filter = lambda pod, attempt: result


BEFORE_IT = {  # the result of the earlier plugin, and the combined result
    "nothing": (
        PostFilterResult(Code.UNSCHEDULABLE, ("no new claims to deallocate",)),
        PostFilterResult(
            Code.UNSCHEDULABLE,
            ("no new claims to deallocate", "preemption: not eligible due to preemptionPolicy=Never."),
        ),
    ),
    "success": (PostFilterResult(Code.SUCCESS, nominated="n1"), PostFilterResult(Code.SUCCESS, nominated="n1")),
    "hopeless": (PostFilterResult(Code.UNRESOLVABLE, ("no",), ""), PostFilterResult(Code.UNRESOLVABLE, ("no",), "")),
    "an error": (PostFilterResult(Code.ERROR, ("not found",), "n1"), PostFilterResult(Code.ERROR, ("not found",))),
}


@pytest.mark.parametrize(("answer", "outcome"), BEFORE_IT.values(), ids=BEFORE_IT)
def test_the_first_success_or_error_decides(answer, outcome):
    cluster = a_cluster([node("n1")], {"n1": [wants(4, 1, "a")]})
    assert preempt(cluster, wants(2, 10, preemptionPolicy="Never"), others=[FixedResult(answer)]) == outcome


# -- the queue ------------------------------------------------------------------------------------------------------------


@dataclass
class Bench:
    """The part of a scheduler that the plugin uses."""

    gates: FeatureGates = field(default_factory=FeatureGates)
    evicting: frozenset[str] = frozenset()

    def evicting_for(self, uid):
        return uid in self.evicting


def attached(*evicting, **gates):
    plugin = DefaultPreemption()
    plugin.attach(Bench(FeatureGates(gates), frozenset(evicting)))
    return plugin


def test_a_pod_waits_until_its_victims_are_deleted():
    pod = wants(1, name="p")
    waiting = Hold.because("waiting for the preemption for this pod to be finished", unresolvable=True)
    assert attached(pod.uid).pre_enqueue(pod) == waiting
    assert attached("other").pre_enqueue(pod) is None
    assert attached(pod.uid, SchedulerAsyncPreemption=False).pre_enqueue(pod) is None
    assert DefaultPreemption().pre_enqueue(pod) is None


def test_the_plugin_waits_for_no_event():
    pod, gone = wants(1, name="p"), wants(1, name="gone", nodeName="n1")
    assert not wakes(attached(), pod, Resource.POD, Action.DELETE, gone)
    assert [str(wake.event) for wake in attached().wakes_on()] == ["PodDelete"]
    assert list(attached(SchedulerAsyncPreemption=False).wakes_on()) == []


def test_a_group_that_preempted_together_does_not_preempt_pod_by_pod():
    cluster = a_cluster([node("n1")], {"n1": [wants(4, 1, "a")]})
    pod = wants(2, 10, schedulingGroup={"podGroupName": "g"})
    assert preempt(cluster, pod).nominated == "n1"
    together = attached(WorkloadAwarePreemption=True, GangScheduling=True, GenericWorkload=True)
    why_not = "preemption: not eligible due to workload aware preemption enabled"
    assert preempt(cluster, pod, plugin=together) == PostFilterResult(Code.UNSCHEDULABLE, (why_not,))


# -- arguments ------------------------------------------------------------------------------------------------------------

SHARE, LEAST = "args.minCandidateNodesPercentage", "args.minCandidateNodesAbsolute"
ARGS = {
    "defaults": ({}, []),
    "every argument": ({"minCandidateNodesPercentage": 100}, []),
    "no share": ({"minCandidateNodesPercentage": 0}, []),
    "a share without a minimum": ({"minCandidateNodesAbsolute": 0}, []),
    "percentage below 0": ({"minCandidateNodesPercentage": -1}, [f"{SHARE}: Invalid value: -1: not in valid range [0, 100]"]),
    "percentage above 100": (
        {"minCandidateNodesPercentage": 101},
        [f"{SHARE}: Invalid value: 101: not in valid range [0, 100]"],
    ),
    "negative minimum": ({"minCandidateNodesAbsolute": -1}, [f"{LEAST}: Invalid value: -1: not in valid range [0, inf)"]),
    "neither": (
        {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
        [
            f"{SHARE}: Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute",
            f"{LEAST}: Invalid value: 0: cannot be zero at the same time as minCandidateNodesPercentage",
        ],
    ),
}


@pytest.mark.parametrize(("given", "faults"), ARGS.values(), ids=ARGS)
def test_arguments(given, faults):
    args = msgspec.convert(given, DefaultPreemption.Args)
    assert list(map(str, args.faults("args", FeatureGates()))) == faults


def test_arguments_limit_the_candidates():
    names = [f"n{at}" for at in range(8)]
    cluster = a_cluster(map(node, names), {name: [wants(4, priority, name)] for priority, name in enumerate(names)})
    one = DefaultPreemption(DefaultPreemption.Args(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=1))
    found = {preempt(cluster, wants(2, 10, name, uid=name), plugin=one).nominated for name in "abcdefghij"}
    assert len(found) > 1
    assert preempt(cluster, wants(2, 10)).nominated == "n0"
