"""Workloads run, check themselves, and a run whose check fails has no number."""

from __future__ import annotations

import json
import subprocess
import sys
from random import Random

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from benchmarks.command import main
from benchmarks.gangs import GANG_SHAPES, measure_gangs
from benchmarks.mechanisms import MECHANISMS
from benchmarks.running import run
from benchmarks.simulations import placement, small_cluster, week
from benchmarks.workloads import WORKLOADS, Sizes
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.sheets import Sheets
from moorage.core.engine.fast_lane import FastLane

#: Sizes at which every pod finds a place.
SIZES = ["--nodes", "20", "--init", "10", "--pods", "10", "--check-every", "1"]
RUNNABLE = list(WORKLOADS)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNNABLE)
def test_all_pods_are_bound_and_every_decision_checked(name, monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.command._in_new_process", run)  # as fast as a run can start
    out = tmp_path / "results.jsonl"
    result = CliRunner().invoke(main, ["run", name, *SIZES, "--json", str(out)])
    assert result.exit_code == 0, result.output
    figures = json.loads(out.read_text())
    assert figures["bound"] == 10
    assert figures["checked"] >= 10


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_are_the_same_for_the_same_seed(name):
    make = WORKLOADS[name][0]
    assert make(Sizes(4, 3, 3), Random(7)) == make(Sizes(4, 3, 3), Random(7))


@pytest.mark.parametrize("method", ["decide", "decide_known"])
def test_a_run_whose_check_fails_has_no_number(method, monkeypatch, tmp_path):
    cls = Cycle if method == "decide" else Sheets
    decide = getattr(cls, method)

    def astray(self, *args):
        made = decide(self, *args)
        return replace(made, feasible=made.feasible + 1) if type(self) is not Cycle and made is not None else made

    monkeypatch.setattr(cls, method, astray)
    monkeypatch.setattr("benchmarks.command._in_new_process", run)  # the patch above does not reach another process
    out = tmp_path / "results.jsonl"
    without = ["--without", "fast-lane"] if method == "decide" else []
    monkeypatch.setattr(FastLane, "find", FastLane.find)
    result = CliRunner().invoke(main, ["run", "spread-zone-required", *SIZES, "--json", str(out), *without])
    assert result.exit_code == 1
    assert not out.exists()
    assert "the check failed" in result.output


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_can_be_switched_off(mechanism, monkeypatch):
    switch = MECHANISMS[mechanism]
    for name in switch.methods:
        monkeypatch.setattr(switch.cls, name, getattr(switch.cls, name))  # which restores what the mechanism replaces
    figures = run("spread-zone-required", Sizes(20, 10, 10), check_every=1, without=[mechanism])
    assert figures["checked"] >= 10


def test_pods_left_over_in_a_new_process_leave_no_number():
    result = CliRunner().invoke(main, ["run", "anti-affinity-host", "--nodes", "5", "--init", "3", "--pods", "3"])
    assert result.exit_code == 1
    assert "2 of 3 pods were bound" in result.output


def test_comparison_prints_ratios_and_spread(tmp_path):
    for name, rates in (("old", (90, 100, 120)), ("new", (180, 200, 230))):
        lines = [json.dumps({"workload": "basic", "nodes": 1, "init": 2, "pods": 3, "pods_per_s": rate}) for rate in rates]
        (tmp_path / name).write_text("\n".join(lines))
    result = CliRunner().invoke(main, ["compare", str(tmp_path / "old"), str(tmp_path / "new")])
    assert "2.00" in result.output
    assert "90-120; 180-230" in result.output


@pytest.mark.slow
def test_writes_are_measured_in_memory_and_in_a_file(tmp_path):
    result = CliRunner().invoke(
        main, ["writes", "--folder", str(tmp_path), "--count", "50", "--writers", "5", "--rounds", "1"]
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    writers, memory, kept, *_ = (float(word) for word in result.output.splitlines()[1].split())
    assert writers == 5
    assert memory > 0
    assert kept > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_only_learning_needs_gymnasium():
    program = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "from benchmarks.command import main; from benchmarks.simulations import placement, small_cluster\n"
        "small_cluster(times=1, rounds=1)\n"
        "try: placement(2, 2, 1, 1)\n"
        "except Exception as error: print(error)\n"
        "main(['list'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "moorage.laboratory.learning needs Gymnasium: pip install gymnasium"
    assert "basic" in done.stdout


@pytest.mark.slow
def test_simulations_are_measured_at_small_sizes():
    assert week(nodes=5, days=0.1)["pods"] > 0
    figures = small_cluster(times=1, rounds=1)
    assert figures["scaled_ms"] > 0
    assert figures["within"] == (figures["scaled_ms"] <= figures["bound_ms"])
    assert placement(4, 10, 1, 1)["steps"] == 10
    result = CliRunner().invoke(main, ["simulations", "a-year"])
    assert result.exit_code == 2
    assert "unknown simulation a-year" in result.output


@pytest.mark.slow
def test_questions_are_measured_as_commands_and_as_served(tmp_path):
    out = tmp_path / "results.jsonl"
    asked = ["simulate", "sweep", "served: report"]
    result = CliRunner().invoke(main, ["questions", *asked, "--cluster", "demo", "--folder", str(tmp_path), "--json", str(out)])
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["question"] for one in found] == asked
    assert all(0 < one["scaled_s"] <= one["bound_s"] for one in found)
    result = CliRunner().invoke(main, ["questions", "who"])
    assert result.exit_code == 2
    assert "unknown question who" in result.output


#: What becomes of two gangs on thirty nodes: pods placed, and pods evicted.
GANGS = {
    "gangs-preempt-pods": (20, 160),
    "gangs-preempt-groups": (20, 260),
    "large-gangs": (0, 0),
    "large-gangs-in-racks": (0, 0),
    "many-gangs": (6, 0),
    "huge-gangs": (1000, 0),
    "many-trees": (6, 0),
    "huge-trees": (1000, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GANG_SHAPES)
def test_gangs_preempt_and_fit_or_wait(name):
    figures = measure_gangs(name, 30, 2)
    assert (figures["placed"], figures["evicted"]) == GANGS[name]
    assert figures["ms_a_gang"] > 0
