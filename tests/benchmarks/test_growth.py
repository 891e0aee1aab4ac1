"""The growth benchmark finds exponents, and the axes that are cheap to measure stay within their limits."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from benchmarks.command import main
from benchmarks.growth import exponent, measure_growth
from benchmarks.growth_axes import AXES, Axis

#: Axes on which a step costs little; the others are measured by hand.
CHEAP = ["heartbeats", "gang size", "parked pods, node relabelled"]


@pytest.mark.parametrize(("costs", "expected"), [((5, 5, 5), 0.0), ((1, 2, 4), 1.0), ((1, 4, 16), 2.0)])
def test_the_exponent_is_the_slope(costs, expected):
    assert exponent((10, 20, 40), costs) == pytest.approx(expected)


def test_costs_that_are_noise_do_not_grow():
    assert exponent((10, 20, 40), (1, 4, 16), noise=20) == 0.0


def test_a_quadratic_step_is_beyond_the_limit(monkeypatch):
    def make(size):
        return lambda: sum(1 for _ in range(size) for _ in range(size))

    monkeypatch.setitem(AXES, "square", Axis(make, (200, 400, 800), (), lambda size: 1))
    (figures,) = measure_growth(["square"], small=True)
    assert figures["exponent"] > 1.5
    assert not figures["within"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEAP)
def test_costs_grow_within_the_limit(name):
    found = list(measure_growth([name], small=True))
    if not found[0]["within"]:  # measured again, because a busy machine may have interrupted one size
        found += measure_growth([name], small=True, times=8)
    assert any(figures["within"] for figures in found), found


def test_the_command_prints_costs_and_fails_beyond_a_limit(monkeypatch):
    figures = {"sizes": [1, 2, 4], "us_each": [1, 2, 4], "loop_us": [9, 9, 9], "exponent": 2.0, "limit": 1.2, "within": False}
    monkeypatch.setattr("benchmarks.command._growth_in_new_process", lambda *given: [figures])
    result = CliRunner().invoke(main, ["growth", "nodes"])
    assert result.exit_code == 1
    assert "TOO HIGH" in result.output
    assert "unknown axis" in CliRunner().invoke(main, ["growth", "no-such"]).output
