"""Jobs of traces: pods that start together stay together, and programs make traces of their own."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import moorage
from moorage.errors import InputError
from moorage.simulator.trace import Arrival, Trace, simulate_trace

SIZE = {"cpu": "8", "memory": "32Gi", "pods": "110"}
NODES = [{"metadata": {"name": f"n{at}"}, "status": {"allocatable": SIZE, "capacity": SIZE}} for at in range(3)]


def pod(name, cpu="4", **metadata):
    resources = {"requests": {"cpu": cpu}}
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "c", "resources": resources}]}}


def job(name, time_s, pods, duration_s=100.0):
    return [Arrival(time_s, pod(f"{name}-{at}"), duration_s, name, pods if pods > 1 else 0) for at in range(pods)]


sizes = st.lists(st.integers(1, 4), min_size=1, max_size=6)


def trace_of(pods_of_jobs):
    return Trace.of(NODES, [one for at, pods in enumerate(pods_of_jobs) for one in job(f"job-{at}", 10.0 * at, pods)])


def assert_whole(trace):
    """Each gang is complete, its pods arrive at one time, next to each other, and live equally long."""
    gangs = {}
    for arrival in trace.arrivals:
        if arrival.gang:
            gangs.setdefault(arrival.job, []).append(arrival)
    for name, held in gangs.items():
        assert {len(held)} == {one.gang for one in held}, name
        assert len({(one.time_s, one.duration_s) for one in held}) == 1
        assert {one.pod.spec.scheduling_group.pod_group_name for one in held} == {name}
        assert len({one.pod.name for one in held}) == len(held)


STEPS = {
    "shuffle": lambda trace, seed: trace.shuffle(seed),
    "inflate": lambda trace, seed: trace.inflate(1.7, seed),
    "deflate": lambda trace, seed: trace.inflate(0.6, seed),
    "scale up": lambda trace, seed: trace.scale_to(cpu=4.0, seed=seed),
    "scale down": lambda trace, seed: trace.scale_to(cpu=0.4, seed=seed),
    "head": lambda trace, seed: trace.head(seed),
    "between": lambda trace, seed: trace.between(5.0, 35.0),
    "lifetimes": lambda trace, seed: trace.with_lifetimes(50.0, seed=seed),
    "split": lambda trace, seed: trace.split(0.5, 0.5, seed=seed)[0],
    "split by time": lambda trace, seed: trace.split(0.5, 0.5)[1],
}


@settings(max_examples=15)
@pytest.mark.parametrize("step", STEPS)
@given(sizes, st.integers(0, 9))
def test_gangs_stay_whole(step, pods_of_jobs, seed):
    changed = STEPS[step](trace_of(pods_of_jobs).inflate(1.5), seed)
    assert_whole(changed)
    if len(changed):
        assert_whole(STEPS[step](changed, seed + 1))


@settings(max_examples=15)
@given(st.integers(1, 12), st.integers(0, 9))
def test_pods_alone_are_drawn_as_before_there_were_jobs(count, seed):
    """A trace of pods without jobs and one whose jobs are single pods change alike."""
    plain = Trace.of(NODES, [Arrival(float(at), pod(f"p-{at}"), 9.0) for at in range(count)])
    jobs = Trace.of(NODES, [Arrival(float(at), pod(f"p-{at}"), 9.0, f"j-{at}") for at in range(count)])
    for step in STEPS.values():
        one, other = (list(step(trace, seed).arrivals) for trace in (plain, jobs))
        assert [(a.time_s, a.pod, a.duration_s) for a in one] == [(a.time_s, a.pod, a.duration_s) for a in other]


def test_splits_have_every_arrival_once():
    trace = trace_of([1, 3, 2, 1, 4, 2])
    for seed in (None, 3):
        parts = trace.split(0.5, 0.25, 0.25, seed=seed)
        names = Counter(arrival.pod.name for part in parts for arrival in part.arrivals)
        assert names == Counter(arrival.pod.name for arrival in trace.arrivals)
    assert [part.arrivals[0].time_s for part in trace.split(0.5, 0.5)] == [0, 0]


def test_a_gang_starts_when_there_is_room_for_all_of_it():
    """Three nodes of two pods each; three pods run until 1000 s, so four do not fit."""
    first = [Arrival(0.0, pod(f"first-{at}"), 1000.0) for at in range(3)]
    trace = Trace.of(NODES, [*first, *job("train", 10.0, 4)])
    run = simulate_trace(trace, moorage.Options())
    placed = {one.name: (one.placed_s, one.attempts) for one in run.pods if one.name.startswith("train")}
    assert set(placed.values()) == {(1000.0, 3)}
    assert {one.workload for one in run.pods if one.name.startswith("train")} == {"Job/train"}
    apart = simulate_trace(trace.with_pods_apart(), moorage.Options())
    assert sorted(one.placed_s for one in apart.pods if one.name.startswith("train")) == [10, 10, 10, 110]


GATES = {
    "a release without groups": (moorage.Options(emulate="1.30"), "has no pod groups"),
    "a closed gate": (moorage.Options(feature_gates="GenericWorkload=false"), "GenericWorkload is closed"),
    "an open gate": (moorage.Options(feature_gates="GenericWorkload=true"), "as a pod group"),
    "1.36": (moorage.Options(emulate="1.36"), "GenericWorkload, GangScheduling"),
}


@pytest.mark.parametrize(("options", "note"), GATES.values(), ids=GATES)
def test_a_note_says_how_gangs_start(options, note):
    run = simulate_trace(trace_of([2]), options)
    assert any(note in one.text for one in run.notes)
    assert len(run.in_state("Finished")) == 2


def test_a_program_makes_a_trace_of_dicts_structs_and_tuples():
    read = Trace.of(NODES, [(5.0, pod("b"), 1.0), {"time_s": 1.0, "pod": pod("a")}, Arrival(9.0, pod("b"), None)])
    assert [(one.time_s, one.pod.name, one.duration_s) for one in read.arrivals] == [
        (1, "a", None),
        (5, "b", 1),
        (9, "b-2", None),
    ]
    assert Trace(read.nodes, tuple(read.arrivals)).scale_to(cpu=2.0).arrivals[0].pod.name == "a"


BAD = {
    "no arrival": ([7], "an arrival is an Arrival"),
    "a field that there is not": ([{"time": 1, "pod": pod("a")}], "an arrival is an Arrival"),
    "a time before 0": ([(-1.0, pod("a"))], "use seconds from 0"),
    "no time": ([(float("nan"), pod("a"))], "use seconds from 0"),
    "a gang with a pod too few": (job("j", 0.0, 3)[1:], "2 pods arrive, and its gang is of 3"),
}


@pytest.mark.parametrize(("arrivals", "words"), BAD.values(), ids=BAD)
def test_what_is_no_trace_is_refused(arrivals, words):
    with pytest.raises(InputError, match=words):
        Trace.of(NODES, arrivals)


FUNCTIONS = """
from moorage.simulator.trace import Trace
SIZE = {"cpu": "8", "memory": "32Gi", "pods": "110"}
NODES = [{"metadata": {"name": "n"}, "status": {"allocatable": SIZE, "capacity": SIZE}}]
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
def whole(): return Trace.of(NODES, [(0.0, POD)])
def pair(pods): return NODES, [(0.0, {**POD, "metadata": {"name": pods}})]
def both(pods, nodes): return NODES, [(0.0, {**POD, "metadata": {"name": f"{pods}-{nodes}"}})]
def nothing(): return 7
VALUE = 7
"""


def test_a_function_makes_a_trace(tmp_path):
    file = tmp_path / "own_functions.py"
    file.write_text(FUNCTIONS)
    names = {name: moorage.read_trace(f"{file}:{name}", "x", "y").arrivals[0].pod.name for name in ("whole", "pair", "both")}
    assert names == {"whole": "p", "pair": "x", "both": "x-y"}
    for name, words in {"nothing": "found int", "VALUE": "expected a function", "missing": "has no missing"}.items():
        with pytest.raises(InputError, match=words):
            moorage.read_trace(f"{file}:{name}")
