"""Traces as values: every method gives another trace, and equal seeds give equal traces."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.errors import InputError
from moorage.simulator.trace import capacity_of, most_at_once, requests_of
from moorage.simulator.traces.task_tables import TaskTable, machine

tasks = st.lists(
    st.tuples(
        st.integers(0, 9), st.sampled_from([100, 500, 2000]), st.sampled_from([0, 250, 1000]), st.none() | st.integers(0, 5)
    ),
    min_size=1, max_size=20,
)  # fmt: skip


def made(rows, nodes=2):
    table = TaskTable()
    for number, (time_s, cpu, gpu, duration) in enumerate(rows):
        table.add(f"t{number}", float(time_s), duration, cpu, 1 << 20, gpu_milli=gpu)
    return table.builder.finish([machine(f"n{i}", 8000, 1 << 34, gpus=4, shared=True) for i in range(nodes)])


def names(trace):
    return [one.pod.name for one in trace.arrivals]


@settings(max_examples=30)
@given(rows=tasks)
def test_arrivals_are_those_that_were_added_by_time(rows):
    trace = made(rows)
    expected = sorted(enumerate(rows), key=lambda one: one[1][0])
    assert [(one.pod.name, one.time_s, one.duration_s) for one in trace.arrivals] == [
        (f"t{number}", float(time_s), None if duration is None else float(duration))
        for number, (time_s, _, _, duration) in expected
    ]
    assert [int(amount) for amount in requests_of(trace.arrivals, "cpu")] == [row[1] for _, row in expected]


@settings(max_examples=30)
@given(rows=tasks, seed=st.integers(0, 5))
def test_shuffle_and_head_and_between(rows, seed):
    trace = made(rows)
    mixed = trace.shuffle(seed)
    assert (Counter(names(mixed)), [one.time_s for one in mixed.arrivals]) == (
        Counter(names(trace)), [one.time_s for one in trace.arrivals],
    )  # fmt: skip
    assert mixed == trace.shuffle(seed)
    assert names(trace.head(3)) == names(trace)[:3]
    part = trace.between(2, 6)
    assert [(one.pod.name, one.time_s) for one in part.arrivals] == [
        (one.pod.name, one.time_s - 2) for one in trace.arrivals if 2 <= one.time_s < 6
    ]


@settings(max_examples=40)
@given(rows=tasks, share=st.sampled_from([0.1, 0.5, 1.3, 3.0]), seed=st.integers(0, 5))
def test_scale_to_requests_so_much(rows, share, seed):
    trace = made(rows)
    before, target = requests_of(trace.arrivals, "gpu"), share * capacity_of(trace.nodes, "gpu")
    if not before.sum():
        with pytest.raises(InputError, match="cannot be scaled by gpu"):
            trace.scale_to(gpu=share)
        return
    found = trace.scale_to(gpu=share, seed=seed)
    after = requests_of(found.arrivals, "gpu").sum()
    assert after <= target
    assert after > target - before.max() or after == before.sum()
    assert len(set(names(found))) == len(found)
    assert found == trace.scale_to(gpu=share, seed=seed)
    if after:
        again = found.scale_to(gpu=share + 1)
        assert len(set(names(again))) == len(again) >= len(found)


@pytest.mark.parametrize(("factor", "count"), [(0.5, 2), (1, 4), (2.5, 10), (3, 12)])
def test_inflate(factor, count):
    trace = made([(1, 100, 0, 1), (2, 100, 0, 1), (2, 500, 0, None), (3, 100, 0, 1)])
    found = trace.inflate(factor)
    assert len(found) == len(set(names(found))) == count
    assert [one.time_s for one in found.arrivals] == sorted(one.time_s for one in found.arrivals)
    assert {one.pod.name.partition(".")[0] for one in found.arrivals} <= set(names(trace))


def test_lifetimes():
    trace = made([(0, 100, 0, 5)] * 400)
    assert {one.duration_s for one in trace.with_lifetimes(None).arrivals} == {None}
    assert {one.duration_s for one in trace.with_lifetimes(7, "constant").arrivals} == {7.0}
    drawn = [one.duration_s for one in trace.with_lifetimes(100, seed=3).arrivals]
    assert (len(set(drawn)), 80 < sum(drawn) / 400 < 120) == (400, True)


@settings(max_examples=30)
@given(rows=tasks)
def test_the_most_at_once_is_that_of_a_plain_loop(rows):
    trace = made(rows)
    moments = {float(row[0]) for row in rows}
    plain = max(
        sum(cpu for begin, cpu, _, duration in rows if begin <= now < begin + (math.inf if duration is None else duration))
        for now in moments
    )
    assert most_at_once(trace.arrivals, "cpu") == plain


WARNINGS = {  # tasks, number of nodes, what is said
    "an idle resource": (
        [(0, 2000, 100, 5), (9, 8000, 0, 5)],
        2,
        "pods never request more than 1.2 % of the nodes' GPUs at once",
    ),
    "a very idle resource": ([(0, 2000, 1, 5), (9, 8000, 0, 5)], 2, "pods never request more than 0.01 % of the nodes' GPUs"),
    "no pod ends": ([(0, 8000, 4000, None), (3, 8000, 4000, None)], 2, "no pod ever ends"),
    "one moment": ([(0, 8000, 4000, 3), (0, 8000, 4000, 3)], 2, "all pods arrive at the same time"),
    "no nodes": ([(0, 8000, 0, 3)], 0, "no nodes"),
}


@pytest.mark.parametrize(("rows", "nodes", "message"), WARNINGS.values(), ids=WARNINGS)
def test_warnings(rows, nodes, message):
    assert [text for text in made(rows, nodes).warnings() if message in text] != []


def test_a_trace_without_such_faults_has_no_cpu_warning():
    found = made([(0, 8000, 4000, 3), (1, 8000, 4000, 3)]).warnings()
    assert not any("cpu" in text or "GPU" in text or "ends" in text for text in found)


REFUSED = {
    "two resources": (lambda trace: trace.scale_to(cpu=1, gpu=1), "scale_to takes one of cpu, memory, gpu"),
    "no factor": (lambda trace: trace.inflate(0), "inflate: 0 is no factor"),
    "an endless factor": (lambda trace: trace.inflate(math.inf), "inflate: inf is no factor"),
    "an unknown distribution": (lambda trace: trace.with_lifetimes(3, "uniform"), "unknown distribution uniform"),
    "no lifetime": (lambda trace: trace.with_lifetimes(-1), "-1 is no lifetime"),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(change, message):
    with pytest.raises(InputError, match=message):
        change(made([(0, 100, 250, 1)]))
