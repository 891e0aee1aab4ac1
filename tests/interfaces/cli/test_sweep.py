"""``moorage sweep``: what it prints, its exit statuses, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from moorage.interfaces.cli.questions import sweep
from moorage.report.style import Style
from tests.interfaces.cli.test_simulate_output import violations

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "docs/reference/sweep.schema.json").read_text())
GRID = ROOT / "examples/sweep/grid.yaml"


def test_documents_keep_to_their_schema(moorage, tmp_path, monkeypatch):
    asked = [
        "sweep",
        GRID,
        "--store",
        tmp_path / "store",
        "--processes",
        "1",
        "--csv",
        tmp_path / "runs.csv",
        "--plot",
        tmp_path,
    ]
    ran = moorage(*asked, "-o", "json")
    document = json.loads(ran.out)
    assert list(violations(document, SCHEMA, root=SCHEMA)) == []
    assert (ran.status, len(document["runs"]), document["failed"]) == (0, 20, [])
    assert document["groups"][2]["metrics"]["nodesUsed"]["difference"]["mean"] < 0
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 21
    assert (tmp_path / "balance.cpu.svg").read_text().startswith("<?xml")
    monkeypatch.setattr(sweep, "output_style", lambda **_: Style(width=70, fits=True))
    text = moorage("sweep", GRID, "--store", tmp_path / "store").out
    assert "  CHANGE: against " in text
    assert max(map(len, text.splitlines())) <= 70
    again = moorage(*asked, "-o", "yaml")
    assert yaml.safe_load(again.out) == {
        **document,
        "summary": "20 runs: 4 points, 5 seeds each; 0 made now, 20 from the store.",
    }


def test_an_unknown_metric_is_an_error(moorage, tmp_path):
    (tmp_path / "plain.yaml").write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: 2, pods: 9}}\n"
    )
    (tmp_path / "grid.yaml").write_text("clusters: {a: plain.yaml}\nseeds: 2\nmetrics: [pendng]\n")
    ran = moorage("sweep", tmp_path / "grid.yaml", "--store", tmp_path / "store", "--processes", "1")
    assert (ran.status, ran.err) == (
        1,
        "error: pendng: no run has this metric; close: pending; runs have " + ran.err.partition("runs have ")[2],
    )


REFUSED = {
    "no such grid": (["nowhere.yaml"], "nowhere.yaml: No such file or directory"),
    "a baseline of no axis": (
        [GRID, "--against", "size=1"],
        "size=1: the baseline is AXIS=VALUE; the axes are cluster, config, ",
    ),
    "a baseline of no value": (
        [GRID, "--against", "config=x"],
        "config=x: config has no value x; its values are default, packed",
    ),
    "two places for the runs": ([GRID, "--dask", "tcp://x:1", "--processes", "2"], "--dask and --processes exclude each other"),
    "a scheduler that is invalid": ([GRID, "--dask", "nonsense://x"], "--dask nonsense://x: no Dask scheduler answers"),
}


DEMO = str(ROOT / "examples/demo")
ELSEWHERE = {
    "compare": ["compare", "-f", DEMO, "--b", str(ROOT / "examples/config/most-allocated.yaml")],
    "survive": ["survive", "-f", DEMO],
    "plan": ["plan", "-f", DEMO, "--types", str(ROOT / "examples/plan/one-type.yaml")],
}


@pytest.mark.parametrize("asked", ELSEWHERE.values(), ids=ELSEWHERE)
def test_other_commands_go_to_a_dask_cluster_too(moorage, asked):
    ran = moorage(*asked, "--dask", "nonsense://x")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("error: --dask nonsense://x: no Dask scheduler answers")


@pytest.mark.parametrize(("args", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(moorage, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    ran = moorage("sweep", *args)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {message}")


def test_the_extra_is_named_where_dask_is_missing(moorage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    ran = moorage("sweep", GRID, "--dask", "tcp://127.0.0.1:1")
    assert ran.err == "error: --dask needs Dask distributed: pip install distributed\n"
