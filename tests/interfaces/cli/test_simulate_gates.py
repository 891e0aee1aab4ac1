"""Gates of ``moorage simulate``: what was pending before stays green, what is newly pending does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.interfaces.cli.test_simulate_output import SCHEMA, violations

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
DEMO = ["simulate", "-f", str(ROOT / "examples/demo")]
NODE = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "1", "memory": "4Gi", "pods": 10}},
}  # fmt: skip


def pod(name, *conditions):
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": containers}, "status": {"conditions": list(conditions)},
    }  # fmt: skip


REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}


def dump(path, *objects):
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [NODE, *objects]}))
    return path


def test_pods_that_the_dump_shows_as_unschedulable_are_not_new(moorage, tmp_path):
    known = [pod(f"old-{at}", REFUSED) for at in range(26)]
    green = moorage("simulate", "-f", dump(tmp_path / "then.json", *known), "--fail-on", "new-pending")
    assert (green.status, "26 pending" in green.out) == (0, True)
    red = moorage("simulate", "-f", dump(tmp_path / "now.json", *known, pod("new")), "--fail-on", "new-pending", "-o", "github")
    assert red.status == 2
    assert [line.partition("::default")[2].split()[0] for line in red.out.splitlines() if "pod pending" in line] == ["/new"]


def test_a_baseline_is_what_was_before(moorage, tmp_path):
    then = dump(tmp_path / "then.json", *(pod(f"p{at}") for at in range(26)))
    stored = tmp_path / "report.json"
    stored.write_text(moorage("simulate", "-f", then, "-o", "json").out)
    gates = ["--baseline", stored, "--fail-on", "new-pending", "--fail-on", "pending > +0", "--fail-on", "wait.p99 > +10%"]
    green = moorage("simulate", "-f", then, *gates, "-o", "json")
    assert green.status == 0
    document = json.loads(green.out)
    assert list(violations(document, SCHEMA)) == []
    assert [gate["passed"] for gate in document["gates"]] == [True, True, True]
    assert document["metrics"]["wait.p99"] is None
    now = dump(tmp_path / "now.json", *(pod(f"p{at}") for at in range(27)))
    assert "another input; give --across" in moorage("simulate", "-f", now, *gates).err
    red = moorage("simulate", "-f", now, *gates, "--across")
    assert red.status == 2
    assert "✗ newPending: A 0, B 1, difference +1 (one run); the gate is new-pending" in red.out


def test_a_workload_may_rename_its_pods(moorage, tmp_path):
    """Another template gives the pods of a deployment other names; one that was pending before is not new."""
    app = tmp_path / "app.yaml"
    app.write_text((ROOT / "examples/demo/apps.yaml").read_text())
    rest = ["-f", ROOT / "examples/demo/nodes.yaml", "-f", ROOT / "examples/demo/running.yaml"]
    large = app.read_text().replace("requests: {cpu: 500m, memory: 512Mi}", 'requests: {cpu: "50", memory: 512Mi}')
    app.write_text(large)
    stored = tmp_path / "report.json"
    stored.write_text(moorage("simulate", "-f", app, *rest, "-o", "json").out)
    app.write_text(large.replace("shop/web:42", "shop/web:43"))
    ran = moorage("simulate", "-f", app, *rest, "--baseline", stored, "--across", "--fail-on", "new-pending", "-o", "json")
    web = {one["name"] for one in json.loads(ran.out)["pods"] if one["state"] == "Pending" and one["name"].startswith("web")}
    before = {one["name"] for one in json.loads(stored.read_text())["pods"] if one["name"].startswith("web")}
    assert (ran.status, len(web), web & before) == (0, 6, set())


def test_changes_of_the_input_are_compared_with_the_input(moorage):
    ran = moorage(*DEMO, "--cordon", "general-a1", "--fail-on", "pending > +0", "-o", "yaml")
    assert (ran.status, yaml.safe_load(ran.out)["comparedWith"]) == (2, "the run without the changes")
    assert moorage(*DEMO, "--cordon", "general-a1", "--fail-on", "pending > +1").status == 0


def test_a_trace_has_gates_too(moorage):
    trace = ROOT / "examples/trace-openb"
    asked = ["simulate", "--trace", "openb", "--nodes", trace / "nodes.csv", "--pods", trace / "pods.csv"]
    assert moorage(*asked, "--fail-on", "utilisation.cpu.mean > 100%").status == 0
    assert moorage(*asked, "--fail-on", "utilisation.cpu.mean > 0%").status == 2


WRONG = {
    "relative to nothing": (["--fail-on", "pending > +0"], "give --baseline"),
    "moved from nothing": (["--fail-on", "moved > 5%"], "give --baseline"),
    "strict alone": (["--strict"], "--strict needs --fail-on"),
    "no gate": (["--fail-on", "pods"], "is no gate"),
}


@pytest.mark.parametrize(("args", "says"), WRONG.values(), ids=WRONG)
def test_what_it_refuses(moorage, args, says):
    ran = moorage(*DEMO, *args)
    assert (ran.status, ran.out) == (1, "")
    assert says in ran.err
