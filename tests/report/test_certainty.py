"""Intervals of paired differences: known values, and how often they hold the truth and gates fail falsely."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.laboratory.compare.paired_metrics import compare_pairs
from moorage.report.certainty import holm, is_certain, p_of_mean, sign_flip_p, t_cdf, t_interval, t_quantile
from moorage.report.comparison import comparison_summary
from moorage.report.gates import evaluate_all, parse_gate

#: Student's table: the value that is exceeded with the chance 0.025, by degrees of freedom.
TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262, 19: 2.093, 30: 2.042, 120: 1.980}


@pytest.mark.parametrize("freedom", TABLE)
def test_students_table(freedom):
    assert t_quantile(0.975, freedom) == pytest.approx(TABLE[freedom], abs=5e-4)
    assert t_cdf(-TABLE[freedom], freedom) == pytest.approx(0.025, abs=5e-5)


def test_a_known_interval():
    """Student's own data: the gain of sleep by one of two drugs, in ten patients; mean 1.58, t = 4.06, p = 0.0028."""
    gains = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    assert t_interval(gains) == pytest.approx((0.70, 2.46), abs=0.005)
    assert p_of_mean(gains) == pytest.approx(0.00283, abs=5e-6)


WITHOUT = {"one": [1.0], "equal": [2.0, 2.0], "infinite": [1.0, math.inf, 2.0]}


@pytest.mark.parametrize("values", WITHOUT.values(), ids=WITHOUT)
def test_no_interval(values):
    assert t_interval(values) is None


@settings(max_examples=30)
@given(st.lists(st.integers(-20, 20).map(float), min_size=2, max_size=9), st.integers(-9, 9), st.integers(1, 5))
def test_moving_and_stretching_values_moves_and_stretches_the_interval(values, by, times):
    found = t_interval(values)
    if found is None:
        assert len(set(values)) == 1
        return
    low, high = found
    assert low <= sum(values) / len(values) <= high
    assert t_interval([value * times + by for value in values]) == pytest.approx((low * times + by, high * times + by))
    assert t_interval([-value for value in values]) == pytest.approx((-high, -low))


@settings(max_examples=30)
@given(st.lists(st.integers(-4, 4).map(lambda number: number / 10), min_size=1, max_size=9))
def test_sign_flips_by_enumeration(values):
    sums = [abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in product((1, -1), repeat=len(values))]
    assert sign_flip_p(values) == sum(one >= abs(sum(values)) - 1e-9 for one in sums) / len(sums)


def test_holm():
    assert holm({"a": 0.01, "b": 0.02, "c": 0.04}, 0.05) == {"a", "b", "c"}
    assert holm({"a": 0.01, "b": 0.03, "c": 0.04}, 0.05) == {"a"}
    assert holm({"a": 0.02, "b": 0.03, "c": 0.04}, 0.05) == frozenset()


CERTAIN = {
    "one pair": ([1.0], [2.0], False), "constant sides": ([1.0] * 2, [3.0] * 2, True),
    "two equal differences": ([1.0, 2.0], [2.0, 3.0], False), "no difference": ([5.0] * 3, [5.0] * 3, True),
    "five equal differences": ([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 3.0, 4.0, 5.0, 6.0], True),
}  # fmt: skip


@pytest.mark.parametrize(("a", "b", "certain"), CERTAIN.values(), ids=CERTAIN)
def test_what_chance_has_no_part_in(a, b, certain):
    assert is_certain(a, b) is certain
    assert compare_pairs("m", a, b).exact is certain


# How often the intervals of differences hold the truth. A seed moves both sides together (a busy and a quiet hour) and each
# side alone; the figures of B are larger by a known amount.

PAIRS = 4000


def normal(random, pairs):
    shared = random.normal(50, 5, (PAIRS, pairs))
    a, b = (shared + random.normal(0, 3, shared.shape) for _ in range(2))
    return a, b + 2, 2.0


def log_normal(random, pairs):
    """Return waits, whose tail is long; B waits a fifth longer."""
    shared = random.normal(0, 0.4, (PAIRS, pairs))
    a, b = (np.exp(shared + random.normal(0, 0.4, shared.shape)) for _ in range(2))
    return a, 1.2 * b, 0.2 * math.exp(0.4**2)


def discrete(random, pairs):
    """Return counts of pending pods: six on average, and eight in B."""
    return random.poisson(6, (PAIRS, pairs)), random.poisson(8, (PAIRS, pairs)), 2.0


METRICS = {"normal": normal, "log-normal": log_normal, "discrete": discrete}


@pytest.mark.parametrize("pairs", [5, 10, 20])
@pytest.mark.parametrize("metric", METRICS)
def test_intervals_hold_the_truth_as_often_as_they_say(metric, pairs):
    a, b, truth = METRICS[metric](np.random.default_rng([pairs, len(metric)]), pairs)
    ends = (t_interval(row) for row in (b - a).tolist())
    held = sum(row is not None and row[0] <= truth <= row[1] for row in ends)
    assert 0.93 <= held / PAIRS <= 0.97


#: Cases of A/A for each metric, and the most of them in which a gate may fail: one of twenty, and what chance adds (3 sigma).
TRIES = 700
MOST = TRIES / 20 + 3 * math.sqrt(TRIES / 20)


def pairs_without_a_difference(metric, pairs):
    a, b, _ = METRICS[metric](np.random.default_rng([7, pairs, len(metric)]), pairs)
    scale = {"normal": (-2, 1), "log-normal": (0, 1 / 1.2), "discrete": (0, 1)}[metric]
    other = a[PAIRS // 2 :] if metric == "discrete" else b[: PAIRS // 2] * scale[1] + scale[0]
    return a[:TRIES].tolist(), other[:TRIES].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [5, 10, 20])
@pytest.mark.parametrize("metric", METRICS)
def test_gates_fail_falsely_once_in_twenty_at_most(metric, pairs):
    gates = [parse_gate("m > +0"), parse_gate("m > +0%"), parse_gate("other < -0")]
    a, b = pairs_without_a_difference(metric, pairs)
    alone = together = claims = 0
    for at in range(TRIES):
        one, other = compare_pairs("m", a[at], b[at]), compare_pairs("other", b[at], a[at - 1])
        metrics = {"m": one, "other": other}
        alone += not evaluate_all(gates[:1], metrics)[0]
        together += not all(evaluate_all(gates, metrics))
        claims += "beyond chance" not in comparison_summary({"nodesUsed": one, "pending": other}, None, ())
    assert max(alone, together, claims) <= MOST, (alone, together, claims)
    assert min(alone, together, claims) > 0  # the gates can fail
