"""What a pod costs does not grow with what was given away before: counted in calls, which no busy machine makes slower."""

from __future__ import annotations

import sys
from random import Random

import pytest

from benchmarks.what_ifs import measure_forks, measure_rich_what_ifs, measure_what_ifs
from benchmarks.workloads import WORKLOADS, Sizes
from moorage.simulator.simulate import Options, prepare


def calls_of_each(name, sizes):
    """How many functions were called for each decision, in order."""
    workload = WORKLOADS[name][0](sizes, Random(0))
    simulation, _ = prepare(Options(seed=0))
    simulation.load(workload.objects)
    simulation.load(workload.measured)
    calls, counts = 0, []

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    decisions = simulation.steps()
    sys.setprofile(count)
    try:
        for decision in decisions:
            assert decision.node is not None
            counts.append(calls)
            calls = 0
    finally:
        sys.setprofile(None)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("dra-claims", Sizes(40, 0, 400)),  # every device is taken in the end
        ("local-volumes", Sizes(60, 0, 90)),
    ],
)
def test_the_last_tenth_costs_as_much_as_the_first(name, sizes):
    counts = calls_of_each(name, sizes)
    tenth = sizes.pods // 10
    early, late = sum(counts[1 : 1 + tenth]), sum(counts[-tenth:])
    assert len(counts) == sizes.pods
    assert late < 1.5 * early, (early, late)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classes-in-turn", "tied-classes-in-turn"])
def test_classes_in_turn_are_judged_by_array_operations(name):
    """Each pod's column judges the rows of the 199 other pods that came in between, all of them at once."""
    counts = sorted(calls_of_each(name, Sizes(1200, 0, 1600))[-400:])
    assert counts[200] < 80, counts[200]


def test_what_ifs_are_measured_and_a_fork_is_compared():
    names = [figures["name"] for figures in measure_what_ifs(nodes=12, pods=30, times=2, rounds=1)]
    assert names[:2] == ["decide", "evict a pod, decide"]
    rich = [(figures["pod"], figures["name"]) for figures in measure_rich_what_ifs(12, 30, 2, 1, ["plain", "device"])]
    assert rich[:2] == [("plain", "change nothing, decide"), ("plain", "evict a pod with a budget, decide")]
    assert len(rich) == len(set(rich))
    assert [figures["name"] for figures in measure_forks(nodes=6, pods=10)][:2] == ["fork", "first use of a fork"]
