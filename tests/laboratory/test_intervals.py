"""Intervals of paired differences: exact cases, an enumerated bootstrap, and how often an interval holds the truth."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.laboratory.compare.paired_metrics import bca_interval, draw_rows, mean_difference, sign_flip_p

ROWS = draw_rows(8, 7)


def test_equal_differences_are_exact_and_have_no_interval():
    assert mean_difference([2.0] * 8, ROWS)[:3] == (2.0, True, None)
    assert mean_difference([0.1] * 3, draw_rows(3, 7))[:2] == (0.1, True)


def test_few_pairs_have_no_interval():
    found = mean_difference([1.0, 2.0, 3.0, 4.0], draw_rows(4, 7))
    assert (found.value, found.exact, found.interval) == (2.5, False, None)


def test_never_is_infinite():
    assert mean_difference([math.inf, 1.0], draw_rows(2, 7))[:2] == (math.inf, False)
    assert mean_difference([math.inf] * 2, draw_rows(2, 7))[:2] == (math.inf, True)
    assert mean_difference([math.inf, -math.inf], draw_rows(2, 7)).value is None


SIGNS = {
    "one": [3.0],
    "all up": [1.0, 2.0, 3.0],
    "mixed": [1.0, -2.0, 4.0, 0.5],
    "zeros": [0.0, 0.0],
    "tenths": [0.1, 0.2, 0.3],
}


@pytest.mark.parametrize("values", SIGNS.values(), ids=SIGNS)
def test_sign_flips_by_enumeration(values):
    sums = [abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in product((1, -1), repeat=len(values))]
    beyond = sum(one >= abs(sum(values)) - 1e-9 for one in sums)
    assert sign_flip_p(values) == beyond / len(sums)


def test_known_interval():
    """A symmetric sample has no bias and no acceleration: its interval is that of the sorted means."""
    values = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    every = np.array(list(product(range(5), repeat=5)), dtype=np.intp)  # all draws that there are
    low, high = bca_interval(values, every)
    means = np.sort(values[every].mean(axis=1))
    assert (low, high) == pytest.approx((np.quantile(means, 0.025), np.quantile(means, 0.975)))


def test_a_skewed_sample_moves_the_interval_up():
    values = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 9.0, 12.0])
    low, high = bca_interval(values, ROWS)
    plain = np.quantile(values[ROWS].mean(axis=1), (0.025, 0.975))
    assert low > plain[0]
    assert high > plain[1]


@settings(max_examples=15)
@given(st.lists(st.integers(-20, 20).map(float), min_size=8, max_size=8), st.integers(-9, 9), st.integers(1, 5))
def test_moving_and_stretching_values_moves_and_stretches_the_interval(values, by, times):
    if len(set(values)) == 1:
        return
    low, high = bca_interval(np.array(values), ROWS)
    moved = bca_interval(np.array(values) * times + by, ROWS)
    assert moved == pytest.approx((low * times + by, high * times + by))
    mirrored = bca_interval(-np.array(values), ROWS)
    assert mirrored == pytest.approx((-high, -low), abs=1e-6)


@pytest.mark.slow
def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """Twenty normal differences with mean 1: a 95 % interval misses in about 1 of 20 samples; BCa is a little short."""
    random = np.random.default_rng(5)
    rows = draw_rows(20, 11, draws=1000)
    held = 0
    for _ in range(300):
        low, high = bca_interval(random.normal(1.0, 2.0, 20), rows)
        held += low <= 1.0 <= high
    assert 0.88 <= held / 300 <= 0.98


def test_equal_seeds_draw_equal_rows():
    assert (draw_rows(6, 3) == draw_rows(6, 3)).all()
    assert not (draw_rows(6, 3) == draw_rows(6, 4)).all()
