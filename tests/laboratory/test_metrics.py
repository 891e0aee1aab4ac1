"""Metrics of a state: known values, closed forms, and plain loops over random states that must agree."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.laboratory.gpu_fragments import GpuNode, GpuShape, fragment_class, gpu_fragments, typical_gpu_fragments
from moorage.laboratory.metrics import (
    NodeUse,
    WorkShape,
    balance,
    dominant_shares,
    fragmentation,
    fragmented,
    headroom,
    instances,
    mix_fragmentation,
    skews,
    stranded,
    utilisation,
)

RESOURCES = ("cpu", "memory", "pods")


def use(allocatable, requested, counted=None, **more):
    rows = len(allocatable)
    return NodeUse(
        tuple(f"n{at}" for at in range(rows)), RESOURCES, np.array(allocatable).reshape(rows, 3),
        np.array(requested).reshape(rows, 3), np.array(counted if counted is not None else [True] * rows, dtype=bool), **more,
    )  # fmt: skip


#: Two nodes of 4 cpu; what is free: 1 and 3 cpu, 8 and 2 of memory.
TWO = use([[4, 8, 10], [4, 8, 10]], [[3, 0, 1], [1, 6, 2]])


def test_two_nodes_by_hand():
    assert utilisation(TWO) == {"cpu": 0.5, "memory": 6 / 16, "pods": 3 / 20}
    assert dominant_shares(TWO).tolist() == [0.75, 0.75]
    assert balance(TWO)["cpu"] == (0.25, 1.0**2 / (2 * (0.75**2 + 0.25**2)))
    assert skews(TWO).tolist() == [0.375, 0.25]
    small, even = WorkShape({"cpu": 1, "memory": 1}), WorkShape({"cpu": 2, "memory": 3})
    assert instances(TWO, small).tolist() == [1, 2]
    assert instances(TWO, even).tolist() == [0, 0]
    assert fragmentation(TWO, small) == 1 - 3 / 4
    assert fragmentation(TWO, even) == 1.0
    assert mix_fragmentation(TWO, [small._replace(weight=0.75), even._replace(weight=0.25)]) == 0.75 * 0.25 + 0.25
    assert stranded(TWO, [even]) == {"cpu": 1.0, "memory": 1.0, "pods": 1.0}
    assert stranded(TWO, [WorkShape({"cpu": 2})]) == {"cpu": 1 / 4, "memory": 8 / 10, "pods": 9 / 17}
    assert fragmented(TWO, [small])["cpu"] == 1 / 4
    assert headroom(TWO, small, ("a", "b")) == {"a": 1, "b": 2}
    assert headroom(TWO, small) == {"": 3}


def test_nodes_that_do_not_count_and_nodes_that_are_not_eligible():
    one = TWO.only(np.array([True, False]))
    assert utilisation(one)["cpu"] == 0.75
    assert headroom(one, WorkShape({"cpu": 1}), ("a", "b")) == {"a": 1}
    picky = WorkShape({"cpu": 1}, eligible=np.array([True, False]))
    assert instances(TWO, picky).tolist() == [1, 0]
    assert fragmentation(TWO, picky) == 0.0
    assert fragmented(TWO, [picky])["cpu"] == 3 / 4


def test_what_no_node_has_fits_nowhere():
    assert instances(TWO, WorkShape({"example.com/gpu": 1})).tolist() == [0, 0]
    assert fragmentation(TWO, WorkShape({"example.com/gpu": 1})) == 0.0


def test_no_nodes_and_empty_nodes():
    none = use([], [])
    assert (utilisation(none), balance(none), dominant_shares(none).tolist()) == ({}, {}, [])
    idle = use([[4, 8, 10]], [[0, 0, 0]])
    assert balance(idle)["cpu"] == (0.0, 1.0)
    assert fragmentation(idle, WorkShape({"cpu": 1})) == 0.0


# -- plain loops ----------------------------------------------------------------------------------------------------------

amounts = st.integers(0, 12)
rows = st.tuples(amounts, amounts, amounts)
states = st.lists(st.tuples(rows, rows, st.booleans()), min_size=1, max_size=5)
shapes = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 5), st.integers(0, 31)), min_size=1, max_size=3
)


def plain(state, wanted):
    """Compute everything with loops over numbers."""
    nodes = [(a, q) for a, q, counts in state if counts]
    free = [[max(0, a - q) for a, q in zip(*node, strict=True)] for node in nodes]
    shares = [[q / a if a else 0 for a, q in zip(*node, strict=True)] for node in nodes]
    rows_of = [at for at, one in enumerate(state) if one[2]]
    found = {
        "utilisation": {
            name: sum(q[r] for _, q in nodes) / total
            for r, name in enumerate(RESOURCES)
            if (total := sum(a[r] for a, _ in nodes))
        },
        "dominant": [max(share[:2]) for share in shares],
        "skew": [abs(share[0] - share[1]) / 2 for share in shares],
        "sigma": {},
    }
    for r, name in enumerate(RESOURCES):
        held = [share[r] for share, (a, _) in zip(shares, nodes, strict=True) if a[r]]
        if held:
            mean = sum(held) / len(held)
            found["sigma"][name] = math.sqrt(sum((one - mean) ** 2 for one in held) / len(held))
    lost, useless, weights = [0.0] * 3, [True] * len(nodes), sum(weight for *_, weight, _ in wanted)
    found["e"] = []
    for cpu, memory, weight, mask in wanted:
        want, fits = (cpu, memory, 1), []
        for at, row in enumerate(free):
            k = min(row[r] // want[r] for r in range(3) if want[r]) if mask >> rows_of[at] & 1 else 0
            fits.append(k)
            useless[at] &= k == 0
            for r in range(3):
                lost[r] += weight / weights * (row[r] - k * want[r])
        pool = [sum(row[r] for at, row in enumerate(free) if mask >> rows_of[at] & 1) for r in range(3)]
        pooled = min(pool[r] // want[r] for r in range(3) if want[r])
        found["e"].append(1 - sum(fits) / pooled if pooled else 0)
    total = [sum(row[r] for row in free) for r in range(3)]
    dead = [sum(row[r] for at, row in enumerate(free) if useless[at]) for r in range(3)]
    there = [any(a[r] for a, _ in nodes) for r in range(3)]
    found["stranded"] = {RESOURCES[r]: dead[r] / total[r] if total[r] else 0 for r in range(3) if there[r]}
    found["fragmented"] = {RESOURCES[r]: lost[r] / total[r] if total[r] else 0 for r in range(3) if there[r]}
    return found


@pytest.mark.slow
@settings(max_examples=40)
@given(states, shapes)
def test_agrees_with_plain_loops(state, wanted):
    held = use([a for a, _, _ in state], [q for _, q, _ in state], [c for _, _, c in state])
    kinds = [
        WorkShape({"cpu": cpu, "memory": memory}, weight, np.array([bool(mask >> at & 1) for at in range(len(state))]))
        for cpu, memory, weight, mask in wanted
    ]
    want = plain(state, wanted)
    assert utilisation(held) == pytest.approx(want["utilisation"])
    assert dominant_shares(held).tolist() == pytest.approx(want["dominant"])
    assert skews(held).tolist() == pytest.approx(want["skew"])
    assert {name: one.sigma for name, one in balance(held).items()} == pytest.approx(want["sigma"])
    assert [fragmentation(held, one) for one in kinds] == pytest.approx(want["e"])
    assert stranded(held, kinds) == pytest.approx(want["stranded"])
    assert fragmented(held, kinds) == pytest.approx(want["fragmented"])


@settings(max_examples=15)
@given(states, st.integers(2, 9))
def test_doubling_all_amounts_changes_no_share(state, factor):
    def scaled(by):
        both = [([by * one for one in a], [by * one for one in q]) for a, q, _ in state]
        return use([a for a, _ in both], [q for _, q in both], [c for _, _, c in state])

    assert utilisation(scaled(factor)) == pytest.approx(utilisation(scaled(1)))
    assert balance(scaled(factor)) == balance(scaled(1))
    assert dominant_shares(scaled(factor)).tolist() == dominant_shares(scaled(1)).tolist()


@pytest.mark.parametrize("n", [1, 2, 5])
def test_jain_is_one_for_equal_shares_and_one_in_n_for_a_single_user(n):
    assert balance(use([[100, 1, 1]] * n, [[37, 0, 0]] * n))["cpu"].jain == pytest.approx(1)
    assert balance(use([[100, 1, 1]] * n, [[37, 0, 0], *[[0, 0, 0]] * (n - 1)]))["cpu"].jain == pytest.approx(1 / n)


# -- shared GPUs ----------------------------------------------------------------------------------------------------------

GPU = {  # idle cpu, devices, model; cpu, gpu, count, models; class, fragments
    "both fit": ((4000, [1000, 300], "T4"), (2000, 500, 1, ()), {"q2": 300, "q3": 1000}),
    "two devices are needed": ((4000, [1000, 300], "T4"), (2000, 500, 2, ()), {"q2": 1300}),
    "the sum is no device": ((4000, [400, 400], "T4"), (2000, 500, 1, ()), {"q2": 800}),
    "no cpu": ((1000, [1000, 300], "T4"), (2000, 500, 1, ()), {"q4": 1300}),
    "neither": ((1000, [400, 300], "T4"), (2000, 500, 1, ()), {"q1": 700}),
    "another model": ((4000, [1000], "T4"), (2000, 500, 1, ("P100",)), {"no access": 1000}),
    "wants no gpu": ((4000, [1000], "T4"), (2000, 0, 0, ()), {"xl": 1000}),
    "wants no gpu, no cpu": ((1000, [1000], "T4"), (2000, 0, 0, ()), {"xr": 1000}),
}


@pytest.mark.parametrize(("node", "shape", "fragments"), GPU.values(), ids=GPU)
def test_gpu_fragments(node, shape, fragments):
    assert gpu_fragments(GpuNode(*node), GpuShape(*shape)) == fragments
    assert fragment_class(GpuNode(*node), GpuShape(*shape)) == list(fragments)[-1]


def test_gpu_fragments_of_a_mix_are_means():
    node = GpuNode(4000, [1000, 300])
    mix = [GpuShape(2000, 500, 1, weight=3), GpuShape(2000, weight=1)]
    found = typical_gpu_fragments([node, node], mix)
    assert (found["q3"], found["q2"], found["xl"]) == (1500, 450, 650)
    assert sum(found.values()) == 2 * 1300
