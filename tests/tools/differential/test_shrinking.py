"""A disagreement is shrunk to what it takes, and scenarios of each kind can be decided."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest

from tools.differential import decisions, recordings, scheduler
from tools.differential.scheduler import table
from tools.differential.shapes import SHAPES, cluster_of
from tools.differential.shrinking import shrunk, write
from tools.differential.validity import refused
from tools.recordings.answers import answer
from tools.recordings.comparing import differing


def things(count):
    return [{"kind": "Thing", "metadata": {"name": f"t{at}"}, "spec": {"size": at, "other": [1, 2]}} for at in range(count)]


def test_only_the_objects_and_fields_that_it_takes_are_left():
    def disagree(scenario):
        sizes = [one.get("spec", {}).get("size") for one in scenario["objects"]]
        return 3 in sizes and 6 in sizes

    found = shrunk({"name": "s", "config": {}, "mode": "sequence", "objects": things(8)}, disagree)
    assert found["objects"] == [{"kind": "Thing", "metadata": {"name": f"t{at}"}, "spec": {"size": at}} for at in (3, 6)]
    assert not {"config", "mode"} & found.keys()


def test_a_pod_of_another_scheduler_has_no_decision():
    made = cluster_of("racks", 1, "1.37")
    decided = [one["pod"] for one in answer(made)["results"]]
    other = next(one for one in made["objects"] if one["kind"] == "Pod" and one["metadata"]["name"] == "q02")
    other["spec"]["schedulerName"] = "second"
    gone = f"{other['metadata']['namespace']}/q02"
    assert [one["pod"] for one in answer(made)["results"]] == [name for name in decided if name != gone]


def test_what_an_api_server_refuses_is_named():
    fit = cluster_of("racks", 1, "1.37")
    assert refused(fit) == set()
    broken = json.loads(json.dumps(fit))
    pod = next(one for one in broken["objects"] if one["kind"] == "Pod")
    pod["spec"]["containers"] = []
    pod["metadata"]["namespace"] = "gone"
    assert {one for one in refused(broken) if "containers" in one or "namespace" in one} == {
        "Pod spec.containers", "namespace gone",
    }  # fmt: skip


def test_a_smaller_input_differs_in_the_same_pod_and_field(monkeypatch, tmp_path):
    """The real program is played: one pod differs in its filter, another in its scores."""
    fit = cluster_of("racks", 1, "1.37")
    names = [one["metadata"]["name"] for one in fit["objects"] if one["kind"] == "Pod" and "nodeName" not in one["spec"]]

    def differing(program, scenario, expected):
        left = {one["metadata"]["name"] for one in scenario["objects"]}
        return [
            *(["default/a: filter, message"] if names[0] in left else []),
            *(["default/b: scores"] if names[1] in left else []),
        ]

    monkeypatch.setattr(scheduler, "record", lambda program, scenarios: [{"results": []}] * len(scenarios))
    monkeypatch.setattr(scheduler.decisions, "settled", differing)
    found = scheduler.shrink(tmp_path, scheduler.Disagreement(fit, {}, ["default/a: filter"]))
    assert [one["metadata"]["name"] for one in found.scenario["objects"] if one["kind"] == "Pod"] == [names[0]]
    assert refused(found.scenario) == set()


def test_what_does_not_shrink_stays_as_it_is():
    whole = {"name": "s", "objects": things(3)}
    assert shrunk(whole, lambda scenario: scenario == whole) == whole


def test_the_smallest_input_is_written_with_the_real_answer(tmp_path):
    path = write(tmp_path / "found", {"name": "s", "objects": []}, {"results": []})
    assert json.loads(path.read_text()) == {"name": "s", "objects": [], "expected": {"results": []}}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_scenario_of_each_kind_is_decided_and_made_again_by_its_seed(shape):
    made = cluster_of(shape, 1, "1.37")
    assert made == cluster_of(shape, 1, "1.37") != cluster_of(shape, 2, "1.37")
    found = answer(made)["results"]
    assert len(found) == sum(one["kind"] == "Pod" and not one["spec"].get("nodeName") for one in made["objects"])
    assert any("best" in one or "message" in one for one in found)


def test_the_figures_of_a_release_are_written_between_its_markers():
    page = "a\n<!-- differential 1.36: begin -->\nold\n<!-- differential 1.36: end -->\nb\n"
    assert scheduler.with_figures(page, "1.36", "new").split("\n")[2] == "new"
    with pytest.raises(ValueError, match=r"no lines `<!-- differential 1.37: begin -->`"):
        scheduler.with_figures(page, "1.37", "new")


SEEN = {
    "pod": "a/b", "message": "last", "postFilter": {
        "code": "Success", "message": "on n2", "anyOf": [
            {"nominated": "n1", "message": "on n1", "event": "first"}, {"nominated": "n2", "message": "on n2", "event": "last"},
        ],
    },
}  # fmt: skip


@pytest.mark.parametrize(("node", "differs"), [("n1", []), ("n2", []), ("n3", ["message", "postFilter"])])
def test_the_texts_of_preemption_are_those_of_the_node_that_it_chose(node, differs):
    texts = {"n1": "first", "n2": "last", "n3": "other"}
    given = {
        "pod": "a/b", "message": texts[node], "postFilter": {"code": "Success", "message": f"on {node}", "nominated": node},
    }  # fmt: skip
    assert differing(decisions.as_it_went(SEEN, given), given) == differs


def test_recorded_decisions_are_asked_for_again(monkeypatch, tmp_path):
    kept = {"pod": "d/p", "feasible": ["n1"], "filter": {}}
    lost = {
        "pod": "d/q",
        "feasible": [],
        "filter": {"n1": {"code": "Error", "plugin": "x", "reasons": []}},
        "message": "recorded",
    }
    scenarios = [{"name": "s", "objects": [], "expected": {"results": [kept, lost]}}]
    (tmp_path / "racks.jsonl.gz").write_bytes(gzip.compress(json.dumps(scenarios[0]).encode()))
    answers = {"results": [{**kept, "feasible": ["n2"]}, {name: lost[name] for name in ("pod", "feasible", "filter")}]}
    monkeypatch.setattr(recordings, "record", lambda program, given: [answers] * len(given))
    found = list(recordings.replays(tmp_path / "program", tmp_path))
    assert found == [recordings.Replay("racks", 2, ("s d/p: feasible",))]
    assert recordings.table(found).splitlines()[-1] == "| **all** | 2 | 1 |"


def test_the_figures_are_a_table_with_their_sums():
    counts = {("racks", "scenarios"): 2, ("racks", "decisions"): 1200, ("crowds", "scenarios"): 1, ("crowds", "decisions"): 5}
    lines = table(Counter(counts)).splitlines()
    assert lines[0] == "| kind | scenarios | decisions | placed | crashed | different |"
    assert lines[-1] == "| **all** | 3 | 1,205 | 0 | 0 | 0 |"
