"""--time-limit, --progress and Ctrl-C: the plain answer, what was found in time, and what a longer run could find."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.interfaces.cli.test_simulate_output import violations

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
DEMO, PLAN = (
    str(ROOT / "examples/demo"),
    ["-f", str(ROOT / "examples/plan/tomorrow"), "--types", str(ROOT / "examples/plan/types.yaml")],
)
COMPARE = ["compare", "--b-release", "1.34", "-f", DEMO]
SCHEMAS = {"DrainReport": "drain-report", "NodePlan": "plan"}
SOON = ["--time-limit", "0.001"]

#: Arguments, the exit status when the time is over at once, and what a longer run could find.
QUESTIONS = {
    "explain": (["explain", "search-2", "-f", DEMO], 3, "more changes that would place the pod, and cheaper ones"),
    "survive": (["survive", "-f", DEMO], 3, "what the other 8 losses do"),
    "survive over zones": (["survive", "--over", "zone", "--spare", "general-a1", "-f", DEMO], 3, "what the other 3 losses do"),
    "capacity": (["capacity", "deployment/web", "-f", DEMO], 0, "how many more fit"),
    "compare": ([*COMPARE], 0, "the differences with 9 more seeds"),
    "a gate": ([*COMPARE, "--fail-on", "pending > +0"], 3, "the differences with 9 more seeds"),
    "plan": (["plan", *PLAN], 3, "a set of nodes that places all pods"),
    "consolidate": (["plan", "--consolidate", "-f", DEMO], 3, "nodes to remove that save more, and why the others cannot go"),
    "report": (["report", "-f", DEMO], 0, "how many more pods of the other shapes fit, counted by the engine"),
}  # fmt: skip


def schema_of(document):
    name = SCHEMAS.get(document["kind"], document["kind"].lower())
    return json.loads((ROOT / f"docs/reference/{name}.schema.json").read_text())


@pytest.mark.parametrize(("args", "status", "left"), QUESTIONS.values(), ids=QUESTIONS)
def test_a_limit_that_is_hit_is_named(moorage, args, status, left):
    ran = moorage(*args, *SOON, "-o", "json")
    document = json.loads(ran.out)
    assert (ran.status, ran.err) == (status, "")
    assert document["stopped"]["reason"] == "timeLimit"
    assert document["stopped"]["limitSeconds"] == 0.001
    assert left in document["stopped"]["left"]
    schema = schema_of(document)
    assert list(violations(document, schema, root=schema)) == []
    text = moorage(*args, *SOON)
    assert text.status == status
    lines = text.out.splitlines()
    assert any(line.startswith("  ! stopped at the time limit of 0.001 s. A longer --time-limit could find:") for line in lines)
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(("args", "status", "left"), QUESTIONS.values(), ids=QUESTIONS)
def test_a_limit_that_is_not_hit_changes_no_byte(moorage, args, status, left):
    if args[0] == "plan" and "--types" in args:
        pytest.skip("it takes minutes without a limit; tests/laboratory/test_budget.py has a smaller plan")
    endless, long = (moorage(*args, "--time-limit", limit, "-o", "json") for limit in ("0", "3000"))
    assert endless == long
    assert "stopped" not in json.loads(endless.out)


def test_a_search_for_an_order_that_ends_early_leaves_the_answer_open(moorage):
    args = ["drain", "-l", "disk!=ssd", "-f", DEMO, "--ignore-daemonsets", "--force", "--find-order"]
    ran = moorage(*args, *SOON, "-o", "json")
    assert ran.status == 3
    assert json.loads(ran.out)["stopped"]["left"][0].startswith("a better order of the nodes")


def test_a_sweep_begins_no_run_after_its_limit_and_goes_on_with_them(moorage, tmp_path):
    grid = [str(ROOT / "examples/sweep/grid.yaml"), "--store", str(tmp_path), "--processes", "1", "-o", "json"]
    first = moorage("sweep", *grid, *SOON)
    document = json.loads(first.out)
    schema = json.loads((ROOT / "docs/reference/sweep.schema.json").read_text())
    assert list(violations(document, schema, root=schema)) == []
    assert first.status == 3
    assert document["stopped"]["left"] == ["the other 19 runs; the same command goes on with them"]
    second = moorage("sweep", *grid, "--time-limit", "3000")
    assert second.status == 0
    assert "stopped" not in json.loads(second.out)


def test_commands_without_a_search_have_no_limit(moorage):
    for command in ("fail", "cordon"):
        assert "No such option" in moorage(command, "general-a1", "-f", DEMO, *SOON).err


# -- as a process ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def wide(tmp_path):
    """A cluster with so many pairs of unlike, full nodes, and so few others, that no count proves their losses safe."""
    items = []
    for at in range(120):
        amounts = {"cpu": str(8 + at if at < 117 else 4000), "memory": "640Gi", "pods": "110"}
        items.append({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{at}"}, "status": {"allocatable": amounts}})
        for number in range(4 if at < 117 else 0):
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"r{at}", "uid": f"r{at}", "controller": True}
            container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": f"{(8 + at) * 240}m", "memory": "1Gi"}}}
            items.append({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": f"p{at}-{number}", "uid": f"p{at}-{number}", "ownerReferences": [owner]},
                "spec": {"nodeName": f"n{at}", "containers": [container]},
                "status": {"phase": "Running"},
            })  # fmt: skip
    path = tmp_path / "wide.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


@pytest.mark.parametrize("more", [(), ("--processes", "2")], ids=["alone", "with processes"])
def test_an_interruption_prints_the_best_so_far(start, wide, more):
    args = ["survive", "--depth", "2", "-f", wide, "--time-limit", "0", "--progress", *more]
    running = start(*args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    lines = iter(running.stderr.readline, b"")
    shown = next(line.decode() for line in lines if b"losses run" in line)
    assert "\r" not in shown
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    text = out.decode()
    assert running.returncode == 130
    assert text.startswith("Undecided: only ")
    assert "  ! interrupted. A longer run could find: what the other " in text


def test_a_pipe_gets_progress_only_if_that_is_asked_for(start, wide):
    args = ["survive", "--depth", "2", "-f", wide, "--time-limit", "4"]
    shown, silent = (start(*args, *more, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for more in (["--progress"], []))
    assert b"losses run" in shown.communicate(timeout=60)[1]
    assert silent.communicate(timeout=60)[1] == b""
    assert (shown.returncode, silent.returncode) == (3, 3)


def test_a_sweep_has_no_limit_of_its_own(moorage, tmp_path, monkeypatch):
    """Questions end after some seconds; a sweep makes its runs."""
    monkeypatch.setattr("moorage.interfaces.cli.questions.question.usual_limit_s", lambda objects: 1e-9)
    grid = [str(ROOT / "examples/sweep/grid.yaml"), "--store", str(tmp_path), "--processes", "1", "-o", "json"]
    found = json.loads(moorage("sweep", *grid).out)
    assert "stopped" not in found
    assert len(found["runs"]) == 20
