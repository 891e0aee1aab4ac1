"""``moorage report``: its document, its tables, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.interfaces.cli.test_simulate_output import violations

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "docs/reference/overview.schema.json").read_text())
DEMO = ["report", "-f", str(ROOT / "examples/demo")]


def test_documents_keep_to_their_schema(moorage):
    ran = moorage(*DEMO, "-o", "json", "--cordon", "general-a1")
    document = json.loads(ran.out)
    assert list(violations(document, SCHEMA, root=SCHEMA)) == []
    assert (ran.status, document["answer"]["nodes"]) == (0, {"all": 8, "counted": 6, "cordoned": 2, "notReady": 0})
    assert document["before"]["answer"]["nodes"]["counted"] == 7
    assert yaml.safe_load(moorage(*DEMO, "-o", "yaml", "--cordon", "general-a1").out) == document


def test_text_is_at_most_100_columns_wide(moorage):
    lines = moorage(*DEMO).out.splitlines()
    assert lines[0] == "2 pods are pending; 7 of 8 nodes take pods: cpu 41.0%, memory 36.8% used."
    assert max(map(len, lines)) <= 100


def test_tables_are_written(moorage, tmp_path):
    ran = moorage(*DEMO, "-o", "csv", "--csv", tmp_path / "tables")
    assert ran.out.startswith("scope,name,nodes,counted,pods,dominantShare,fragmentation,resource,")
    names = {path.name for path in (tmp_path / "tables").iterdir()}
    assert names == {"nodes.csv", "pods.csv", "attempts.csv", "verdicts.csv", "scores.csv"}
    (tmp_path / "file").write_text("")
    assert moorage(*DEMO, "--csv", tmp_path / "file").status == 1
