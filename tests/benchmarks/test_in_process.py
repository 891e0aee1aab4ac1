"""In process both sides begin with the same cluster, differences are named, and a page takes the table between its marks."""

from __future__ import annotations

import msgspec
import pytest
from click.testing import CliRunner

from benchmarks import in_process
from benchmarks.command import main
from benchmarks.in_process import (
    IN_PROCESS,
    LEFT_OUT,
    DisagreementError,
    compare,
    in_process_table,
    measure_in_process,
    play,
    write,
)
from benchmarks.side_by_side_command import _PAGE, put_in
from benchmarks.workloads import WORKLOADS
from tools.oracles import BuildError, OracleMissingError, Program

RUN = {
    "workload": "basic", "side": "kube-scheduler", "load": 1.0, "pods": 3, "placed": 3, "unplaced": 0, "ended": True,
    "clock_s": 0.3, "cpu_s": 0.6, "nodes": 5, "before": 2, "on": {"node-0": 1, "node-1": 2},
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PROCESS)
def test_each_workload_begins_with_placed_pods_and_all_others_are_placed(name, tmp_path):
    write(name, 40, 6, tmp_path)
    start = msgspec.json.decode((tmp_path / "start.json").read_bytes())["items"]
    running = [one["spec"].get("nodeName") for one in start if one["kind"] == "Pod"]
    assert all(running)
    assert len(running) == WORKLOADS[name][1].init * 40 // WORKLOADS[name][1].nodes
    found = play(tmp_path)
    assert (found["nodes"], found["before"], found["placed"], found["unplaced"]) == (40, len(running), 6, 0)
    assert sum(found["on"].values()) == 6
    assert found["clock_s"] > 0
    assert found["cpu_s"] > 0


def test_pods_that_fit_nowhere_are_counted(tmp_path):
    write("anti-affinity-host", 5, 7, tmp_path)  # one pod is placed already, and each node takes one
    found = play(tmp_path)
    assert (found["before"], found["placed"], found["unplaced"]) == (1, 4, 3)


DIFFERENT = {
    "another cluster": ("basic", {"nodes": 4}, "began with 4 nodes, Moorage with 5"),
    "other running pods": ("basic", {"before": 0}, "began with 0 before, Moorage with 2"),
    "fewer placed": ("basic", {"placed": 2}, "places 2 pods, Moorage 3"),
    "other nodes": ("daemonset-pinned", {"on": {"node-0": 2, "node-1": 1}}, "2 and 1 pods on node-0"),
    "a node more": ("daemonset-pinned", {"on": {"node-0": 1, "node-1": 1, "node-2": 1}}, "1 and 2 pods on node-1"),
    "two on a host": ("anti-affinity-host", {"on": {"a": 3}}, "3 and 2 pods on one node"),
}


@pytest.mark.parametrize(("name", "other", "said"), DIFFERENT.values(), ids=DIFFERENT)
def test_a_difference_is_named(name, other, said):
    with pytest.raises(DisagreementError, match=said):
        compare(name, {**RUN, **other}, RUN)


SAME = {
    "ties": ("basic", {"on": {"node-3": 3}}),
    "hosts of other names": ("anti-affinity-host", {"on": {"node-3": 2, "node-2": 1}}),
    "time was up": ("basic", {"placed": 1, "ended": False}),
}


@pytest.mark.parametrize(("name", "other"), SAME.values(), ids=SAME)
def test_what_is_not_settled_is_no_difference(name, other):
    compare(name, {**RUN, **other}, RUN)


def test_the_table_has_medians_a_placed_pod_and_says_what_was_not_placed():
    ours = {**RUN, "side": "Moorage", "clock_s": 0.003, "cpu_s": 0.0015}
    slow = {"workload": "services", "placed": 1, "ended": False}
    runs = [RUN, ours, {**RUN, "clock_s": 9.0}, ours, {**RUN, "clock_s": 0.03, "load": 7.0}, ours]
    runs += [{**RUN, **slow}, {**ours, "workload": "services", "placed": 2, "unplaced": 1}]
    text = in_process_table(runs, 5)
    assert "| `basic` | 3 | 100,000 | 1,000 | 100 | 200,000 | 500 | 400 |" in text
    assert "| `services` | 1 of 3, then time was up | 300,000 | 1,500 | 200 |" in text
    assert text.startswith("5 nodes, 3 rounds of each in turn")
    assert "a load of\n1 to 7 by all" in text


PAGE = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n<!-- y: begin -->\n<!-- y: end -->\nc\n"


def test_a_page_takes_the_table_between_its_marks_alone():
    assert put_in(PAGE, "x", "new\nlines") == PAGE.replace("old", "new\nlines")
    assert put_in(PAGE, "y", "new") == PAGE.replace("y: begin -->\n", "y: begin -->\nnew\n")


@pytest.mark.parametrize("page", ["a\n", PAGE.partition("<!-- x: end")[0]])
def test_a_page_without_its_marks_is_left_alone(page):
    with pytest.raises(ValueError, match="no lines <!-- x: begin --> and <!-- x: end -->; put them where the table belongs"):
        put_in(page, "x", "new")


def test_the_page_has_a_row_for_each_workload_of_the_release():
    table = _PAGE.read_text().partition("<!-- in process: begin -->\n")[2].partition("<!-- in process: end -->")[0]
    assert f"clock: kube-scheduler {Program('speed').kubernetes()} " in table
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == [*IN_PROCESS]


REFUSED = {
    "no such workload": (["nothing"], "unknown workload nothing; use one of basic, "),
    "one that cannot be": (
        ["preemption-churn"],
        "preemption-churn is not compared in process: other pods come between its pods",
    ),
}


@pytest.mark.parametrize(("names", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_compared_is_said(names, said):
    done = CliRunner().invoke(main, ["side-by-side", "--in-process", *names])
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        (OracleMissingError("no Go"), 77, "skipped: no Go"),
        (BuildError("x"), 1, "error: x"),
        (DisagreementError("y"), 1, "error: y"),
    ],
)
def test_what_fails_has_its_status(monkeypatch, fault, status, said):
    def build(_name):
        raise fault

    monkeypatch.setattr(in_process, "built", build)
    done = CliRunner().invoke(main, ["side-by-side", "--in-process", "basic"])
    assert (done.exit_code, done.output.strip()) == (status, said)


def test_the_release_is_that_of_the_decisions():
    assert Program("speed").kubernetes() == Program("verdicts").kubernetes()


def test_what_is_left_out_is_a_workload_that_is_not_compared():
    assert set(LEFT_OUT) <= set(WORKLOADS)
    assert not set(LEFT_OUT) & set(IN_PROCESS)


@pytest.mark.slow
@pytest.mark.skipif(not Program("speed").path().exists(), reason="oracles/speed is not built")
@pytest.mark.parametrize("name", ["daemonset-pinned", "anti-affinity-host", "services"])
def test_kube_scheduler_places_as_many(name):
    runs = [*measure_in_process(name, 20, 6, 1, 60.0)]
    assert [run["side"] for run in runs] == ["kube-scheduler", "Moorage"]
    assert [(run["placed"], run["ended"]) for run in runs] == [(6, True)] * 2
