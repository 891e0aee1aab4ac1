"""Verdicts of every plugin on every node: held against the engine's decisions, which stop at the first refusal."""

from __future__ import annotations

import gzip
import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.core.cycle.cycle import Cycle
from moorage.framework.explaining import TermsPlugin
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import Code, Hold
from moorage.laboratory.explain.refusals import funnel, groups
from moorage.laboratory.explain.verdicts import Stage, engine_view, is_accepted, verdicts_of_all
from moorage.testing.builders import a_cluster, a_node, a_pod
from tests.conformance.test_recorded import BUNDLED, FAMILIES
from tests.core.cycle.test_pod_classes import default_profile
from tests.strategies import clusters, pods
from tools.recordings.answers import reserve, without_post_filter
from tools.recordings.comparing import by_reason, documents
from tools.recordings.scenarios import load_scenario

PROFILE = default_profile()
#: All recordings take minutes: run them with ``make recordings``.
#: Recordings of 1.30 to 1.35, each decided by the rules of its release.
RELEASES = sorted((BUNDLED / "releases").glob("v1.*.jsonl.gz"))
every_recording = pytest.mark.skipif(not os.environ.get("MOORAGE_RECORDINGS"), reason="MOORAGE_RECORDINGS is not set")
CYCLE = Cycle(by_class=False, nominated_first=False, errors_end=False)


def disagreements(profile, pod, snapshot, nominated=None):
    """Yield where the verdicts of all plugins and the engine's decision contradict each other: invariants (i) to (iii)."""
    decision = CYCLE.decide(profile, pod, snapshot, nominated or {})
    judged = verdicts_of_all(profile, pod, snapshot, nominated)
    if decision.error is not None or decision.verdicts is None:
        if decision.error is not None and judged.feasible.any():
            yield f"{pod.key}: a node is open although the attempt ends with {decision.error}"
        return
    held = decision.verdicts.pre_filter
    if held is not None and held.plugin and held not in [one.verdicts.status(0) for one in judged.refusing]:
        yield f"{pod.key}: {held} is missing"
    contended = set(nominated or ())
    for row, name in enumerate(judged.names):
        wanted, said = decision.status_of(row), judged.statuses(row)
        if name in contended:  # two passes: the first plugin may be another with the nominated pods there
            if (wanted is None) != (not said):
                yield f"{pod.key} on {name}: {wanted} or {said}"
            continue
        if (wanted is None) != (not said):
            yield f"{pod.key} on {name}: the engine says {wanted}, all plugins {said}"
        elif is_first_refusal(wanted, held, profile) and wanted not in said[:1]:
            yield f"{pod.key} on {name}: first is {said[0]}, not {wanted}"
        reasons = {reason for status in said for reason in status.reasons}
        if wanted is not None and not reasons.issuperset(wanted.reasons):
            yield f"{pod.key} on {name}: {wanted.reasons} is not among {reasons}"
    if judged.feasible.any() != (decision.node is not None):
        yield f"{pod.key}: an open node is {judged.feasible.any()}, but the engine chose {decision.node}"


def is_first_refusal(wanted, held, profile):
    """Return whether a node's status is that of the first Filter plugin, and not of PreFilter or of all plugins together."""
    return wanted is not None and held is None and not profile.run_all_filters and bool(wanted.plugin)


@settings(max_examples=40, deadline=None)
@given(clusters(), pods())
def test_the_verdicts_agree_with_the_engine(cluster, pod):
    assert list(disagreements(PROFILE, pod, cluster.snapshot)) == []


@settings(max_examples=40, deadline=None)
@given(clusters(), pods())
def test_a_node_is_judged_alone_as_among_all(cluster, pod):
    accepted = [is_accepted(PROFILE, pod, cluster.snapshot, row) for row in range(len(cluster.snapshot.table))]
    assert accepted == verdicts_of_all(PROFILE, pod, cluster.snapshot).feasible.tolist()


@settings(max_examples=40, deadline=None)
@given(clusters(), pods(), pods("other"), st.integers(0, 7))
def test_nodes_that_only_nominated_pods_close_are_flagged(cluster, pod, other, at):
    nodes = cluster.snapshot.table.nodes
    nominated = {nodes[at % len(nodes)].name: (other,)}
    assert list(disagreements(PROFILE, pod, cluster.snapshot, nominated)) == []


@settings(max_examples=40, deadline=None)
@given(clusters(), pods())
def test_terms_add_up_to_what_the_plugin_refuses_and_why_says_something(cluster, pod):
    judged = verdicts_of_all(PROFILE, pod, cluster.snapshot)
    for one in judged.refusing:
        if one.stage is not Stage.FILTER:
            continue
        if isinstance(one.plugin, TermsPlugin):
            terms = list(one.plugin.terms(one.state, pod, cluster.snapshot.nodes))
            assert np.array_equal(np.logical_or.reduce([rows for _, rows in terms]), one.refused), one.name
        named = {term.term for term in judged.constraints if term.plugin == one.name}
        for row in np.flatnonzero(one.refused).tolist():
            detail = one.plugin.why(one.state, pod, cluster.snapshot.nodes.at(row))
            assert detail is not None, (one.name, row)
            assert detail.text, (one.name, row)
            assert set(detail.terms) <= named, (one.name, detail.terms, named)


@settings(max_examples=30, deadline=None)
@given(clusters(), pods(), st.randoms(use_true_random=False))
def test_permuting_the_nodes_permutes_the_answer(cluster, pod, random):
    table = cluster.snapshot.table
    placed = {node.name: list(table.pods[row].values()) for row, node in enumerate(table.nodes)}
    order = list(table.nodes)
    random.shuffle(order)
    other = a_cluster(order, placed)
    assert described(pod, cluster.snapshot) == described(pod, other.snapshot)


def described(pod, snapshot):
    judged = verdicts_of_all(PROFILE, pod, snapshot)
    names = judged.names
    found = {
        (frozenset(names[at] for at in group.nodes), tuple((one.plugin, one.reason) for one in group.refusals))
        for group in groups(judged)
    }
    return found, [(step.plugin, step.before, step.after, step.alone) for step in funnel(judged)]


def test_a_plugin_that_raises_is_an_error_and_the_others_still_judge():
    class Breaks:
        name = "TaintToleration"

        def filter(self, state, nodes):
            raise ValueError("broken")

    profile = default_profile()
    steps = {point: tuple(one for one in profile.at(point) if one.name != "TaintToleration") for point in profile.steps}
    plugins = {**profile.plugins, "TaintToleration": Breaks()}
    points = {point: [one.name for one in in_point] for point, in_point in steps.items()}
    points["filter"] = ["NodeUnschedulable", "TaintToleration", *(n for n in points["filter"] if n != "NodeUnschedulable")]
    profile = make_profile("s", plugins, points, {})
    cluster = a_cluster([a_node("n", unschedulable=True, allocatable={"cpu": 1, "pods": 1})])
    pod = a_pod(containers=[{"name": "c", "resources": {"requests": {"cpu": "2"}}}])
    judged = verdicts_of_all(profile, pod, cluster.snapshot)
    assert [(one.plugin, one.code) for one in judged.statuses(0)] == [
        ("NodeUnschedulable", Code.UNRESOLVABLE),
        ("TaintToleration", Code.ERROR),
        ("NodeResourcesFit", Code.UNRESOLVABLE),
    ]


def test_a_hold_of_pre_filter_does_not_end_the_analysis():
    class Holds:
        name = "Holds"

        def pre_filter(self, pod, snapshot):
            return Hold.because("not today", unresolvable=True)

    base = default_profile()
    points = {point: [one.name for one in steps] for point, steps in base.steps.items()}
    points["preFilter"] = ["Holds", *points["preFilter"]]
    profile = make_profile("s", {**base.plugins, "Holds": Holds()}, points, {})
    cluster = a_cluster([a_node("n", allocatable={"cpu": 1, "pods": 1})])
    pod = a_pod(containers=[{"name": "c", "resources": {"requests": {"cpu": "2"}}}])
    judged = verdicts_of_all(profile, pod, cluster.snapshot)
    assert [one.plugin for one in judged.statuses(0)] == ["Holds", "NodeResourcesFit"]


# -- recorded decisions of kube-scheduler ---------------------------------------------------------------------------------


def recorded_disagreements(document):
    """Yield where the verdicts contradict what kube-scheduler decided, as it was recorded."""
    scenario = load_scenario(document)
    profiles = {name: without_post_filter(p) if scenario.in_sequence else p for name, p in scenario.profiles.items()}
    recorded = {result["pod"]: result for result in document["expected"]["results"]}
    for pod in scenario.pending:
        profile, snapshot = profiles[pod.spec.scheduler_name], scenario.cluster.snapshot
        for line in disagreements(profile, pod, snapshot, scenario.nominated):
            yield f"{document['name']} {line}"
        wanted = recorded[pod.key]
        judged = verdicts_of_all(profile, pod, snapshot, scenario.nominated)
        yield from (f"{document['name']} {pod.key}: {line}" for line in unexplained(judged))
        for line in against_record(wanted, judged, scenario.nominated, run_all=profile.run_all_filters):
            yield f"{document['name']} {pod.key}: {line}"
        if scenario.in_sequence and "chosen" in wanted:
            decision = CYCLE.decide(profile, pod, snapshot, scenario.nominated)
            scenario.cluster.assume(pod, wanted["chosen"])
            scenario.drop_nomination(pod.uid)
            reserve(profile, decision, wanted["chosen"])


def unexplained(judged):
    """Yield where a built-in plugin refuses a node and does not say why, or fails to."""
    for one in judged.refusing:
        rows = [row for row in np.flatnonzero(one.refused).tolist() if one.verdicts.status(row).code is not Code.ERROR]
        for row in rows[:3] if one.stage is Stage.FILTER else ():
            detail = judged.why(one, row)
            if detail is None or not detail.text or "failed in why" in detail.text:
                yield f"{one.name} does not explain {one.verdicts.status(row)} on {judged.names[row]}: {detail}"


def against_record(wanted, judged, nominated, *, run_all):
    if "feasible" in wanted and not any(one.verdicts.rows_with(Code.ERROR).size for one in judged.judgements):
        open_nodes = {name for name, there in zip(judged.names, judged.feasible.tolist(), strict=True) if there}
        if open_nodes != set(wanted["feasible"]):
            yield f"feasible are {open_nodes}, recorded {wanted['feasible']}"
    for name, status in (wanted.get("filter") or {}).items():
        said = judged.statuses(judged.names.index(name))
        reasons = sorted(reason for one in said for reason in one.reasons)
        if name in (nominated or {}):
            continue
        first = said[0] if said else None
        if run_all:
            if not set(reasons).issuperset(by_reason(status)["reasons"]):
                yield f"{name}: {reasons} lacks some of {status}"
        elif first is None or sorted(first.reasons) != by_reason(status)["reasons"]:
            yield f"{name}: first is {first}, recorded {status}"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["v1.36"])
def test_a_few_recorded_decisions(family):
    paths = [path for path in FAMILIES if path.parent.name == family]
    some = [document for path in paths for document in documents(path)[::80]]
    assert [line for one in some for line in recorded_disagreements(one)] == []


@every_recording
@pytest.mark.slow
@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: f"{path.parent.name}-{path.name.split('.')[0]}")
def test_every_recorded_decision(path):
    assert [line for one in documents(path) for line in recorded_disagreements(one)] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_a_few_recorded_decisions_of_each_release(path):
    step = 1 if os.environ.get("MOORAGE_RECORDINGS") else 120
    assert [line for one in documents(path)[::step] for line in recorded_disagreements(one)] == []


@every_recording
@pytest.mark.slow
@pytest.mark.parametrize("name", ["found", "generated"])
def test_every_generated_decision(name):
    lines = gzip.decompress((BUNDLED / "generated" / f"{name}.jsonl.gz").read_bytes()).decode().splitlines()
    assert [line for text in lines for line in recorded_disagreements(json.loads(text))] == []


def test_the_engine_view_is_what_the_engine_says():
    cluster = a_cluster([a_node("n", unschedulable=True)])
    _, verdicts = engine_view(PROFILE, a_pod(), cluster.snapshot)
    status = verdicts.status(0)
    assert status is not None
    assert status.plugin == "NodeUnschedulable"
