"""Simulated time in the API's format."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.simulator.pod_records import timestamp

DAY_S = 86_400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1970-01-01T00:00:00Z"),
        (59.9, "1970-01-01T00:00:59Z"),
        (28 * DAY_S - 1, "1970-01-28T23:59:59Z"),
        (28 * DAY_S, "1970-01-29T00:00:00Z"),
        (31 * DAY_S, "1970-02-01T00:00:00Z"),
        (365 * DAY_S, "1971-01-01T00:00:00Z"),
        (1e18, "9999-12-31T23:59:59Z"),
    ],
)
def test_days_go_on_after_a_month(seconds, text):
    assert timestamp(seconds) == text


@given(st.integers(0, 10**11), st.integers(0, 10**11))
def test_later_is_later(one, other):
    assert (timestamp(one) < timestamp(other)) == (one < other)
    assert datetime.fromisoformat(timestamp(one)).timestamp() == one
