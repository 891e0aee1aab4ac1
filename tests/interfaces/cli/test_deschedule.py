"""``moorage deschedule``: what it prints, its document and its exit statuses."""

import json
from pathlib import Path

import pytest

from tests.interfaces.cli.test_simulate_output import violations

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples/deschedule"
ASK = ["deschedule", "-f", str(EXAMPLE / "cluster.yaml"), "--policy", str(EXAMPLE / "policy.yaml")]
SCHEMA = json.loads((ROOT / "docs/reference/deschedule.schema.json").read_text("utf-8"))

QUESTIONS = {  # arguments, the exit status
    "as it is": ([], 2),
    "before and after": (["--cycles", "2", "--edit", "node/node-c unschedulable=true"], 0),
    "two nodes are gone": (["--remove-nodes", "node-b", "--remove-nodes", "node-c"], 0),
}


@pytest.mark.slow
@pytest.mark.parametrize(("args", "status"), QUESTIONS.values(), ids=QUESTIONS)
def test_answers_keep_to_their_schema_and_width(moorage, args, status):
    ran = moorage(*ASK, *args, "-o", "json")
    assert (ran.status, ran.err) == (status, "")
    document = json.loads(ran.out)
    assert list(violations(document, SCHEMA, root=SCHEMA)) == []
    text = moorage(*ASK, *args, "-o", "wide", "--ascii").out
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 100


def test_containers_that_restart_are_read_from_the_files(moorage, tmp_path):
    cluster = (EXAMPLE / "cluster.yaml").read_text("utf-8").replace(
        "phase: Running", "phase: Running\n  containerStatuses: [{name: c, restartCount: 9}]", 1
    )  # fmt: skip
    (tmp_path / "cluster.yaml").write_text(cluster, "utf-8")
    policy = (EXAMPLE / "policy.yaml").read_text("utf-8")
    policy = policy.replace("RemovePodsViolatingNodeTaints", "RemovePodsHavingTooManyRestarts")
    (tmp_path / "policy.yaml").write_text(policy.replace("includePreferNoSchedule: true", "podRestartThreshold: 9"), "utf-8")
    ran = moorage(
        "deschedule", "-f", tmp_path / "cluster.yaml", "--policy", tmp_path / "policy.yaml", "-o", "json", "--cycles", "1"
    )
    evicted = json.loads(ran.out)["answer"]["cycles"][0]["evicted"]
    assert [one["pod"] for one in evicted if one["plugin"] == "RemovePodsHavingTooManyRestarts"] == ["shop/web-0"]


MISTAKES = {
    "no policy": (ASK[:3], "no config map of the input holds a DeschedulerPolicy: give it with --policy FILE"),
    "no such file": ([*ASK[:3], "--policy", "nowhere.yaml"], "nowhere.yaml"),
    "no interval": ([*ASK, "--interval", "0s"], "--interval: 0s is not above 0"),
    "no duration": ([*ASK, "--interval", "soon"], "--interval: "),
}


@pytest.mark.parametrize(("args", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_end_with_1_and_a_message(moorage, args, message):
    ran = moorage(*args)
    assert ran.status == 1
    assert message in ran.err
