"""Jobs and pods of a run as rows: hand-made runs, sums that must agree, and files."""

from __future__ import annotations

import csv
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import moorage
from moorage.errors import InputError
from moorage.laboratory.dynamics import TraceArrivals
from moorage.laboratory.job_frames import PowerModel, jobs_frame, pods_frame, read_power, write_frame
from moorage.report.job_tables import TableSetting, jain, job_figures, job_rows, pod_rows
from moorage.report.outcome import NodeOutcome, PodOutcome, Run
from moorage.simulator.trace import Arrival, Trace, simulate_trace

SIZE = {"cpu": "4", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "4"}
NODES = [{"metadata": {"name": f"n{at}"}, "status": {"allocatable": SIZE, "capacity": SIZE}} for at in range(2)]


def pod(name, user, cpu="2", gpus="2"):
    resources = {"requests": {"cpu": cpu, "memory": "1Gi", "nvidia.com/gpu": gpus}, "limits": {"nvidia.com/gpu": gpus}}
    spec = {"containers": [{"name": "c", "resources": resources}]}
    return {"metadata": {"name": name, "labels": {"user": user, "vc": "a"}}, "spec": spec}


def arrivals():
    """A gang of four pods fills both nodes for 100 s; a job of one pod arrives at 10 and runs for 50, another stays pending."""
    gang = [Arrival(0.0, pod(f"g-{at}", "ann"), 100.0, "gang", 4) for at in range(4)]
    return [*gang, Arrival(10.0, pod("one", "bob"), 50.0), Arrival(20.0, pod("never", "bob", cpu="64"))]


@pytest.fixture(scope="module")
def run():
    return simulate_trace(Trace.of(NODES, arrivals()), moorage.Options())


def test_jobs_of_a_run(run):
    gang, one, never = job_rows(run)
    assert (gang.job, gang.owner, gang.queue, gang.state, gang.pods, gang.nodes) == ("Job/gang", "ann", "a", "Finished", 4, 2)
    assert (gang.started_s, gang.ended_s, gang.waited_s, gang.completion_s, gang.slowdown) == (0, 100, 0, 100, 1)
    assert (gang.gpus, gang.gpu_hours) == (8, pytest.approx(800 / 3600))
    assert (one.job, one.waited_s, one.completion_s, one.bounded_slowdown) == ("Pod/one", 90, 140, 2.8)
    assert (never.state, never.started_s, never.completion_s, never.cost) == ("Pending", None, None, None)


def test_figures_of_jobs(run):
    found = job_figures(job_rows(run))
    assert (found["jct.mean"], found["jct.p50"], found["jct.p99"]) == (120, 100, 140)
    assert (found["jobWaits.mean"], found["slowdown.p90"]) == (45, 2.8)
    assert found["userFairness.slowdown"] == pytest.approx((1 + 2.8) ** 2 / (2 * (1 + 2.8**2)))
    assert job_figures([]) == {}


def test_cost_and_energy_are_those_of_the_share_of_a_node(run):
    setting = TableSetting(prices={"n0": 3.6, "n1": 7.2}, power=PowerModel(10.0, {}, 300.0).on(()))
    gang = job_rows(run, setting)[0]
    assert gang.cost == pytest.approx((2 * 3.6 + 2 * 7.2) * 0.5 * 100 / 3600)  # each pod has half of a node
    assert gang.energy_kwh == pytest.approx(4 * (2 * 10 + 2 * 300) * 100 / 3.6e6)
    assert pod_rows(run, setting)[-1].energy_kwh == 0


def test_a_simulation_has_the_same_tables(run):
    nodes = [{"apiVersion": "v1", "kind": "Node", **node} for node in NODES]
    simulation = moorage.Simulation.from_objects(nodes, keep_records=True, feature_gates="GenericWorkload=true")
    simulation.use(TraceArrivals(arrivals()))
    simulation.run(until=500)
    mine = {row["pod"]: row for row in pods_frame(simulation.outcome())}
    for row in pods_frame(run):
        other = mine[row["pod"]]
        same = all(other[name] == row[name] for name in ("state", "waited_s", "gpus"))
        assert same or row["state"] == other["state"] == "Pending"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_are_files(run, tmp_path, ending):
    file = tmp_path / f"jobs.{ending}"
    write_frame(jobs_frame(run), file)
    if ending == "csv":
        rows = list(csv.DictReader(file.read_text().splitlines()))
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        rows = parquet.read_table(file).to_pylist()
    assert [row["job"] for row in rows] == ["Job/gang", "Pod/one", "Pod/never"]
    assert float(rows[1]["completion_s"]) == 140
    assert math.isnan(float(rows[2]["completion_s"]))
    with pytest.raises(InputError, match=r"a \.csv or a \.parquet"):
        write_frame(pods_frame(run), tmp_path / "pods.txt")


BAD_POWER = {"a number": 3, "an unknown name": {"cpu": 3}, "no watts": {"core": "much"}, "below 0": {"gpus": {"T4": -1}}}


@pytest.mark.parametrize("tree", BAD_POWER.values(), ids=BAD_POWER)
def test_bad_power_is_refused(tree):
    with pytest.raises(InputError, match=r"power\.yaml"):
        read_power(tree, "power.yaml")


times = st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(0, 30) | st.none(), st.integers(1, 40) | st.none())
pods = st.lists(times, max_size=12)


@settings(max_examples=50)
@given(pods)
def test_jobs_add_up_their_pods(rows):
    made = []
    for at, (job, arrived, wait, ran) in enumerate(rows):
        placed = None if wait is None else float(arrived + wait)
        ended = None if placed is None or ran is None else placed + ran
        state = "Pending" if placed is None else "Placed" if ended is None else "Finished"
        made.append(
            PodOutcome("d", f"p{at}", state, "" if placed is None else "n", f"Job/{job}", requests={"nvidia.com/gpu": 1},
                       arrived_s=float(arrived), placed_s=placed, ended_s=ended, attempts=1)
        )  # fmt: skip
    run = Run(tuple(made), (NodeOutcome("n", 0, 0, 110, {"nvidia.com/gpu": 100}, {}),), ended_s=200.0)
    jobs, single = job_rows(run), pod_rows(run)
    assert sum(one.pods for one in jobs) == len(single)
    assert sum(one.attempts for one in jobs) == len(single)
    assert sum(one.gpus for one in jobs) == sum(one.gpus for one in single)
    for job in jobs:
        mine = [one for one in single if one.job == job.job]
        assert job.arrived_s == min(one.arrived_s for one in mine)
        assert (job.completion_s is not None) == all(one.state == "Finished" for one in mine)
        if job.completion_s is not None:
            assert job.completion_s == max(one.ended_s for one in mine) - job.arrived_s
            assert job.bounded_slowdown >= 1


@pytest.mark.parametrize(("values", "index"), [([1, 1, 1], 1), ([1, 0, 0, 0], 0.25), ([0, 0], 1), ([3, 1], 0.8)])
def test_jains_index(values, index):
    assert jain(values) == pytest.approx(index)
