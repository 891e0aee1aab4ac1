"""``moorage simulate --show-scores``: how the node for a pod was picked."""

from __future__ import annotations

import json
from pathlib import Path

CLUSTER = Path(__file__).parents[2] / "examples" / "scoring" / "cluster.yaml"


def test_the_command_prints_scores_after_the_run(moorage):
    shown = moorage("simulate", "-f", CLUSTER, "--show-scores", "web")
    lines = shown.out.splitlines()
    at = lines.index("default/web: 3 of 3 nodes fit; busy has the highest total")
    assert lines[at + 1].split() == ["NODE", "PLUGIN", "RAW", "NORMALISED", "WEIGHT", "WEIGHTED"]
    assert lines[at + 2].split() == ["busy", "*", "TaintToleration", "0", "100", "3", "300"]


def test_documents_hold_the_scores(moorage):
    shown = moorage("simulate", "-f", CLUSTER, "--show-scores", "web", "-o", "json")
    (told,) = json.loads(shown.out)["scores"]
    assert (told["pod"], told["node"], told["best"]) == ("default/web", "busy", ["busy"])
    fits = {
        node["name"]: plugin for node in told["nodes"] for plugin in node["plugins"] if plugin["name"] == "NodeResourcesFit"
    }
    assert fits["roomy"] == {"name": "NodeResourcesFit", "raw": 87, "normalized": 87, "weight": 1, "weighted": 87}
