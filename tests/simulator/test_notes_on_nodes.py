"""Notes on nodes that say how much they have, but not how many pods they take."""

from __future__ import annotations

import json

import pytest

from moorage import read
from moorage.simulator.cluster_run import input_notes

SIZES = {
    "with pods": ({"cpu": "1", "pods": "3"}, False),
    "without": ({"cpu": "1", "memory": "1Gi"}, True),
    "nothing at all": ({}, False),
}


@pytest.mark.parametrize(("size", "noted"), SIZES.values(), ids=SIZES)
def test_a_node_that_takes_no_pods_is_noted(tmp_path, size, noted):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": size}}
    path = tmp_path / "n.json"
    path.write_text(json.dumps(node))
    found = [one.text for one in input_notes(read([str(path)]))]
    told = ["1 node without pods in status.allocatable, so no pod fits there: n1"] if noted else []
    assert [one for one in found if "allocatable" in one] == told
