"""Alerts and dashboard of `moorage run`: their metrics and labels exist, each alert has its page, and Prometheus reads them and
fires them when `alert_scenes.toml` says so."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from moorage.live.server.scheduler_metrics import specs_of
from tools.oracles import OracleMissingError, built

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/monitoring"
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
PROCESS = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
SCENES = tomllib.loads(Path(__file__).with_name("alert_scenes.toml").read_text())["scene"]
#: Labels that Prometheus gives each series, and those of histograms.
GIVEN = {"job", "instance", "le"}


def spec_of(name):
    specs = specs_of("1.37")
    return specs.get(name) or specs.get(re.sub(r"_(bucket|sum|count)$", "", name))


@pytest.mark.parametrize("text", [rule["expr"] for rule in RULES] + QUERIES)
def test_each_query_uses_metrics_and_labels_that_exist(text):
    used = set(re.findall(r"\b((?:scheduler|moorage|rest_client|leader|kubernetes|process)_\w+)", text)) - PROCESS
    specs = {name: spec_of(name) for name in used}
    assert used or PROCESS & set(re.findall(r"\w+", text))
    assert [name for name, spec in specs.items() if spec is None] == []
    known = GIVEN | {label for spec in specs.values() for label in spec.labels}
    grouped = {one.strip() for part in re.findall(r"\bby \(([^)]*)\)", text) for one in part.split(",")}
    selected = {one for part in re.findall(r"\{([^}]*)\}", text) for one in re.findall(r"(\w+)\s*(?:=~|!=|=)", part)}
    assert grouped | selected <= known


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_each_alert_has_its_section_of_the_runbook(rule):
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^## (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"]["summary"]


def test_every_section_of_the_runbook_has_an_alert():
    headings = re.findall(r"^## Moorage: (.+)$", (ROOT / "docs/run/runbook.md").read_text(), re.MULTILINE)
    anchors = {rule["annotations"]["runbook"].rpartition("#moorage-")[2] for rule in RULES}
    assert {heading.replace(" ", "-") for heading in headings} == anchors


def test_panels_have_places_of_their_own():
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)


@pytest.fixture(scope="module")
def prometheus():
    try:
        return built("alerts")
    except OracleMissingError as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
@pytest.mark.parametrize("path", ["monitoring/alerts.yaml", "recorder/alerts.yaml"])
def test_prometheus_takes_the_rules(prometheus, path):
    done = subprocess.run([prometheus, "rules", ROOT / "deploy" / path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip().rpartition(": ")[2].split()[1:]) == (0, ["rules"])


@pytest.mark.slow
def test_prometheus_finds_a_fault_in_a_rule(prometheus, tmp_path):
    text = (FOLDER / "alerts.yaml").read_text()
    for wrong in (text.replace("sum by (plugin)", "sum bye (plugin)"), text.replace("for: 2m", "for: soon")):
        (tmp_path / "alerts.yaml").write_text(wrong)
        assert subprocess.run([prometheus, "rules", tmp_path / "alerts.yaml"], capture_output=True, check=False).returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("path", ["monitoring/dashboard.json", "recorder/dashboard.json"])
def test_prometheus_takes_the_queries_of_the_dashboard(prometheus, path):
    panels = json.loads((ROOT / "deploy" / path).read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    written = "\n".join(" ".join(one.split()).replace("$__rate_interval", "5m").replace("$job", ".*") for one in queries)
    done = subprocess.run([prometheus, "queries"], input=written, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_each_alert_has_a_scene_in_which_it_fires():
    for folder in ("monitoring", "recorder"):
        groups = yaml.safe_load((ROOT / "deploy" / folder / "alerts.yaml").read_text())["groups"]
        fired = {alert for scene in SCENES if scene["file"] == folder for alert in scene["fires"]}
        assert fired == {rule["alert"] for group in groups for rule in group["rules"]}


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["monitoring", "recorder"])
def test_alerts_fire_in_their_scenes_and_in_no_other(prometheus, folder):
    played = [{**scene, "step": "1m"} for scene in SCENES if scene["file"] == folder]
    given = "\n".join(json.dumps(scene) for scene in played)
    words = [prometheus, "play", ROOT / "deploy" / folder / "alerts.yaml"]
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["name"] for answer in answers] == [scene["name"] for scene in played]
    for scene, answer in zip(played, answers, strict=True):
        wanted = sorted((alert, text) for alert, texts in scene["fires"].items() for text in texts)
        found = [(one["alert"], one["summary"]) for one in answer["firing"]]
        assert [alert for alert, _ in found] == [alert for alert, _ in wanted], (scene["name"], found)
        for (_, summary), (_, begins) in zip(found, wanted, strict=True):
            assert summary.startswith(begins), scene["name"]
