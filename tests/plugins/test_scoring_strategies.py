"""Test the scoring strategies: scores of nodes by utilization."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.plugins.resources.scoring_strategies import (
    CPU_AND_MEMORY,
    Demand,
    ResourceSpec,
    ScoringStrategy,
    UtilizationPoint,
    demands,
    scorer_of,
    shape_faults,
    sub_path,
    utilization_table,
)
from moorage.state.view import NodeView
from moorage.testing.builders import a_cluster, a_node, a_pod

GPU = "example.com/gpu"
RISING = [(0, 0), (100, 10)]
FALLING = [(0, 10), (100, 0)]
HUMP = [(0, 0), (70, 10), (100, 5)]


def strategy(kind, resources=(("cpu", 1), ("memory", 1)), shape=None):
    ratio = {"requestedToCapacityRatio": {"shape": [{"utilization": u, "score": s} for u, s in shape]}} if shape else {}
    return msgspec.convert(
        {"type": kind, "resources": [{"name": name, "weight": weight} for name, weight in resources], **ratio}, ScoringStrategy
    )


def scores(chosen, wants, nodes):
    """Score nodes given as (allocatable, requests of their pods) for a pod that requests ``wants``."""
    made = [a_node(f"n{i}", allocatable=offers) for i, (offers, _) in enumerate(nodes)]
    placed = {f"n{i}": [requesting(held, f"held{i}")] for i, (_, held) in enumerate(nodes) if held}
    view = a_cluster(made, placed).snapshot.nodes
    return scorer_of(chosen)(demands(chosen.resources, wants), view).tolist()


def requesting(requests, name="pod"):
    return a_pod(name, containers=[{"name": "c", "resources": {"requests": requests}}])


LEAST, MOST, RATIO = "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"
HALF_AND_QUARTER = ({"cpu": "4", "memory": 4000}, {"cpu": "1", "memory": 0})
PLAIN = {"cpu": 1000, "memory": 1000}

# strategy, the pod's requests, (the node's allocatable, requests of its pods), score
CASES = {
    "least: the mean of the free fractions": (strategy(LEAST), PLAIN, HALF_AND_QUARTER, (50 + 75) // 2),
    "least: each fraction is rounded down": (strategy(LEAST), {"cpu": 1, "memory": 1}, ({"cpu": "3m", "memory": 3}, {}), 66),
    "least: overcommitted": (
        strategy(LEAST), {"cpu": 1000, "memory": 1}, ({"cpu": "500m", "memory": 4}, {}), 75 // 2,
    ),
    "least: weighted": (strategy(LEAST, [("cpu", 3), ("memory", 1)]), PLAIN, HALF_AND_QUARTER, (3 * 50 + 75) // 4),
    "least: a resource the node lacks": (strategy(LEAST), PLAIN, ({"memory": 4000}, {}), 75),
    "least: no resource counts": (strategy(LEAST), PLAIN, ({}, {}), 0),
    "most: the mean of the used fractions": (strategy(MOST), PLAIN, HALF_AND_QUARTER, (50 + 25) // 2),
    "most: overcommitted": (
        strategy(MOST), {"cpu": 1000, "memory": 1}, ({"cpu": "500m", "memory": 4}, {}), (100 + 25) // 2,
    ),
    "a device the pod requests": (
        strategy(MOST, [("cpu", 1), (GPU, 3)]), {"cpu": 1000, GPU: 2},
        ({"cpu": "4", GPU: 8}, {"cpu": 0, GPU: 2}), (25 + 3 * 50) // 4,
    ),
    "a device the pod does not request": (
        strategy(MOST, [("cpu", 1), (GPU, 3)]), {"cpu": 1000}, ({"cpu": "4", GPU: 8}, {"cpu": 0, GPU: 8}), 25,
    ),
    "storage the pod does not request": (
        strategy(MOST, [("cpu", 1), ("ephemeral-storage", 1)]), {"cpu": 1000},
        ({"cpu": "4", "ephemeral-storage": 100}, {"cpu": 0, "ephemeral-storage": 75}), (25 + 75) // 2,
    ),
    "a resource that nodes do not track": (
        strategy(MOST, [("cpu", 1), ("pods", 5)]), PLAIN, ({"cpu": "4", "pods": 110}, {}), 25,
    ),
    "listed twice, counted twice": (
        strategy(MOST, [("cpu", 1), ("cpu", 1), ("memory", 1)]), PLAIN, HALF_AND_QUARTER, (2 * 50 + 25) // 3,
    ),
    "ratio: proportional": (strategy(RATIO, shape=RISING), PLAIN, HALF_AND_QUARTER, 38),
    "ratio: resources that score 0 do not count": (
        strategy(RATIO, shape=RISING), {"cpu": 0, "memory": 1000}, ({"cpu": "4", "memory": 4000}, {"cpu": 0, "memory": 0}), 25,
    ),
    "ratio: overcommitted": (strategy(RATIO, shape=RISING), PLAIN, ({"cpu": "500m", "memory": 1}, {}), 100),
    "ratio: no resource counts": (strategy(RATIO, shape=RISING), PLAIN, ({}, {}), 0),
    "ratio: rounded to nearest": (
        strategy(RATIO, [("cpu", 1), ("memory", 2)], RISING), PLAIN, ({"cpu": "2", "memory": 1960}, {}), 51,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("chosen", "wants", "node", "score"), CASES.values(), ids=CASES)
def test_scores(chosen, wants, node, score):
    assert scores(chosen, wants, [node]) == [score]


def test_a_petabyte_is_scored_exactly():
    whole, half = 2**50, 2**49
    nodes = [({"cpu": "1", "memory": whole}, {}), ({"cpu": "1", "memory": whole}, {"memory": half})]
    chosen = strategy(LEAST, [("memory", 100)])
    assert scores(chosen, {"memory": half}, nodes) == [50, 0]
    assert scores(chosen, {"memory": half + 1}, nodes) == [49, 0]


# shape → utilization → score
SHAPES = {
    "rising": (RISING, {0: 0, 1: 1, 50: 50, 100: 100}),
    "falling": (FALLING, {0: 100, 1: 99, 50: 50, 100: 0}),
    "a single point is constant": ([(50, 4)], {0: 40, 50: 40, 100: 40}),
    "constant before the first and after the last point": ([(20, 2), (40, 8)], {0: 20, 20: 20, 30: 50, 40: 80, 100: 80}),
    "truncated towards the left point when rising": ([(0, 0), (30, 10)], {1: 3, 2: 6, 29: 96}),
    "truncated towards the left point when falling": ([(0, 10), (30, 0)], {1: 97, 2: 94, 29: 4}),
    "a hump": (HUMP, {35: 50, 70: 100, 71: 99, 99: 52, 100: 50}),
}


@pytest.mark.parametrize(("shape", "expected"), SHAPES.values(), ids=SHAPES)
def test_shapes(shape, expected):
    table = utilization_table([UtilizationPoint(utilization=u, score=s) for u, s in shape])
    assert {at: int(table[at]) for at in expected} == expected


SHAPE_FAULTS = {
    "none": ([], ["at: Required value: at least one point must be specified"]),
    "good": (HUMP, []),
    "unordered, reported once": (
        [(50, 5), (50, 5), (40, 5)], ["at[1].utilization: Invalid value: 50: values must be sorted in increasing order"],
    ),
    "out of range": (
        [(-1, 11), (101, -1)],
        ["at[0].utilization: Invalid value: -1: not in valid range [0, 100]",
         "at[0].score: Invalid value: 11: not in valid range [0, 10]",
         "at[1].utilization: Invalid value: 101: not in valid range [0, 100]",
         "at[1].score: Invalid value: -1: not in valid range [0, 10]"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("shape", "faults"), SHAPE_FAULTS.values(), ids=SHAPE_FAULTS)
def test_shape_faults(shape, faults):
    assert [str(f) for f in shape_faults([UtilizationPoint(utilization=u, score=s) for u, s in shape], "at")] == faults


def test_defaults_of_explicit_arguments():
    assert ScoringStrategy(type=LEAST).resources == CPU_AND_MEMORY
    assert msgspec.convert({"type": LEAST, "resources": []}, ScoringStrategy).resources == CPU_AND_MEMORY
    assert msgspec.convert({"name": "cpu", "weight": 0}, ResourceSpec).weight == 1
    assert msgspec.convert({"name": "cpu"}, ResourceSpec).weight == 1


def test_which_resources_count_for_a_pod():
    listed = [ResourceSpec(name=name, weight=2) for name in ("cpu", "memory", GPU, "hugepages-2Mi", "pods", "gpu")]
    assert demands(listed, {"cpu": 1, GPU: 3, "pods": 1, "gpu": 1}) == (
        Demand("cpu", 1, 2),
        Demand("memory", 0, 2),
        Demand(GPU, 3, 2),
    )


def test_paths():
    assert (sub_path("", "a"), sub_path("x", "a")) == ("a", "x.a")


# -- a reference implementation -------------------------------------------------------------------------------------------

names = ("cpu", "memory", "ephemeral-storage", GPU)
amounts = st.one_of(st.integers(0, 20), st.integers(0, 2**50))
lists = st.fixed_dictionaries({}, optional=dict.fromkeys(names, amounts))
weighted = st.lists(st.tuples(st.sampled_from(names), st.integers(1, 100)), min_size=1, max_size=5)
shapes = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 10)), min_size=1, max_size=4, unique_by=lambda p: p[0]).map(
    sorted
)


def reference_shape(shape, p):
    """Return the score (0-10) of a utilization, as exact tenths truncated towards the left point."""
    if p <= shape[0][0]:
        return 10 * shape[0][1]
    for (u, s), (v, t) in pairwise(shape):
        if p <= v:
            return 10 * s + int((t - s) * 10 * (p - u) / (v - u))
    return 10 * shape[-1][1]


def reference_score(kind, shape, resources, wants, offers, held):
    total = weights = 0
    for name, weight in resources:
        if offers.get(name, 0) == 0 or (name == GPU and not wants.get(name)):
            continue
        capacity, requested = offers[name], held.get(name, 0) + wants.get(name, 0)
        if kind == LEAST:
            score = 0 if requested > capacity else (capacity - requested) * 100 // capacity
        elif kind == MOST:
            score = min(requested, capacity) * 100 // capacity
        else:
            score = reference_shape(shape, 100 if requested > capacity else requested * 100 // capacity)
            if score == 0:
                continue
        total, weights = total + weight * score, weights + weight
    if not weights:
        return 0
    return int(total / weights + 0.5) if kind == RATIO else total // weights


def with_units(requests):
    return {name: f"{count}m" if name == "cpu" else count for name, count in requests.items()}


@pytest.mark.slow
@given(st.sampled_from([LEAST, MOST, RATIO]), weighted, shapes, lists, st.lists(st.tuples(lists, lists), max_size=4), st.data())
def test_agrees_with_a_reference_implementation(kind, resources, shape, wants, nodes, data):
    chosen = strategy(kind, resources, shape if kind == RATIO else None)
    full = [(offers, {"cpu": 0, "memory": 0, **held}) for offers, held in nodes]
    snapshot = a_cluster(
        [a_node(f"n{i}", allocatable=with_units(offers)) for i, (offers, _) in enumerate(full)],
        {f"n{i}": [requesting(with_units(held), f"held{i}")] for i, (_, held) in enumerate(full)},
    ).snapshot
    expected = [reference_score(kind, shape, resources, wants, offers, held) for offers, held in full]
    rows = data.draw(st.lists(st.integers(0, len(full) - 1), max_size=4) if full else st.just([]))
    view = NodeView(snapshot, np.array(rows, dtype=np.intp))
    score, what = scorer_of(chosen), demands(chosen.resources, wants)
    assert score(what, snapshot.nodes).tolist() == expected
    assert score(what, view).tolist() == [expected[row] for row in rows]
    assert all(0 <= value <= 100 for value in expected)
