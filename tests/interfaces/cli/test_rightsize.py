"""``moorage rightsize``: what it prints, its document and its exit statuses."""

import json
from pathlib import Path

import pytest

from tests.interfaces.cli.test_simulate_output import violations

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples/rightsize"
ASK = ["rightsize", "-f", str(EXAMPLE / "cluster.yaml"), "--usage", str(EXAMPLE / "top.txt")]
SCHEMA = json.loads((ROOT / "docs/reference/rightsize.schema.json").read_text("utf-8"))
QUESTIONS = {  # arguments, the exit status
    "with prices": (["--types", str(EXAMPLE / "types.yaml")], 0),
    "before and after": (["--add-nodes", "like=node-1,count=1"], 0),
    "with all room": (["--headroom", "900"], 2),
}


@pytest.mark.parametrize(("args", "status"), QUESTIONS.values(), ids=QUESTIONS)
def test_answers_keep_to_their_schema_and_width(moorage, args, status):
    ran = moorage(*ASK, *args, "-o", "json")
    assert (ran.status, ran.err) == (status, "")
    document = json.loads(ran.out)
    assert list(violations(document, SCHEMA, root=SCHEMA)) == []
    text = moorage(*ASK, *args, "-o", "wide", "--ascii").out
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 100


MISTAKES = {
    "no usage": (ASK[:3], "Missing option '--usage'"),
    "no such file": ([*ASK, "--usage", "nowhere.json"], "nowhere.json"),
    "no usage in it": ([*ASK[:3], "--usage", str(EXAMPLE / "cluster.yaml")], "no pod's usage and no recommendation found"),
}


@pytest.mark.parametrize(("args", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_end_with_1_and_a_message(moorage, args, message):
    ran = moorage(*args)
    assert ran.status == 1
    assert message in ran.err
