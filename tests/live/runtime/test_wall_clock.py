"""The time of day, against the standard library's own words for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from moorage.live.runtime.ports import Wall

SECOND = 1_000_000_000


@given(st.lists(st.integers(0, 4_000_000_000 * SECOND), min_size=1, max_size=5), st.integers(-SECOND, SECOND))
def test_times_are_formatted_as_by_the_standard_library(moments, step):
    near = [max(0, moment + step) for moment in moments]  # the same second, or the one beside it
    told = iter([one for pair in zip(moments, near, strict=True) for one in pair])
    wall = Wall(lambda: next(told))
    for moment in (one for pair in zip(moments, near, strict=True) for one in pair):
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        wanted = epoch + timedelta(seconds=moment // SECOND, microseconds=moment % SECOND // 1000)
        assert wall() == wanted.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
