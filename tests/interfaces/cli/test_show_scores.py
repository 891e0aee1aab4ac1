"""``moorage simulate --show-scores``: how the node for a pod was picked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).parents[3] / "examples"
CLUSTER = EXAMPLES / "scoring" / "cluster.yaml"


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


DEFAULT = {
    "NodeResourcesBalancedAllocation": 1, "ImageLocality": 1, "InterPodAffinity": 1, "NodeResourcesLeastAllocated": 1,
    "NodeAffinity": 1, "NodePreferAvoidPods": 10000, "PodTopologySpread": 2, "TaintToleration": 1,
}  # fmt: skip
PACKING = {name.replace("Least", "Most"): weight for name, weight in DEFAULT.items()}
EIGHT = {name: weight for name, weight in DEFAULT.items() if name != "PodTopologySpread"}
RUNS = {  # options, the release, score plugins and their weights
    "1.19": (["--emulate", "1.19"], "1.19", {**DEFAULT, "SelectorSpread": 1}),
    "1.20": (["--emulate", "1.20"], "1.20", DEFAULT),
    "1.21": (["--emulate", "1.21"], "1.21", DEFAULT),
    "the packing provider": (["--algorithm-provider", "ClusterAutoscalerProvider"], "1.21", PACKING),
    "eight scores": (
        ["--emulate", "1.19", "--config", EXAMPLES / "config" / "eight-scores-of-1.19.yaml"], "1.19",
        {**EIGHT, "SelectorSpread": 1},
    ),
    "a label": (["--config", EXAMPLES / "scoring" / "labels.yaml"], "1.21", {"NodeLabel": 2}),
    "1.36": (
        ["--emulate", "1.36"], "1.36",
        {"TaintToleration": 3, "NodeAffinity": 2, "NodeResourcesFit": 1, "DynamicResources": 2,
         "NodeResourcesBalancedAllocation": 1, "ImageLocality": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("options", "release", "weights"), RUNS.values(), ids=RUNS)
def test_every_release_shows_its_own_scores(moorage, options, release, weights):
    asked = ["simulate", "-f", CLUSTER, "--show-scores", "default/web", *options]
    report = json.loads(moorage(*asked, "-o", "json").out)
    (told,) = report["scores"]
    assert report["release"] == release
    assert {node["name"] for node in told["nodes"]} == {"busy", "roomy", "fresh"}
    for node in told["nodes"]:
        assert {plugin["name"]: plugin["weight"] for plugin in node["plugins"]} == weights
        assert all(0 <= plugin["normalized"] <= 100 for plugin in node["plugins"])
        assert all(plugin["weighted"] == plugin["normalized"] * plugin["weight"] for plugin in node["plugins"])
        assert node["total"] == sum(plugin["weighted"] for plugin in node["plugins"])
    assert told["best"] == [node["name"] for node in told["nodes"] if node["total"] == told["nodes"][0]["total"]]
    assert told["node"] in told["best"]
    assert yaml.safe_load(moorage(*asked, "-o", "yaml").out) == report
    for output in ("table", "wide"):
        text = moorage(*asked, "-o", output).out
        assert f"(kube-scheduler {release} semantics, " in text.splitlines()[0]
        rows = [line.replace(f"{told['node']} *", "").split() for line in text.partition("WEIGHTED\n")[2].splitlines()]
        first = told["nodes"][0]["plugins"]
        assert [row[-5:] for row in rows[: len(first)]] == [
            [one["name"], *map(str, (one["raw"], one["normalized"], one["weight"], one["weighted"]))] for one in first
        ]


def test_unknown_pods_have_no_scores(moorage):
    shown = moorage("simulate", "-f", CLUSTER, "--show-scores", "wob", "--show-scores", "default/already-there")
    told = [line for line in shown.out.splitlines() if "no decision" in line]
    assert told == [f"{pod}: no decision was made about such a pod" for pod in ("default/already-there", "wob")]


def test_a_pod_that_fits_nowhere_has_no_scores(moorage, tmp_path, pod):
    (tmp_path / "pod.yaml").write_text(pod.replace('cpu: "1"', 'cpu: "100"'))
    shown = moorage("simulate", "-f", CLUSTER, "-f", tmp_path / "pod.yaml", "--emulate", "1.21", "--show-scores", "p1")
    assert shown.status == 2
    assert "default/p1: no node; 0/3 nodes are available: 3 Insufficient cpu." in shown.out


OUT_OF_RANGE = """\
class Loud:
    name = "Loud"
    def score_node(self, state, node): return 140
"""


def test_a_score_out_of_range_is_an_error_that_names_the_plugin(moorage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loud_rules.py").write_text(OUT_OF_RANGE)
    (tmp_path / "loud.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1beta1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{plugins: {score: {enabled: [{name: Loud}]}}}]\n"
    )
    shown = moorage("simulate", "-f", CLUSTER, "--config", "loud.yaml", "--plugins", "loud_rules:Loud", "--show-scores", "web")
    assert shown.status == 2
    assert "plugin Loud scored node busy 140; scores must be in the range [0, 100] after normalizing" in shown.out
