"""Several schedulers on one cluster: what is placed, refused, handed over and broken, in virtual time."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from benchmarks.carrying import measure_carried
from benchmarks.command import main
from benchmarks.shapes import ZONE
from benchmarks.shard_workloads import WORKLOADS, make
from benchmarks.shards import Setting, play

ONE = Setting("one", 1, "plain", 60)
#: Figures of a run that depend on the machine.
MEASURED = {"load_cpu_s", "run_cpu_s", "peak_mib"}


def outcome(setting):
    return {name: figure for name, figure in play(setting).items() if name not in MEASURED}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_one_scheduler_places_every_pod_without_conflicts(workload):
    figures = play(replace(ONE, workload=workload))
    assert figures["placed"] == figures["pods"] > 0
    assert (figures["conflicts"], figures["retries"], figures["pending"], figures["broken"]) == (0, 0, 0, 0)


def test_equal_arguments_give_equal_figures():
    setting = Setting("pods", 3, "tight", 60)
    assert outcome(setting) == outcome(setting)
    assert outcome(replace(setting, seed=1)) != outcome(setting)


@pytest.mark.parametrize("refuses", [False, True])
def test_schedulers_that_all_see_all_nodes_overcommit_them_and_retry(refuses):
    figures = play(Setting("pods", 4, "tight", 120, refuses=refuses))
    assert figures["conflicts"] > 0
    assert figures["retries"] >= figures["conflicts"]
    assert figures["placed"] == figures["pods"]


def test_a_required_rule_is_broken_if_two_schedulers_share_nodes_and_not_if_each_has_its_own():
    assert play(Setting("pods", 4, "apart", 60))["broken"] > 0
    assert play(Setting("nodes", 4, "apart", 60))["broken"] == 0


@pytest.mark.parametrize("workload", ["spread", "apart", "together", "tight"])
def test_the_oracle_of_simtest_accepts_every_binding_of_one_scheduler(workload):
    assert play(replace(ONE, workload=workload, oracle=True))["refused_by_oracle"] == 0


@pytest.mark.parametrize(("share", "workload"), [("nodes", "together"), ("pods", "together"), ("pods", "apart")])
def test_the_oracle_of_simtest_refuses_bindings_of_schedulers_that_share_a_cluster(share, workload):
    assert play(Setting(share, 4, workload, 60, oracle=True))["refused_by_oracle"] > 0


def test_a_pod_that_does_not_fit_is_handed_over_until_it_does():
    figures = play(Setting("nodes", 8, "tight", 120))
    assert figures["handed_over"] > 0
    assert figures["conflicts"] == 0
    assert figures["pending_that_fit"] == 0
    assert figures["placed"] == figures["pods"]


def test_a_pool_that_is_full_leaves_pods_pending_that_fit_elsewhere():
    figures = play(Setting("pools", 4, "big", 60))
    assert figures["pending_that_fit"] > 0


def test_the_api_server_limits_how_many_pods_are_placed():
    slow = play(Setting("nodes", 4, "plain", 60, writes_per_s=100.0))
    assert slow["placed_per_s"] <= 100
    assert slow["api_busy"] == 1.0
    assert play(Setting("nodes", 4, "plain", 60))["placed_per_s"] > 1000


def test_pods_that_arrive_one_by_one_wait_for_no_other():
    figures = play(replace(ONE, pods_per_s=100.0))
    assert figures["wait_p99_ms"] < 10


def test_every_pool_has_nodes_in_every_zone():
    problem = make("plain", 60, 0, pools=4)
    assert len({(one.metadata.labels["pool"], one.metadata.labels[ZONE]) for one in problem.nodes}) == 4 * 3


def test_the_command_appends_rows_to_a_file(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.command._played_in_new_process", play)
    out = tmp_path / "rows.csv"
    for share in ("pods", "nodes"):
        result = CliRunner().invoke(
            main, ["shards", "--share", share, "--schedulers", "2", "--nodes", "20", "--pods", "5", "--csv", str(out)]
        )
        assert result.exit_code == 0, result.output
        assert json.loads(result.output)["placed"] == 5
    assert [(row["share"], row["placed"]) for row in csv.DictReader(out.read_text().splitlines())] == [
        ("pods", "5"),
        ("nodes", "5"),
    ]


def test_what_one_process_carries_is_measured():
    figures = measure_carried(30, 2)
    assert figures["pods"] == 60
    assert all(figures[name] > 0 for name in ("read_us", "decide_us", "unlike_us", "heartbeat_us", "loop_us"))
