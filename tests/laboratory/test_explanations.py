"""Explanations held against fresh runs of the engine, plain recomputation, and the states that pods can be in."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from msgspec.structs import replace as changed

import moorage
from moorage.basis.printable import escape_json
from moorage.core.cycle.cycle import Cycle
from moorage.core.preemption.candidates import HARMS
from moorage.laboratory.change.least_change import ChangeLimits
from moorage.laboratory.explain.explain_run import ExplainOptions, explain_cluster
from moorage.laboratory.explain.placement_report import choice_of, score_report
from moorage.laboratory.explain.preemption_report import preemption_of
from moorage.laboratory.explain.verdicts import verdicts_of_all
from moorage.plugins.default_preemption import DefaultPreemption
from moorage.report.answer import plain
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_cluster
from tests.core.cycle.test_pod_classes import Bench, default_profile
from tests.strategies import clusters, pods

PROFILE = default_profile()
NO_CHANGES = ChangeLimits(probes=0)


def node(name, cpu="4", **more):
    labels = {"kubernetes.io/hostname": name, **more.pop("labels", {})}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": more.pop("spec", {}),
        "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "10"}, **more},
    }  # fmt: skip


def pod(name, cpu="1", on="", **spec):
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    status = spec.pop("status", {})
    metadata = {"name": name, "namespace": "default", "labels": {"app": name}, **spec.pop("metadata", {})}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}], "nodeName": on, **spec},
        "status": status,
    }  # fmt: skip


def explained(name, *objects, **options):
    cluster = moorage.Cluster.from_objects(*objects, **options)
    what = ExplainOptions((name,), limits=NO_CHANGES)
    return explain_cluster(cluster.input(), cluster.options, what)[0]


# -- documents ------------------------------------------------------------------------------------------------------------


def test_json_is_the_encoded_document():
    conditions = [{"type": "PodScheduled", "status": "False", "message": "not\x1b[31m yet \x7f \u202e"}]
    objects = [
        node("n1"), node("n2", cpu="1"), pod("low", on="n1", priority=0), pod("high", on="n1", cpu="2", priority=1000),
        pod("preempts", cpu="2", priority=10), pod("stuck", cpu="9", status={"conditions": conditions}),
        pod("gated", schedulingGates=[{"name": "wait"}]), pod("theirs", schedulerName="another"), pod("fits"),
    ]  # fmt: skip
    cluster = moorage.Cluster.from_objects(*objects)
    for name in ("low", "preempts", "stuck", "gated", "theirs", "fits"):
        for found in (cluster.explain(name), cluster.explain(name, probes=0)):
            encoded = msgspec.json.encode(found.to_dict(), order="sorted").decode()
            assert found.to_json() == escape_json(encoded)


# -- placed pods ----------------------------------------------------------------------------------------------------------


def chosen(cluster, info, seed=0):
    """Return the engine's decision with scores, by the plain path."""
    return Cycle(seed, by_class=False, always_score=True).decide(PROFILE, info, cluster.snapshot)


@settings(max_examples=15, deadline=None)
@given(clusters(), pods())
def test_scores_add_up_and_the_margin_is_split_exactly(cluster, info):
    decision = chosen(cluster, info)
    if decision.node is None:
        return
    choice = choice_of(PROFILE, info, cluster.snapshot, {}, decision.node, 0, decision.scores)
    report = score_report(choice, feasible=decision.feasible, refused=0, flips=False)
    for total in report.nodes:
        assert sum(share.normalised * share.weight for share in total.shares) == total.total
    assert report.nodes[0].node == report.winner == cluster.snapshot.table.row_of[decision.node]
    assert sum(report.split.values()) == report.margin
    best = max(decision.scores.total.tolist())
    assert len(report.tied or (0,)) == decision.scores.total.tolist().count(best)


@settings(max_examples=15, deadline=None)
@given(clusters(), pods())
def test_flips_by_weight_and_usage_are_what_the_engine_does(cluster, info):
    decision = chosen(cluster, info)
    if decision.node is None or decision.feasible < 2:
        return
    choice = choice_of(PROFILE, info, cluster.snapshot, {}, decision.node, 0, decision.scores)
    report = score_report(choice, feasible=decision.feasible, refused=0)
    table = cluster.snapshot.table
    for flip in report.flips:
        if flip.kind in {"weight", "disable"}:
            weights = {**PROFILE.weights, flip.plugin: flip.at or 0}
            again = with_weights(weights, cluster, info)
            assert table.row_of[again] == flip.to, flip
        elif flip.kind == "usage" and " more cpu" in flip.text:
            columns = [table.requested("cpu"), table.nonzero_cpu]
            for column in columns:
                column.data[report.winner] += flip.at
            again = chosen(cluster, info).node
            for column in columns:
                column.data[report.winner] -= flip.at
            assert table.row_of[again] == flip.to, flip


def with_weights(weights, cluster, info):
    profile = replace(PROFILE, weights=weights)
    return Cycle(0, by_class=False, always_score=True).decide(profile, info, cluster.snapshot).node


def test_a_pod_that_is_on_a_node_is_scheduled_again():
    found = explained("old", node("n1"), node("n2"), pod("old", on="n1"), pod("heavy", cpu="2", on="n1"))
    assert found.outcome == "placed"
    assert found.summary.startswith("default/old is on n1; scheduled again now, it would go to n2 by ")


def test_a_pod_whose_node_would_refuse_it_now_says_so():
    found = explained("old", node("n1", spec={"unschedulable": True}), node("n2"), pod("old", on="n1"))
    assert "it would go to n2: NodeUnschedulable would refuse n1" in found.summary


@pytest.mark.parametrize("seed", range(8))
def test_without_the_winner_is_what_a_fresh_run_without_that_node_does(seed):
    rng = random.Random(seed)
    zones = [{"topology.kubernetes.io/zone": rng.choice("ab"), "disk": rng.choice(["ssd", "hdd"])} for _ in range(5)]
    nodes = [node(f"n{at}", cpu=str(rng.randint(2, 6)), labels=labels) for at, labels in enumerate(zones)]
    policy = rng.choice(["DoNotSchedule", "ScheduleAnyway"])
    spread = {
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": policy,
        "labelSelector": {"matchLabels": {"app": "new"}},
    }  # fmt: skip
    here = [pod(f"p{at}", on=rng.choice(nodes)["metadata"]["name"], metadata={"labels": {"app": "new"}}) for at in range(3)]
    new = pod("new", topologySpreadConstraints=[spread])
    found = explained("new", *nodes, *here, new)
    if found.scores is None or found.scores.runner_up is None:
        return
    (flip,) = [one for one in found.scores.flips if one.kind == "withoutNode"]
    left = [one for one in nodes if one["metadata"]["name"] != found.node]
    cluster = moorage.Cluster.from_objects(left, [one for one in here if one["spec"]["nodeName"] != found.node], new)
    (placement,) = cluster.schedule(["new"])
    assert (placement.node and found.nodes.index(placement.node)) == flip.to


def preferring(**weights):
    """Return a pod that prefers nodes with these labels, whose values are ``x``."""
    preferred = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": ["x"]}]}}
        for key, weight in weights.items()
    ]
    return pod("new", affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})


def test_labels_of_every_described_rival_are_tried_and_hold():
    objects = [node("a", labels={"disk": "x"}), node("b", cpu="8"), node("c", cpu="6"), preferring(disk=50, rack=100)]
    found = explained("new", *objects)
    labels = {one.text: found.nodes[one.to] for one in found.scores.flips if one.kind == "label"}
    assert found.node == "a"
    assert {"label rack=x on b", "label rack=x on c"} <= set(labels)
    for text, to in labels.items():
        label, _, name = text.removeprefix("label ").partition(" on ")
        cluster = moorage.Cluster.from_objects(*objects)
        cluster.apply(f"node/{name} labels.{label}")
        assert cluster.schedule(["new"])[0].node == to


def test_the_next_choice_is_named_where_it_is_not_the_runner_up():
    nodes = [node("a", labels={"disk": "x"}), node("b", labels={"rack": "x"}), node("c")]
    here = pod("held", cpu="2", on="b")
    found = explained("new", *nodes, here, preferring(disk=100, rack=10))
    (flip,) = [one for one in found.scores.flips if one.kind == "withoutNode"]
    assert found.nodes[found.scores.runner_up] == "c"
    assert flip.text == "Without a: b, which is not the runner-up"


def test_the_only_node_that_fits_comes_with_the_funnel():
    found = explained("new", node("a"), node("b", spec={"unschedulable": True}), pod("new"))
    assert "because it is the only one of 2 nodes that fits" in found.text()
    assert "  2 nodes  NodeUnschedulable 1  (remaining)\n" in found.text()


def test_explaining_changes_nothing():
    cluster = moorage.Cluster.from_objects(node("n1"), node("n2"), pod("old", on="n1"), pod("new"), pod("huge", cpu="99"))
    before = cluster.digest()
    for name in ("old", "new", "huge"):
        cluster.explain(name)
    assert cluster.digest() == before


# -- preemption -----------------------------------------------------------------------------------------------------------


def with_preemption():
    from moorage.framework.profile import Step

    plugin = DefaultPreemption()
    plugin.attach(Bench())
    return replace(PROFILE, steps={**PROFILE.steps, "postFilter": (Step(plugin.name, plugin, plugin.post_filter),)})


PREEMPTING = with_preemption()


def victims_by_hand(cluster, info, row):
    """Remove all pods of lower priority, put them back one at a time on copies of the cluster; None if that does not help."""
    table = cluster.snapshot.table
    placed = {n.name: list(table.pods[at].values()) for at, n in enumerate(table.nodes)}
    name = table.nodes[row].name
    lesser = [one for one in placed[name] if one.priority < info.priority]
    if not lesser:
        return None

    def fits(left):
        held = {**placed, name: [one for one in placed[name] if one not in lesser or one in left]}
        return bool(verdicts_of_all(PREEMPTING, info, a_cluster(table.nodes, held).snapshot).feasible[row])

    if not fits([]):
        return None
    left = []
    lesser.reverse()  # of equals that have not started, the later comes first
    for other in sorted(lesser, key=lambda one: -one.priority):
        if fits([*left, other]):
            left.append(other)
    return {one.key for one in lesser if one not in left}


@settings(max_examples=int(os.environ.get("CLUSTERS", "25")), deadline=None)
@given(clusters(max_nodes=4, max_pods=8), pods())
def test_victims_and_verdicts_are_those_of_plain_recomputation(cluster, info):
    higher = PodInfo(changed(info.pod, spec=changed(info.spec, priority=7)))
    if verdicts_of_all(PREEMPTING, higher, cluster.snapshot).feasible.any():
        return
    report = preemption_of(PREEMPTING, higher, cluster.snapshot, {})
    for one in report.nodes:
        status = verdicts_of_all(PREEMPTING, higher, cluster.snapshot).first(one.node)
        by_hand = victims_by_hand(cluster, higher, one.node) if status.code.value == "Unschedulable" else None
        assert (one.verdict == "candidate") == (by_hand is not None), one
        if by_hand is not None:
            assert {victim.pod for victim in one.victims} == by_hand
    candidates = [one for one in report.nodes if one.verdict == "candidate"]
    if candidates:
        best = min((one.violations, one.highest_priority, one.priority_sum + 2**31 * len(one.victims)) for one in candidates)
        won = next(one for one in candidates if one.node == report.chosen)
        assert (won.violations, won.highest_priority, won.priority_sum + 2**31 * len(won.victims)) == best
        assert report.decided_by in {"only candidate", "first in order", *(name for name, _ in HARMS)}


def test_preemption_names_victims_budgets_and_what_is_short():
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "low"}}}, "status": {"disruptionsAllowed": 0},
    }  # fmt: skip
    found = explained("high", node("n1"), pod("low", cpu="3", on="n1"), budget, pod("high", cpu="2", priority=100))
    assert found.outcome == "preempts"
    only = next(one for one in found.preemption.nodes if one.verdict == "candidate")
    assert [(one.pod, one.budgets, one.short_of) for one in only.victims] == [
        ("default/low", ("keep",), "NodeResourcesFit: Insufficient cpu")
    ]
    assert found.preemption.decided_by == "only candidate"


def test_the_lowest_priority_that_would_preempt_is_named():
    found = explained("high", node("n1"), pod("low", cpu="3", on="n1", priority=10), pod("high", cpu="2", priority=5))
    assert found.preemption.lowest_priority == 11
    assert "A priority of 11 or more would find a node to preempt on." in found.text()


def test_a_pod_that_may_not_preempt_considers_no_node():
    found = explained(
        "high", node("n1"), pod("low", cpu="3", on="n1"), pod("high", priority=9, cpu="2", preemptionPolicy="Never")
    )
    assert found.preemption.not_eligible
    assert [(one.verdict, one.considered) for one in found.preemption.nodes] == [("candidate", False)]


@pytest.mark.parametrize("priority", [0, 100])
def test_the_document_has_preemption_as_plain_data_without_empty_fields(priority):
    nodes = [node("n1"), node("n2", spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]})]
    report = explained("web", *nodes, pod("a", "3", on="n1", priority=10), pod("web", "2", priority=priority))
    document = report.to_dict()["answer"]["preemption"]
    assert document == plain(report.preemption)
    assert type(document["nodes"]) is list
    assert json.loads(json.dumps(document)) == document
    assert ("chosen" in document) == (priority == 100)


def test_the_table_of_candidates_has_the_start_that_decides():
    starts = {"a": "2026-01-01T00:00:00Z", "b": "2026-01-02T00:00:00Z"}
    held = [pod(f"on-{name}", cpu="3", on=name, status={"startTime": start}) for name, start in starts.items()]
    found = explained("high", node("a"), node("b"), *held, pod("high", priority=9, cpu="2"))
    assert found.preemption.decided_by == "latest start of the most important victim"
    rows = [line.split() for line in found.text(wide=True).split("\n")]
    assert ["CANDIDATE", "VICTIMS", "VIOLATIONS", "HIGHEST", "SUM", "LATEST", "START", "CONSIDERED"] in rows
    assert [row[5] for row in rows if len(row) == 7 and row[0] in starts] == [starts["b"], starts["a"]]


def test_the_ranking_of_nodes_is_as_wide_as_other_texts():
    found = explained("new", *(node(f"n{at}") for at in range(3)), pod("new"))
    text = found.text(wide=True)
    assert "CONTRIBUTIONS" in text
    assert max(map(len, text.split("\n"))) <= 100


def test_tables_with_long_names_of_nodes_are_as_wide_as_other_texts():
    names = [f"ip-10-120-33-0{at}.eu-central-1.compute.internal" for at in range(3)]
    held = [pod(f"on-{at}", cpu="3", on=name, status={"startTime": "2026-01-01T00:00:00Z"}) for at, name in enumerate(names)]
    for asked in (pod("new", cpu="500m"), pod("new", cpu="2", priority=9)):
        text = explained("new", *(node(name) for name in names), *held, asked).text(wide=True)
        lines = [line for line in text.split("\n") if " " in line.strip()]  # a name alone on its line stays whole
        assert max(map(len, lines)) <= 100, text
        assert all(name.partition(".")[0] in text for name in names)
        assert text.count(".eu-central-1.compute.internal") == 1


# -- states ---------------------------------------------------------------------------------------------------------------

STATES = {  # what the pod's manifest has, outcome, standing, what the first line says
    "gated": ({"schedulingGates": [{"name": "wait"}]}, "gated", "gated", "waiting for scheduling gates: [wait]; released, it"),
    "of another scheduler": ({"schedulerName": "mine"}, "notOurs", "otherScheduler", "its schedulerName is mine"),
    "ended": ({"status": {"phase": "Succeeded"}}, "ended", "ended", "has ended: its phase is Succeeded"),
    "being deleted": (
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}},
        "ended", "beingDeleted", "deleted since 2026-01-01T00:00:00Z; finalizers: a/b",
    ),
    "unschedulable": ({"nodeSelector": {"disk": "ssd"}}, "pending", "unschedulable", "matches its nodeSelector disk=ssd"),
    "without its claim": (
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
        "pending", "unschedulable", 'persistentvolumeclaim "data" not found',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "outcome", "state", "says"), STATES.values(), ids=STATES)
def test_the_state_comes_first(spec, outcome, state, says):
    found = explained("new", node("n1"), pod("new", **spec))
    assert (found.outcome, found.standing.name) == (outcome, state)
    assert says in found.summary


def test_a_condition_of_a_node_is_named_as_the_cause():
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    found = explained("new", node("n1", spec={"taints": [taint]}), pod("new"))
    assert found.standing.causes == (
        "node not ready since 2026-01-01T00:00:00Z: n1; repair the node: the taint goes when it recovers",
    )


def test_events_that_would_end_the_state_come_from_the_plugins():
    found = explained("new", node("n1"), pod("new", nodeSelector={"disk": "ssd"}))
    assert found.standing.ended_by == ("node added or labels changed (NodeAffinity)",)


def test_names_that_no_node_has_come_with_the_closest():
    labels = {"disk": "ssd"}
    found = explained("new", node("n1", labels=labels), pod("new", nodeSelector={"disk": "sdd", "zoen": "a"}))
    assert found.nearest.hints == ("No node has disk=sdd; closest is disk=ssd, on 1 node.", "No node has the label zoen.")


def test_hostile_names_are_escaped(tmp_path):
    evil = node("n\x1b[31m\u202e", spec={"taints": [{"key": "a\nb", "effect": "NoSchedule"}]})
    dump = {"apiVersion": "v1", "kind": "List", "items": [evil, pod("new")]}
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    what = ExplainOptions(("new",), limits=NO_CHANGES)
    found = explain_cluster(moorage.read([str(tmp_path / "dump.json")], validated=False), moorage.Options(), what)[0]
    for text in (found.text(), found.text(wide=True)):
        assert not {"\x1b", "\u202e"} & set(text)
        assert "n\\x1b[31m\\u202e" in text
    assert "\x1b[31m\u202e" not in found.text(colour=True)


# -- metamorphic ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_adding_a_cordoned_node_adds_a_refused_node_and_nothing_else(seed):
    rng = random.Random(seed)
    nodes = [node(f"n{at}", cpu=str(rng.randint(1, 3)), labels={"disk": rng.choice(["ssd", "hdd"])}) for at in range(4)]
    new = pod("new", cpu="4", nodeSelector={"disk": "ssd"})
    before = explained("new", *nodes, new)
    after = explained("new", *nodes, node("extra", spec={"unschedulable": True}, labels={"disk": "ssd"}), new)
    closed = before.summary.replace("no node matches", "every node that matches").replace("ssd.", "ssd is cordoned.")
    assert after.summary.replace("eligible ", "") in {before.summary, closed}
    assert kinds(before) == {one for one in kinds(after) if "NodeUnschedulable" not in {plugin for plugin, _ in one[1]}}


def kinds(found):
    return {
        (frozenset(found.nodes[at] for at in group.nodes), tuple((one.plugin, one.reason) for one in group.refusals))
        for group in found.groups
    }
