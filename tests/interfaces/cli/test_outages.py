"""``moorage drain``, ``cordon``, ``fail`` and ``survive``: what they print, their documents and their exit statuses."""

import json
from pathlib import Path

import pytest

from moorage.report.survival_report import counted_nodes
from tests.interfaces.cli.test_simulate_output import violations

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
DEMO, DRAIN = str(ROOT / "examples/demo"), str(ROOT / "examples/drain")
SCHEMAS = {
    kind: json.loads((ROOT / "docs/reference" / f"{name}.schema.json").read_text())
    for kind, name in {"DrainReport": "drain-report", "Survival": "survival"}.items()
}

QUESTIONS = {  # arguments, the exit status
    "a drain": (["drain", "general-a2", "-f", DEMO, "--ignore-daemonsets"], 0),
    "a drain that kubectl refuses": (["drain", "general-a1", "-f", DEMO], 2),
    "a deadlock": (["drain", "worker-3", "-f", DRAIN, "--ignore-daemonsets", "--ready-after", "3s"], 2),
    "several nodes": (
        ["drain", "-l", "disk!=ssd", "-f", DEMO, "--ignore-daemonsets", "--force", "--return", "--surge", "1"],
        0,
    ),
    "an order": (["drain", "general-a2", "general-b2", "-f", DEMO, "--ignore-daemonsets", "--force", "--find-order"], 0),
    "together": (["drain", "worker-1", "worker-2", "-f", DRAIN, "--ignore-daemonsets", "--together", "--timeout", "9s"], 2),
    "a drain before and after": (["drain", "worker-3", "-f", DRAIN, "--ignore-daemonsets", "--add-nodes", "like=worker-7"], 0),
    "a cordon": (["cordon", "general-a1", "-f", DEMO], 2),
    "a cordon without pending pods": (["cordon", "worker-1", "-f", DRAIN], 0),
    "lost nodes": (["fail", "gpu-a1", "gpu-b1", "-f", DEMO], 0),
    "a lost zone": (["fail", "--zone", "zone-a", "-f", DEMO], 2),
    "an unreachable node": (["fail", "worker-3", "-f", DRAIN, "--mode", "unreachable"], 2),
    "zones": (["survive", "--over", "zone", "-f", DEMO], 2),
    "a label": (["survive", "--over", "accelerator", "-f", DEMO, "--spare", "gpu-a1"], 0),
    "pairs": (["survive", "--over", "zone", "--depth", "2", "-f", DEMO, "--probes", "0"], 2),
}


@pytest.mark.parametrize(("args", "status"), QUESTIONS.values(), ids=QUESTIONS)
def test_answers_keep_to_their_schema_and_width(moorage, args, status):
    ran = moorage(*args, "-o", "json")
    assert (ran.status, ran.err) == (status, "")
    document = json.loads(ran.out)
    assert list(violations(document, SCHEMAS[document["kind"]], root=SCHEMAS[document["kind"]])) == []
    wide = moorage(*args, "-o", "wide", "--ascii").out
    assert wide.isascii()
    assert wide.startswith(document["summary"].partition(" ")[0])
    assert max(len(line) for line in wide.partition("\n\nPOD")[0].splitlines()) <= 100


MISTAKES = {
    "no node": (["drain", "-f", DEMO], "name a node, or select nodes with -l"),
    "a node and a selector": (
        ["drain", "n1", "-l", "a=b", "-f", DEMO],
        "cannot specify both a node name and a --selector option",
    ),
    "no such node": (["cordon", "n9", "-f", DEMO], "no node has the name 'n9'"),
    "no such zone": (["fail", "--zone", "x", "-f", DEMO], "no node is in 'x'; zones: zone-a, zone-b, zone-c"),
    "no such label": (["survive", "--over", "rack", "-f", DEMO], "no node has the label rack"),
    "a wrong duration": (["drain", "general-a2", "-f", DEMO, "--timeout", "9"], "--timeout: "),
    "a wrong selector": (["drain", "general-a2", "-f", DEMO, "--pod-selector", "a in b"], "must be a valid label selector"),
    "two manners": (["drain", "general-a2", "-f", DEMO, "--together", "--return"], "--together excludes"),
}


@pytest.mark.parametrize(("args", "says"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_errors_that_say_what_is_wrong(moorage, args, says):
    ran = moorage(*args)
    assert ran.status == 1
    assert says in ran.err
    assert ran.out == ""


def test_equal_nodes_to_add_are_counted():
    changes = ["add a node like n1", "uncordon n2", "add a node like n1", "add a node like n3"]
    assert counted_nodes(changes) == ["add 2 nodes like n1", "uncordon n2", "add a node like n3"]
