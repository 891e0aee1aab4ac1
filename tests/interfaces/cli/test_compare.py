"""``moorage compare``: what it prints, its exit statuses, and what it refuses."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from tests.interfaces.cli.test_simulate_output import violations

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "docs/reference/comparison.schema.json").read_text())
DEMO = ["compare", "-f", str(ROOT / "examples/demo"), "--seeds", "2"]
PACKED = ["--b", str(ROOT / "examples/config/most-allocated.yaml")]


def test_documents_keep_to_their_schema(moorage):
    ran = moorage(*DEMO, *PACKED, "--fail-on", "nodesUsed < -0", "-o", "json")
    document = json.loads(ran.out)
    assert list(violations(document, SCHEMA, root=SCHEMA)) == []
    assert ran.status == 2
    answer = document["answer"]
    assert answer["metrics"]["nodesUsed"] == {
        "a": 7, "b": 6, "difference": -1, "interval": None, "exact": True, "mayBeZero": False, "p": 0.5, "n": 2,
    }  # fmt: skip
    assert (answer["moved"]["pods"], answer["moved"]["of"], answer["moved"]["byChance"]) == (10, 22, [0, 0])
    assert [gate["passed"] for gate in answer["gates"]] == [False]
    assert yaml.safe_load(moorage(*DEMO, *PACKED, "--fail-on", "nodesUsed < -0", "-o", "yaml").out) == document


def test_a_stored_report_takes_the_place_of_a(moorage, tmp_path):
    (tmp_path / "then.json").write_text(moorage(*DEMO, *PACKED, "-o", "json").out)
    gates = ["--fail-on", "new-pending", "--fail-on", "nodesUsed > +0"]
    again = moorage(*DEMO, *PACKED, "--baseline", tmp_path / "then.json", *gates)
    assert (again.status, again.out.splitlines()[0]) == (0, "B does the same as A. 2 gates passed.")
    other = ["compare", "-f", str(ROOT / "examples/demo/apps.yaml"), "-f", str(ROOT / "examples/demo/nodes.yaml")]
    refused = moorage(*other, "--baseline", tmp_path / "then.json")
    assert (refused.status, "made from another input; give --across" in refused.err) == (1, True)
    across = moorage(*other, "--baseline", tmp_path / "then.json", "--across", "--fail-on", "pending > +0")
    assert across.status in (0, 2)


def test_pipelines_get_the_line_of_the_manifest(moorage, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    asked = [*DEMO, "--cordon", "general-a1", "--fail-on", "new-pending"]
    ran = moorage(*asked, "-o", "github")
    manifest = ROOT / "examples/demo/apps.yaml"
    line = manifest.read_text().splitlines().index("  name: search") + 1
    place = f"file={manifest},line={line - 3},title=pod pending%3A default/search-1"
    assert (ran.status, place in ran.out) == (2, True)
    assert "default/search-1" in (tmp_path / "summary.md").read_text()
    suite = ET.fromstring(moorage(*asked, "-o", "junit").out)
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    (run,) = json.loads(moorage(*asked, "-o", "sarif").out)["runs"]
    worst = run["results"][1]
    assert (worst["level"], worst["locations"][0]["physicalLocation"]["region"]) == ("error", {"startLine": line - 3})


def test_prices_add_the_cost(moorage, tmp_path):
    (tmp_path / "prices.yaml").write_text("general: 0.5\ngpu-b1: 4\n")
    ran = moorage(*DEMO, *PACKED, "--prices", tmp_path / "prices.yaml", "--fail-on", "cost > +0", "-o", "json")
    cost = json.loads(ran.out)["answer"]["metrics"]["cost"]
    assert (ran.status, cost["a"], cost["b"], cost["difference"]) == (0, 6.5, 6, -0.5)


WRONG = {
    "nothing differs": ([], "nothing to compare with"),
    "no gate": ([*PACKED, "--fail-on", "pending"], "is no gate"),
    "no metric": ([*PACKED, "--fail-on", "pods > 3"], "no metric pods"),
    "no release": (["--b-release", "0.9"], "0.9"),
    "across nothing": ([*PACKED, "--across"], "--across needs --baseline"),
    "no baseline": (["--baseline", str(ROOT / "examples/demo/apps.yaml")], "expected a report"),
    "prices that are no numbers": ([*PACKED, "--prices", str(ROOT / "examples/demo/nodes.yaml")], "expected prices"),
    "no seeds": ([*PACKED, "--seeds", "0"], "--seeds"),
}


@pytest.mark.parametrize(("args", "says"), WRONG.values(), ids=WRONG)
def test_what_it_refuses(moorage, args, says):
    ran = moorage(*DEMO, *args)
    assert (ran.status, ran.out) == (1, "")
    assert says in ran.err


def test_a_plugin_that_one_side_runs_is_not_called_idle(moorage, tmp_path):
    (tmp_path / "quiet.py").write_text(
        'class Quiet:\n    name = "Quiet"\n\n    def score_node(self, pod, node):\n        return 0\n'
    )
    (tmp_path / "b.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{plugins: {multiPoint: {enabled: [{name: Quiet}]}}}]\n"
    )
    (tmp_path / "n.yaml").write_text(
        "{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 1, memory: 1Gi, pods: 5}}}\n"
    )
    given = ["compare", "-f", str(tmp_path / "n.yaml"), "--plugins", f"{tmp_path}/quiet.py:Quiet", "--seeds", "1"]
    used = moorage(*given, "--b", str(tmp_path / "b.yaml"))
    assert used.status == 0, used.err
    assert "no profile enables it" not in used.out + used.err
