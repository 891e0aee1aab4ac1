"""Test ``moorage.Simulation``: changes at times, repeated calls, arrivals, recorders, and equal runs for equal seeds."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import numpy as np
import pytest

import moorage
from moorage.api.core import Node
from moorage.errors import InputError
from moorage.laboratory.dynamics.pod_arrivals import (
    DAY,
    HOUR,
    AtTimes,
    Diurnal,
    Empirical,
    Exponential,
    Fixed,
    LogNormal,
    PodArrivals,
    PodKind,
    Poisson,
    Regular,
    TraceArrivals,
    UniformBetween,
    Weibull,
)
from moorage.laboratory.dynamics.state_recorder import StateRecorder
from moorage.simulator.trace import Arrival
from moorage.testing.builders import a_node, a_pod


def node(name, cpu="4"):
    return a_node(name, {"kubernetes.io/hostname": name}, allocatable={"cpu": cpu, "memory": "8Gi", "pods": 110})


def pod(name="p", cpu="1", **spec):
    return a_pod(name, {"app": name}, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec).pod


def simulation(*objects, **options):
    return moorage.Simulation.from_objects(*objects, **options)


def where(sim):
    return {one["name"]: one["node"] for one in sim.pods}


# -- changes ----------------------------------------------------------------------------------------------------------

CHANGES = {  # what happens after 10 s, and where the pod is afterwards
    "an edit as text": ("pod/big requests.cpu=2", "n1"),
    "an object": (node("n2", "8"), "n2"),
    "a dict": ({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "9"}}}, "n1"),
    "a function": (lambda sim: sim.add(node("n2", "8")), "n2"),
    "a change that does not help": ("node/n1 labels.a=b", ""),
}


@pytest.mark.parametrize(("change", "then"), CHANGES.values(), ids=CHANGES)
def test_a_change_happens_at_its_time(change, then):
    sim = simulation(node("n1"), pod("big", "6"))
    sim.at(10.0, change)
    assert sim.run(until=9.0).pending == 1
    sim.run(until=20.0)
    assert sim.now_s == 20.0
    assert where(sim) == {"big": then}


def test_what_cannot_be_scheduled_is_refused():
    sim = simulation(node("n1"))
    sim.run(until=5.0)
    with pytest.raises(InputError, match="the simulated time is already 5 s"):
        sim.at(4.0, "node/n1 unschedulable=true")
    with pytest.raises(InputError, match="the simulated time is already 5 s"):
        sim.run(until=1.0)
    with pytest.raises(InputError, match="nowhere"):
        sim.at(9.0, "node/n1 nowhere.x=true")
    with pytest.raises(InputError, match="a period is above 0"):
        sim.every(0, print)
    sim.every(1.0, lambda sim: None)
    with pytest.raises(InputError, match=r"run\(until=SECONDS\)"):
        sim.run()
    with pytest.raises(InputError, match="keep_records"):
        sim.outcome()


def test_a_change_of_the_configuration_is_refused():
    sim = simulation(node("n1"))
    with pytest.raises(InputError, match="the configuration of a running simulation does not change"):
        sim.apply("config/default-scheduler/NodeAffinity disable")


def test_calls_repeat_until_they_are_cancelled():
    sim, times = simulation(node("n1")), []

    def note(sim):
        times.append(sim.now_s)
        if len(times) == 3:
            repeated.cancel()

    repeated = sim.every(60.0, note)
    sim.run(until=60.0)
    assert times == [60.0]
    sim.run(until=185.0)
    assert times == [60.0, 120.0, 180.0]
    sim.run()  # no call is left
    sim.every(10.0, note, first_s=190.0)
    sim.run(until=210.0)
    assert times[3:] == [190.0, 200.0, 210.0]


def test_step_processes_one_moment_after_the_other():
    sim = simulation(node("n1"), pod("first"))
    sim.at(10.0, pod("second"))
    sim.at(10.0, pod("third"))
    sim.at(25.0, "node/n1 unschedulable=true")
    assert [sim.step(), sorted(where(sim).values())] == [0.0, ["n1"]]
    assert [sim.step(), sorted(where(sim).values())] == [10.0, ["n1"] * 3]
    assert sim.step() == 25.0
    assert sim.step() is None
    assert sim.now_s == 25.0


def test_the_outcome_is_that_of_simulate():
    objects = [node("n1"), node("n2"), *(pod(f"p{at}") for at in range(10))]
    sim = simulation(objects, keep_records=True)
    sim.run()
    plain = moorage.simulate(objects)
    assert [(one.name, one.state, one.node) for one in sim.outcome().pods] == [
        (one.name, one.state, one.node) for one in plain.pods
    ]
    assert sim.totals().attempts == plain.attempts
    assert sim.totals().pending == 2


# -- arrivals ---------------------------------------------------------------------------------------------------------


def busy(seed=0, until=HOUR, **kwargs):
    sim = simulation([node(f"n{at}") for at in range(3)], seed=seed, **kwargs)
    kinds = [PodKind(pod("small", "500m"), 3.0), PodKind(pod("large", "2"), 1.0, Fixed(600.0))]
    sim.use(PodArrivals(Poisson(60), kinds, lifetime=Exponential(900.0)))
    recorder = sim.use(StateRecorder(60.0, fragmentation=[pod("small", "500m"), pod("large", "2")]))
    return sim, recorder, sim.run(until=until)


@pytest.mark.slow
def test_equal_seeds_give_equal_runs_and_other_seeds_others():
    runs = [(totals, recorder.columns()) for _, recorder, totals in (busy(1), busy(1), busy(2))]
    assert runs[0][0] == runs[1][0] != runs[2][0]
    assert all((runs[0][1][name] == runs[1][1][name]).all() for name in runs[0][1])


def test_another_process_does_not_change_the_draws_of_the_first():
    alone, together = simulation(node("n1")), simulation(node("n1"))
    for sim in (alone, together):
        sim.first = sim.use(PodArrivals(Poisson(60), pod(), lifetime=1.0))
    together.use(PodArrivals(Poisson(100), pod("x"), lifetime=1.0, name="other"))
    alone.run(until=HOUR)
    together.run(until=HOUR)
    assert alone.first.count == together.first.count


@pytest.mark.slow
def test_totals_add_up_and_pods_that_ended_are_forgotten():
    sim, _, totals = busy()
    there = len(sim.pods)
    assert totals.arrived == totals.finished + there
    assert totals.placed == totals.finished + there - totals.pending
    assert len(sim.engine.records) == there
    assert totals.wait_p99_s >= totals.wait_p90_s >= totals.wait_p50_s >= 0.0
    assert totals.wait_p99_s > 0


@pytest.mark.slow
def test_records_can_be_kept():
    sim, _, totals = busy(keep_records=True)
    assert len(sim.outcome().pods) == totals.arrived
    assert len(sim.outcome().in_state("Finished")) == totals.finished
    assert busy()[2] == totals


def test_the_recorder_records_what_a_plain_loop_finds():
    sim = simulation([node(f"n{at}") for at in range(3)])
    sim.at(100.0, "node/n1 unschedulable=true")
    sim.at(200.0, node("n9", "16"))
    sim.use(PodArrivals(Regular(7.0), [PodKind(pod("a", "1"), 1.0), PodKind(pod("b", "3"), 1.0)], lifetime=45.0))
    recorder = sim.use(StateRecorder(10.0, extra={"second": lambda sim: sim.now_s}))
    seen = []
    for time_s in range(0, 301, 10):
        sim.run(until=float(time_s))
        open_ = [one for one in sim.nodes if not one["unschedulable"]]
        used, whole = (sum(one[name] for one in open_) for name in ("cpu_milli_requested", "cpu_milli"))
        waiting = sum(not one["node"] for one in sim.pods)
        seen.append((time_s, len(open_), len(sim.pods) - waiting, waiting, used, used / whole))
    columns = recorder.columns()
    names = ("time_s", "nodes", "pods", "pending", "allocation.cpu", "utilisation.cpu")
    assert list(zip(*(columns[name].tolist() for name in names), strict=True)) == seen
    assert recorder.frame[5]["time_s"] == 50.0
    assert recorder.mean("nodes", since_s=200.0) == 3.0
    assert (columns["second"] <= columns["time_s"]).all()
    assert (columns["allocation.memory"] == 0).all()
    with pytest.raises(InputError, match="no column load"):
        recorder.mean("load")


@pytest.mark.slow
def test_a_recorder_changes_nothing():
    plain = simulation([node(f"n{at}") for at in range(3)])
    kinds = [PodKind(pod("small", "500m"), 3.0), PodKind(pod("large", "2"), 1.0, Fixed(600.0))]
    plain.use(PodArrivals(Poisson(60), kinds, lifetime=Exponential(900.0)))
    assert plain.run(until=HOUR) == busy()[2]


def test_fragmentation_is_the_share_of_the_mix_that_free_pieces_cannot_hold():
    sim = simulation(node("n1", "3"), node("n2", "3"), pod("p1", "2"))
    recorder = sim.use(StateRecorder(1.0, fragmentation=[pod("large", "2")]))
    sim.run(until=0.0)
    assert recorder.columns()["fragmentation"].tolist() == [0.5]  # 4 cpu are free, in pieces of 1 and 3


def test_batches_lifetimes_and_ends():
    sim = simulation(node("n1", "100"))
    arrivals = sim.use(PodArrivals(Regular(60.0), pod(), lifetime=90.0, batch=3, until_s=300.0))
    totals = sim.run()
    assert arrivals.count == totals.arrived == totals.finished == 15
    assert sim.now_s == 300.0 + 90.0


def test_pods_of_arrivals_are_replaced_when_they_are_evicted_unless_asked_otherwise():
    for replaced, ends in ((True, 100.0 + 90.0), (False, 100.0)):
        sim = simulation(node("n1"))
        sim.use(PodArrivals(AtTimes([10.0]), pod(), lifetime=120.0, replaced=replaced, until_s=1000.0))
        sim.at(70.0, lambda sim: sim.evict(sim.pods[0]["name"], grace_s=30.0))
        totals = sim.run()
        assert totals.deleted == 1
        assert totals.arrived == 1 + replaced
        assert sim.now_s == (220.0 if replaced else 130.0), ends


def test_a_trace_is_read_as_time_passes_and_can_be_repeated():
    drawn = []

    def arrivals():
        for at in range(5):
            drawn.append(at)
            yield Arrival(10.0 * at, pod(f"t{at}"), 5.0)

    sim = simulation(node("n1"))
    sim.use(TraceArrivals(arrivals()))
    sim.run(until=15.0)
    assert drawn == [0, 1, 2]
    assert sim.run().finished == 5
    listed = [Arrival(10.0 * at, pod(f"t{at}"), 5.0) for at in range(5)]
    again = simulation(node("n1"))
    source = again.use(TraceArrivals(listed, speed=2.0, repeat_s=100.0))
    assert again.run(until=299.0).finished == source.count == 15
    with pytest.raises(InputError, match="only a sequence"):
        TraceArrivals(arrivals(), repeat_s=10.0)


WRONG_KINDS = {
    "no kind": lambda: PodArrivals(Poisson(1), []),
    "a negative weight": lambda: PodArrivals(Poisson(1), [PodKind(pod(), -1.0), pod("q")]),
    "a node": lambda: PodArrivals(Poisson(1), node("n")),
    "a pod with a node": lambda: PodArrivals(Poisson(1), pod(nodeName="n")),
    "no rate": lambda: Poisson(0),
    "too high an amplitude": lambda: Diurnal(1, amplitude=2),
    "a negative weekend": lambda: Diurnal(1, weekend=-1),
    "times that decrease": lambda: AtTimes([2.0, 1.0]),
    "a period of 0": lambda: Regular(0),
    "an endless mean": lambda: Exponential(math.inf),
    "a negative number": lambda: Fixed(-1),
    "bounds in the wrong order": lambda: UniformBetween(2, 1),
    "no values": lambda: Empirical([]),
    "no time between samples": lambda: StateRecorder(0),
}


@pytest.mark.parametrize("make", WRONG_KINDS.values(), ids=WRONG_KINDS)
def test_wrong_arguments_are_refused(make):
    with pytest.raises(InputError):
        make()


# -- distributions ----------------------------------------------------------------------------------------------------

MEANS = {
    "fixed": (Fixed(7.0), 7.0),
    "uniform": (UniformBetween(2.0, 6.0), 4.0),
    "exponential": (Exponential(50.0), 50.0),
    "lognormal": (LogNormal(10.0, 0.5), 10.0 * math.exp(0.125)),
    "weibull": (Weibull(10.0, 2.0), 10.0 * math.gamma(1.5)),
    "empirical": (Empirical([1.0, 2.0, 6.0]), 3.0),
}


@pytest.mark.parametrize(("distribution", "mean"), MEANS.values(), ids=MEANS)
def test_draws_have_the_mean_of_the_distribution(distribution, mean):
    random = Random(5)
    draws = [distribution.draw(random) for _ in range(4000)]
    assert np.mean(draws) == pytest.approx(mean, rel=0.05)
    assert min(draws) >= 0


@pytest.mark.slow
def test_a_day_of_arrivals_follows_the_rate():
    times, random, now = Diurnal(200, amplitude=0.8, peak_hour=14, weekend=0.5), Random(3), 0.0
    seen = []
    while now < 7 * DAY:
        now = times.next_after(now, random)
        seen.append(now)
    assert all(b >= a for a, b in pairwise(seen))
    hours = np.bincount((np.array(seen) % DAY // HOUR).astype(int), minlength=24)
    assert hours[13:15].sum() > 5 * hours[1:3].sum()
    days = np.bincount((np.array(seen) // DAY).astype(int), minlength=7)[:7]
    assert days[:5].mean() == pytest.approx(200 * 24, rel=0.05)
    assert days[5:].mean() == pytest.approx(100 * 24, rel=0.08)


def test_new_nodes_are_announced():
    sim, seen = simulation(node("n1")), []
    sim.on_new_node(lambda one: seen.append(one.name))
    sim.at(5.0, node("n2"))
    sim.at(6.0, "node/n2 unschedulable=true")
    sim.run()
    assert seen == ["n2"]
    assert isinstance(sim.get("node/n2"), Node)
