"""The measurement of memory over time: slopes, and the table."""

import math

import pytest

from tools.soak.__main__ import Measured, slope, table

MINUTES = [0.0, 5.0, 10.0, 15.0, 20.0]
SLOPES = {
    "flat": ([90.0, 95.0, 96.0, 96.0, 96.0], 10.0, 0.0),
    "growing by 9 MB a minute": ([90.0, 135.0, 180.0, 225.0, 270.0], 10.0, 540.0),
    "growing at the start only": ([1.0, 50.0, 60.0, 60.0, 60.0], 10.0, 0.0),
    "giving back": ([90.0, 90.0, 90.0, 89.0, 88.0], 10.0, -12.0),
}


@pytest.mark.parametrize(("memory", "since", "expected"), SLOPES.values(), ids=SLOPES)
def test_the_slope_is_that_after_the_start(memory, since, expected):
    assert slope(MINUTES, memory, since) == pytest.approx(expected, abs=1e-6)


def test_one_value_has_no_slope():
    assert math.isnan(slope(MINUTES, [1.0] * 5, 20.0))


def test_the_table_has_a_row_for_each_process(monkeypatch):
    monkeypatch.setattr(Measured, "cpu_s", 1.25)
    head, rule, row = table([Measured("run", None, MINUTES, [90.0, 95.0, 96.0, 96.0, 96.5])], 10.0)
    assert head.count("|") == rule.count("|") == row.count("|")
    assert row == "| run | 90.0 | 96.0 | 96.0 | 96.5 | +3.00 | 1.2 |"
