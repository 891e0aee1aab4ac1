"""Sweeps: every point runs once, whatever ends on the way; the summary is that of ``compare``."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import moorage
from moorage.errors import InputError
from moorage.laboratory.sweeps.grid import SweepGrid, axis_of
from moorage.laboratory.sweeps.jobs import CallingThread, process_pool
from moorage.laboratory.sweeps.results import sweep_text
from moorage.laboratory.sweeps.store import open_store
from moorage.laboratory.sweeps.sweep import SweepPlan, _plan_of, run_sweep
from moorage.report.style import lines_of
from moorage.testing.builders import a_node, a_pod
from tests.laboratory.sweeps import functions

GRID = {"number": [1, 2, 3], "seed": range(2)}
SQUARES = [1, 2, 4, 5, 9, 10]


def here(grid, metrics, store, **more):
    return moorage.sweep(grid, metrics, CallingThread(), store, **more)


def test_every_point_runs_in_order(tmp_path):
    found = here(GRID, functions.square, tmp_path)
    assert found.columns()["square"].tolist() == SQUARES
    assert found.runs[3] == {"number": 2, "seed": 1, "square": 5.0, "half": 1.0}
    assert (found.made, found.failed) == (6, ())


def test_a_value_may_have_the_name_of_its_axis():
    assert SweepGrid((axis_of("config", ["config", "other"]),), "f").axes[0].varies


def test_a_sweep_goes_on_where_it_was_interrupted(tmp_path):
    calls = Counter()

    def square(*, number, seed):
        calls[number, seed] += 1
        return functions.square(number=number, seed=seed)

    def interrupt(there, of, failed):
        if there == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        here(GRID, square, tmp_path, on_run=interrupt)
    before = calls.total()
    again = here(GRID, square, tmp_path)
    assert (again.made, again.columns()["square"].tolist()) == (6 - before, SQUARES)
    assert set(calls.values()) == {1}
    assert here(GRID, square, tmp_path).made == 0


def test_a_store_that_cannot_be_written_ends_the_sweep(tmp_path):
    store = open_store(tmp_path)
    with patch.object(store, "write", side_effect=InputError("full")), pytest.raises(InputError, match="full"):
        run_sweep(_plan_of(GRID, functions.square), store, CallingThread())


def test_other_values_functions_and_versions_have_other_keys(tmp_path, monkeypatch):
    here({"number": [1]}, functions.square, tmp_path)
    assert here({"number": [1]}, functions.square, tmp_path).made == 0
    assert here({"number": [1.5]}, functions.square, tmp_path).made == 1
    assert here({"number": [1]}, functions.curve, tmp_path).made == 1
    monkeypatch.setattr("moorage.__version__", "9.9.9")
    assert here({"number": [1]}, functions.square, tmp_path).made == 1


def test_a_run_that_raises_is_tried_again_and_then_listed(tmp_path):
    calls = Counter()

    def counted(*, number, seed=0):
        calls[number] += 1
        return functions.fail_at_three(number=number)

    found = here({"number": [1, 3, 4]}, counted, tmp_path, retries=2)
    assert (calls[3], calls[1]) == (3, 1)
    assert [(one.labels, one.message) for one in found.failed] == [({"number": 3}, "ZeroDivisionError: three")]
    assert found.columns()["square"].tolist() == [1, 16]


def test_an_error_of_the_input_is_not_tried_again(tmp_path):
    calls = Counter()

    def refuse(*, number):
        calls[number] += 1
        raise InputError("no such number")

    assert here({"number": [1]}, refuse, tmp_path).failed[0].message == "no such number"
    assert calls == {1: 1}


def test_columns_of_runs_and_arrow(tmp_path):
    found = here({"number": [5, 6], "seed": [1]}, functions.curve, tmp_path)
    assert {name: column.tolist() for name, column in found.series.columns().items()} == {
        "number": [5, 5, 6, 6], "seed": [1] * 4, "time_s": [0, 1, 0, 1], "pending": [5, 1, 6, 1],
    }  # fmt: skip
    table = pa.table(found)
    assert table.to_pydict() == {"number": [5, 6], "seed": [1, 1], "total": [6.0, 7.0]}
    assert table.column("total").to_numpy().base is not None or np.shares_memory(
        table.column("total").chunk(0).to_numpy(), found.columns()["total"]
    )


def test_any_executor_gives_the_same_table(tmp_path):
    with ThreadPoolExecutor(3) as pool:
        found = moorage.sweep(GRID, functions.square, pool, tmp_path)
    assert found.columns()["square"].tolist() == SQUARES


@pytest.mark.slow
def test_a_worker_process_that_ends_changes_nothing(tmp_path):
    grid = {"number": [1, 2, 3], "marker": [str(tmp_path / "ended")], "seed": range(2)}
    found = run_sweep(_plan_of(grid, functions.end_once), open_store(tmp_path / "store"), processes=2)
    assert (found.columns()["square"].tolist(), found.failed) == (SQUARES, ())
    assert (tmp_path / "ended").exists()


@pytest.mark.slow
def test_a_run_that_always_ends_its_worker_fails_alone(tmp_path):
    found = run_sweep(_plan_of({"number": [1, 2, 3]}, functions.always_end), open_store(tmp_path), processes=2, retries=1)
    assert [one.labels["number"] for one in found.failed] == [2]
    assert found.columns()["square"].tolist() == [1, 9]


@pytest.mark.slow
def test_a_given_executor_that_breaks_ends_the_sweep_with_its_results_kept(tmp_path):
    plan = SweepPlan(_plan_of({"number": [1, 2, 3]}, functions.always_end).grid, functions.always_end)
    with process_pool(1) as pool, pytest.raises(InputError, match="the executor broke"):
        run_sweep(plan, open_store(tmp_path), pool)
    assert run_sweep(_plan_of({"number": [1]}, functions.always_end), open_store(tmp_path), CallingThread()).made == 0


BAD = {
    "no values": ({"number": []}, "number: no values"),
    "a text for a list": ({"number": "123"}, "number: expected several values"),
    "a value twice": ({"number": [1, 2, 1]}, "number: 1 is listed twice"),
    "what has no digest": ({"number": [object()]}, "number: a object cannot be part of a key"),
}


@pytest.mark.parametrize(("grid", "message"), BAD.values(), ids=BAD)
def test_bad_axes_are_refused(tmp_path, grid, message):
    with pytest.raises(InputError, match=message):
        here(grid, functions.square, tmp_path)


# -- clusters ------------------------------------------------------------------------------------------------------------


def small_cluster():
    nodes = [a_node(f"n{number}", allocatable={"cpu": "4", "memory": "8Gi", "pods": 10}) for number in range(4)]
    pods = [
        a_pod(f"p{number}", containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}]).pod
        for number, cpu in enumerate(["1", "2", "500m", "1500m", "3", "1"])
    ]
    return moorage.Cluster.from_objects(*nodes, *pods)


PACKED = b"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}}]
"""


@pytest.mark.slow
def test_differences_are_those_of_compare(tmp_path):
    cluster = small_cluster()
    names = ("nodesUsed", "balance.cpu", "pending")
    grid = {"clusters": {"c": cluster}, "configs": {"a": None, "b": PACKED}, "seeds": 6}
    found = here(grid, names, tmp_path)
    expected = moorage.compare(cluster, b=moorage.Options(config=PACKED), seeds=range(6))
    assert here({**grid, "against": "config=b"}, names, tmp_path).groups()[1].metrics["pending"].difference is None
    baseline, other = found.groups()
    assert (baseline.labels["config"], other.labels["config"]) == ("a", "b")
    for name in names:
        metric = expected.metrics[name]
        change = other.metrics[name].difference
        assert (other.metrics[name].mean, baseline.metrics[name].mean) == (metric.b, metric.a)
        assert (change.difference, change.exact, change.p, change.range_of) == (
            metric.difference,
            metric.exact,
            metric.p,
            metric.range_of,
        )
        assert other.metrics[name].deviation == pytest.approx(np.std(found.select(config="b").columns()[name], ddof=1))
    assert expected.metrics["nodesUsed"].difference < 0


def test_parameters_change_the_configuration(tmp_path):
    grid = {
        "clusters": {"c": small_cluster()},
        "configs": {"packed": PACKED},
        "parameters": {"NodeResourcesFit.scoringStrategy.type": ["LeastAllocated", "MostAllocated"]},
    }
    found = here(grid, ("nodesUsed",), tmp_path)
    least, most = found.columns()["nodesUsed"].tolist()
    assert least > most
    with pytest.raises(moorage.errors.ConfigError, match=r"with NodeResourcesFit.scoringStrategy.type=Most"):
        here({**grid, "parameters": {"NodeResourcesFit.scoringStrategy.type": ["Most"]}}, (), tmp_path)


def test_traces_are_changed_by_the_seed_of_the_run(tmp_path):
    files = {"format": "openb", "pods": "examples/trace-openb/pods.csv", "nodes": "examples/trace-openb/nodes.csv"}
    grid = {
        "traces": {"as it was": files, "busy": {**files, "shuffle": True, "inflate": 8, "lifetimes": 3600}},
        "configs": {"a": None}, "seeds": 2,
    }  # fmt: skip
    found = here(grid, ("pending", "nodesUsed"), tmp_path)
    quiet, busy = (found.select(trace=name).columns() for name in ("as it was", "busy"))
    assert quiet["attempts"][0] == quiet["attempts"][1] < busy["attempts"].min()
    assert busy["utilisation.cpu.mean"][0] != busy["utilisation.cpu.mean"][1]
    assert here(grid, (), tmp_path).made == 0


def test_the_pods_of_a_trace_on_the_nodes_of_a_cluster(tmp_path):
    files = {
        "format": "openb",
        "pods": "examples/trace-openb/pods.csv",
        "nodes": "examples/trace-openb/nodes.csv",
        "stay": True,
    }
    found = here({"traces": {"t": files}, "clusters": {"c": small_cluster()}}, ("nodesUsed",), tmp_path)
    on_its_own = here({"traces": {"t": files}}, (), tmp_path)
    assert "utilisation.alibabacloud.com/gpu-milli" in on_its_own.columns()
    assert "utilisation.alibabacloud.com/gpu-milli" not in found.columns()


def test_wide_tables_have_letters_for_long_names_and_short_amounts(tmp_path):
    quota = "ClusterQueue/vision/nominalQuota/default/cpu"

    def waits(*, seed, queues, **parameters):
        return {"jobWait.p90": parameters[quota] * 100.0 * (1 + seed) * (2 if queues == "fair" else 1)}

    found = here({"queues": ["now", "fair"], quota: [1, 200], "seed": range(2)}, waits, tmp_path)
    with lines_of(80):
        text = sweep_text(found)
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[2:6] == [
        f"  A  {quota}",
        "  SD: deviation; *: from the least to the most",
        "  CHANGE: against queues=now",
        "",
    ]
    row = next(line.split() for line in text.splitlines() if line.split()[:2] == ["fair", "200"])
    assert row == ["fair", "200", "16.7h", "7.86h", "-2.25d", "…", "3.64d", "+8.33h", "~", "0.5"]
    with lines_of(200):
        assert "AGAINST queues=now" in sweep_text(found)


def test_runs_of_a_trace_have_a_row_for_each_job(tmp_path):
    """The table beside the metrics: `attempts` is both."""
    own = Path("tests/reports/research/own_trace.py").absolute()
    grid = {"traces": {"own": {"format": f"{own}:jobs"}}, "tables": "jobs", "power": {"core": 3.5}, "seeds": 2}
    found = here(grid, ("jct.mean", "attempts"), tmp_path)
    columns = found.series.columns()
    assert columns["job"].tolist() == ["Pod/first", "Job/train"] * 2
    assert columns["completion_s"].tolist() == [100, 155] * 2
    assert columns["jobs.attempts"].sum() == found.columns()["attempts"].sum()
    assert (columns["energy_kwh"] > 0).all()
    assert found.columns()["jct.mean"].tolist() == [127.5] * 2
