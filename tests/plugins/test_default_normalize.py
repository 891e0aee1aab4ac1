"""Test the scaling of raw scores to 0-100."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.plugins.shared.default_normalize import default_normalize

# scores, reverse → normalised
CASES = {
    "in proportion": ([1, 2, 3, 4], False, [25, 50, 75, 100]),
    "rounded down": ([1, 2, 3], False, [33, 66, 100]),
    "reversed after rounding": ([1, 2, 3], True, [67, 34, 0]),
    "all zero": ([0, 0], False, [0, 0]),
    "all zero, reversed": ([0, 0], True, [100, 100]),
    "below zero, truncated towards zero": ([-1, 3], False, [-33, 100]),
    "nothing above zero": ([-5, 0], False, [-5, 0]),
    "nothing above zero, reversed": ([-5, 0], True, [100, 100]),
    "no rows": ([], False, []),
}


@pytest.mark.parametrize(("scores", "reverse", "expected"), CASES.values(), ids=CASES)
def test_normalizes(scores, reverse, expected):
    assert default_normalize(np.array(scores, dtype=np.int64), reverse).tolist() == expected


def test_another_maximum():
    assert default_normalize(np.array([1, 2], dtype=np.int64), highest=10).tolist() == [5, 10]


@given(st.lists(st.integers(0, 10**12), max_size=8), st.booleans())
def test_agrees_with_integer_arithmetic(scores, reverse):
    greatest = max(scores, default=0)
    plain = [100 * score // greatest if greatest else 0 for score in scores]
    given_array = np.array(scores, dtype=np.int64)
    assert default_normalize(given_array, reverse).tolist() == [100 - score if reverse else score for score in plain]
    assert given_array.tolist() == scores
