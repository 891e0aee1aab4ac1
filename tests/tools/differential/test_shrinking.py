"""A disagreement is shrunk to what it takes, and scenarios of each kind can be decided."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tools.differential.scheduler import table
from tools.differential.shapes import SHAPES, cluster_of
from tools.differential.shrinking import shrunk, write
from tools.recordings.answers import answer


def things(count):
    return [{"kind": "Thing", "metadata": {"name": f"t{at}"}, "spec": {"size": at, "other": [1, 2]}} for at in range(count)]


def test_only_the_objects_and_fields_that_it_takes_are_left():
    def disagree(scenario):
        sizes = [one.get("spec", {}).get("size") for one in scenario["objects"]]
        return 3 in sizes and 6 in sizes

    found = shrunk({"name": "s", "config": {}, "mode": "sequence", "objects": things(8)}, disagree)
    assert found["objects"] == [{"kind": "Thing", "metadata": {"name": f"t{at}"}, "spec": {"size": at}} for at in (3, 6)]
    assert not {"config", "mode"} & found.keys()


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


def test_the_figures_are_a_table_with_their_sums():
    counts = {("racks", "scenarios"): 2, ("racks", "decisions"): 1200, ("crowds", "scenarios"): 1, ("crowds", "decisions"): 5}
    lines = table(Counter(counts)).splitlines()
    assert lines[0] == "| kind | scenarios | decisions | placed | crashed | different |"
    assert lines[-1] == "| **all** | 3 | 1,205 | 0 | 0 | 0 |"
