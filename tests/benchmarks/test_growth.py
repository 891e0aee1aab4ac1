"""The growth benchmark finds exponents, and the axes that are cheap to measure stay within their limits."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from benchmarks.command import main
from benchmarks.growth import exponent, measure_growth
from benchmarks.growth_axes import AXES, Axis

#: The axes, and sizes at which they are cheap. Calls are counted, so axes that only make arrays longer do not grow here.
CHEAP = {
    "pods placed": (20, 60, 180),
    "label sets": (20, 60, 180),
    "namespaces": (10, 20, 40),
    "domains": (8, 24, 72),
    "waiting pods, all allowed": (20, 60, 180),
    "waiting pods, all too late": (20, 60, 180),
    "waiting pods, others placed": (20, 60, 180),
    "claims": (8, 16, 32),
    "volumes": (16, 32, 64),
    "gang size": (20, 60, 180),
    "parked pods, node added": (20, 60, 180),
    "parked pods, all woken": (20, 60, 180),
    "heartbeats": (20, 60, 180),
    "parked pods, pod added and deleted": (20, 60, 180),
    "parked pods, node relabelled": (20, 60, 180),
    "services": (10, 30, 90),
    "label values": (10, 30, 90),
    "constraints of a pod": (3, 9, 27),
    "gang size, pod affinity": (20, 60, 180),
    "nodes": (10, 30, 90),
    "nodes, all pods unlike": (10, 30, 90),
    "nodes, spread by default": (10, 30, 90),
    "nodes, preferred affinity": (10, 30, 90),
    "classes in turn": (5, 15, 45),
    "pods beside heartbeats": (10, 30, 90),
    "nodes relabelled": (10, 30, 90),
    "a node added": (10, 30, 90),
    "preemptors at once": (5, 15, 45),
    "nominated nodes": (5, 10, 20),
    "priorities": (1, 4, 16),
}


def calls_of(work):
    """Count the functions that work calls, built-in ones included: a measure that no busy machine distorts."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(("costs", "expected"), [((5, 5, 5), 0.0), ((1, 2, 4), 1.0), ((1, 4, 16), 2.0)])
def test_the_exponent_is_the_slope(costs, expected):
    assert exponent((10, 20, 40), costs) == pytest.approx(expected)


def test_costs_that_are_noise_do_not_grow():
    assert exponent((10, 20, 40), (1, 4, 16), noise=20) == 0.0


def test_a_quadratic_step_is_beyond_the_limit(monkeypatch):
    def make(size):
        return lambda: lambda: sum(1 for _ in range(size) for _ in range(size))

    monkeypatch.setitem(AXES, "square", Axis(make, (200, 400, 800), (), lambda size: 1))
    (figures,) = measure_growth(["square"], small=True)
    assert figures["exponent"] > 1.5
    assert not figures["within"]


def test_the_calls_of_every_axis_are_counted():
    assert CHEAP.keys() == AXES.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sizes"), CHEAP.items(), ids=CHEAP)
def test_the_number_of_calls_grows_within_the_limit(name, sizes):
    counts = []
    for size in sizes:
        step = AXES[name].make(size)
        step()()
        counts.append(calls_of(step()))
    assert exponent(sizes, counts) <= AXES[name].limit, counts


def test_the_command_prints_costs_and_fails_beyond_a_limit(monkeypatch):
    figures = {"sizes": [1, 2, 4], "us_each": [1, 2, 4], "loop_us": [9, 9, 9], "exponent": 2.0, "limit": 1.2, "within": False}
    monkeypatch.setattr("benchmarks.command._growth_in_new_process", lambda *given: [figures])
    result = CliRunner().invoke(main, ["growth", "nodes"])
    assert result.exit_code == 1
    assert "TOO HIGH" in result.output
    assert "unknown axis" in CliRunner().invoke(main, ["growth", "no-such"]).output
