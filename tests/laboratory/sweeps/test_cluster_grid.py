"""Files of grids: what they give, and the place that each fault names."""

from __future__ import annotations

import re

import pytest

from moorage.errors import MoorageError
from moorage.laboratory.sweeps.cluster_grid import read_grid

CLUSTER = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: 2, pods: 10}}\n"
GOOD = "clusters: {a: cluster.yaml}\n"


@pytest.fixture
def grid(tmp_path):
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "extended.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "extenders: [{urlPrefix: 'http://127.0.0.1:1/', filterVerb: f}]\n"
    )

    def read(text):
        (tmp_path / "grid.yaml").write_text(text)
        return read_grid(tmp_path / "grid.yaml")

    return read


SEEDS = {"3": [0, 1, 2], "4-6": [4, 5, 6], "[7, 2]": [7, 2]}


@pytest.mark.parametrize(("text", "seeds"), SEEDS.items(), ids=SEEDS)
def test_seeds(grid, text, seeds):
    found = grid(f"{GOOD}seeds: {text}\n")
    assert [point.values["seed"] for point in found.grid.points()] == seeds


def test_a_point_for_every_combination(grid):
    found = grid(f"{GOOD}releases: ['1.36', '1.34']\nparameters: {{NodeResourcesFit.weight: [1, 2, 3]}}\nseeds: 2\n")
    labels = [tuple(point.labels.values()) for point in found.grid.points()]
    assert len(found.grid) == len(labels) == len({point.key for point in found.grid.points()}) == 12
    assert labels[:3] == [("a", "1.36", 1, 0), ("a", "1.36", 1, 1), ("a", "1.36", 2, 0)]


def test_another_content_of_a_file_is_another_key(grid, tmp_path):
    (before,) = grid(GOOD).grid.points()
    (same,) = grid(f"{GOOD}metrics: [pending]\n").grid.points()
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("cpu: 2", "cpu: 3"))
    (after,) = grid(GOOD).grid.points()
    assert (before.key == same.key, before.key == after.key) == (True, False)


FAULTS = {  # the grid, what the message says after the file's name
    "no mapping": ("[1]\n", ": expected a mapping, found a list"),
    "no clusters": ("seeds: 3\n", ": clusters or traces: required"),
    "an unknown field": (f"{GOOD}seed: 3\n", ":2: seed: no such field; did you mean seeds?"),
    "a field twice": (f"{GOOD}seeds: 3\nseeds: 4\n", ':3: key "seeds" already set in map'),
    "no YAML": (f"{GOOD}seeds: [\n", ":2: did not find"),
    "no such file": ("clusters:\n  a: cluster.yaml\n  b: nowhere.json\n", ":3: clusters.b: /"),
    "an empty list": ("clusters:\n  a: []\n", ":2: clusters.a: expected a list with at least one value, found an empty list"),
    "seeds that are none": (f"{GOOD}seeds: many\n", ":2: seeds: expected a number of seeds"),
    "seeds backwards": (f"{GOOD}seeds: 9-3\n", ":2: seeds: expected a number of seeds"),
    "a list of parameters": (f"{GOOD}parameters: [1]\n", ":2: parameters: expected a mapping, found a list"),
    "a parameter with one value": (
        f"{GOOD}parameters:\n  NodeResourcesFit.weight: 5\n",
        ":3: parameters.NodeResourcesFit.weight: expected a list with at least one value, found a number",
    ),
    "a flag that is invalid": (f"{GOOD}replaceAll: 1\n", ":2: replaceAll: expected true or false, found a number"),
    "a price below 0": (f"{GOOD}prices:\n  small: -1\n", ":3: prices.small: expected a price of at least 0"),
    "a configuration with extenders": (
        f"{GOOD}configs: {{asks: extended.yaml}}\n",
        ": configs: asks has extenders, and a sweep asks none; extenders: skip leaves them out",
    ),
    "a trace without files": (f"{GOOD}traces:\n  t: {{format: openb}}\n", ":3: traces.t: expected format (openb, "),
    "an unknown format": (f"{GOOD}traces: {{t: {{format: x, pods: cluster.yaml}}}}\n", ":2: traces.t.format: no such format"),
    "an unknown step": (
        f"{GOOD}traces: {{t: {{format: openb, pods: p, shufle: true}}}}\n",
        ":2: traces.t.shufle: no such field; did you mean shuffle?",
    ),
    "a trace that is not there": (f"{GOOD}traces: {{t: {{format: philly, pods: p}}}}\n", ":2: traces.t: /"),
    "two resources": (
        f"{GOOD}traces: {{t: {{format: kwok, pods: cluster.yaml, scaleTo: {{cpu: 1, gpu: 2}}}}}}\n",
        ":2: traces.t.scaleTo: expected one of cpu, memory, gpu",
    ),
    "times backwards": (
        f"{GOOD}traces: {{t: {{format: kwok, pods: cluster.yaml, between: [9, 3]}}}}\n",
        ":2: traces.t.between: expected two times",
    ),
    "an unknown metric is found at the end": (f"{GOOD}metrics: []\n", ":2: metrics: expected a list"),
}


@pytest.mark.parametrize(("text", "message"), FAULTS.values(), ids=FAULTS)
def test_faults_name_their_place(grid, tmp_path, text, message):
    with pytest.raises(MoorageError, match=re.escape(f"{tmp_path / 'grid.yaml'}{message}")):
        grid(text)


PARAMETERS = {  # a parameter that cannot be set, and why
    "NodeResourcesFit: [1]": "NodeResourcesFit: expected NodeResourcesFit.ARGUMENT or NodeResourcesFit.weight",
    "NodeResourcesFit..x: [1]": "NodeResourcesFit..x: expected PLUGIN.ARGUMENT",
    "NodeResourcesFit.nope: [1]": 'unknown field "nope"',
    "Nothing.weight: [1]": "Nothing",
    "percentageOfNodesToScore: [-1]": "percentageOfNodesToScore",
}


@pytest.mark.parametrize(("text", "message"), PARAMETERS.items(), ids=PARAMETERS)
def test_parameters_are_checked_before_the_first_run(grid, text, message):
    with pytest.raises(MoorageError, match=re.escape(message)):
        grid(f"{GOOD}parameters: {{{text}}}\n")
