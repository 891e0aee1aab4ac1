"""Plots: what is drawn is what is in the columns, and what is missing is named."""

from __future__ import annotations

import io
import time

import numpy as np
import pytest

from moorage.errors import InputError
from moorage.interfaces.plots import (
    plot_curves,
    plot_decision_map,
    plot_fragmentation,
    plot_pending,
    plot_sweep,
    plot_utilisation,
)
from moorage.laboratory.frames import ColumnFrame
from moorage.laboratory.sweeps.grid import SweepGrid, axis_of
from moorage.laboratory.sweeps.jobs import StoredRun
from moorage.laboratory.sweeps.results import SweepResult

pytestmark = pytest.mark.slow
HOURS = {
    "time_s": np.arange(5) * 3600.0,
    "utilisation.cpu": np.array([0.0, 0.5, 0.75, 0.5, 0.25]),
    "utilisation.memory": np.array([0.0, 0.25, 0.25, 0.5, 0.25]),
    "pending": np.array([0.0, 3.0, 1.0, 0.0, 0.0]),
    "fragmentation": np.array([0.0, 0.01, 0.02, 0.01, 0.0]),
}


def drawn(figure):
    """Return the axes of a figure, after it was rendered."""
    figure.savefig(io.BytesIO(), format="svg")
    return figure.axes[0]


@pytest.mark.parametrize("data", [HOURS, ColumnFrame(HOURS)], ids=["a mapping", "a frame"])
def test_utilisation_in_percent_over_hours(data):
    axes = drawn(plot_utilisation(data))
    assert [line.get_label() for line in axes.lines] == ["cpu", "memory"]
    assert axes.lines[0].get_ydata().tolist() == [0, 50, 75, 50, 25]
    assert (axes.lines[0].get_xdata().tolist(), axes.get_xlabel()) == ([0, 1, 2, 3, 4], "hours")


def test_pending_and_fragmentation():
    assert drawn(plot_pending(HOURS)).lines[0].get_ydata().tolist() == [0, 3, 1, 0, 0]
    axes = drawn(plot_fragmentation({**HOURS, "time_s": np.arange(5.0)}))
    assert (axes.lines[0].get_ydata().tolist(), axes.get_xlabel()) == ([0, 1, 2, 1, 0], "seconds")


def test_curves_are_means_over_the_rest():
    axes = drawn(
        plot_curves(
            {"load": [1, 2, 1, 2, 1, 2], "frag": [4.0, 6, 8, 10, 1, 1], "policy": ["a"] * 4 + ["b"] * 2, "seed": [1] * 6},
            "load", "frag", "policy",
        )
    )  # fmt: skip
    assert [(line.get_label(), line.get_ydata().tolist()) for line in axes.lines] == [("a", [6, 8]), ("b", [1, 1])]


def a_sweep(values, metric="pending"):
    axes = (axis_of("config", ["a", "b"]), axis_of("seed", range(2)))
    runs = [
        StoredRun(f"{at}", {"config": "ab"[at // 2], "seed": at % 2}, {metric: value}) for at, value in enumerate(values)
    ]  # fmt: skip
    return SweepResult(SweepGrid(axes, "f"), tuple(runs))


def test_a_point_of_a_sweep_has_its_mean_and_its_interval():
    axes = drawn(plot_sweep(a_sweep([1.0, 3.0, 5.0, 5.0]), "pending"))
    lines = [line.get_xdata() for line in axes.lines]
    half = 12.706  # Student's factor for two values, whose error is 1
    assert [list(line) for line in lines] == [
        [pytest.approx(2 - half, abs=1e-3), pytest.approx(2 + half, abs=1e-3)],
        [2],
        [5, 5],
        [5],
    ]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_a_decision_map_names_winners():
    data = {
        "x": [1, 1, 2, 2, 1, 1, 2, 2], "y": [1, 2, 1, 2, 1, 2, 1, 2], "config": ["a"] * 4 + ["b"] * 4,
        "nodesUsed": [5.0, 9, 5, 9, 7, 7, 7, 7],
    }  # fmt: skip
    axes = drawn(plot_decision_map(data, "x", "y", "nodesUsed", best="config"))
    assert axes.images[0].get_array().tolist() == [[0, 0], [1, 1]]
    assert [text.get_text() for text in axes.texts] == ["5", "5", "7", "7"]
    plain = drawn(plot_decision_map({**data, "config": ["a"] * 8}, "x", "y", "nodesUsed"))
    assert plain.images[0].get_array().tolist() == [[6, 6], [8, 8]]


FAULTS = {
    "no rows": (lambda: plot_pending({"time_s": [], "pending": []}), "the data has no rows"),
    "no time": (lambda: plot_pending({"pending": [1]}), "time_s: no such column; there are pending"),
    "no shares": (lambda: plot_utilisation({"time_s": [1]}), "no column utilisation or utilisation.NAME"),
    "nothing finite": (lambda: plot_sweep(a_sweep([np.inf] * 4), "pending"), "no point has a finite value"),
    "another metric": (lambda: plot_sweep(a_sweep([1.0] * 4), "cost"), "cost: no run has this metric"),
}


@pytest.mark.parametrize(("plot", "message"), FAULTS.values(), ids=FAULTS)
def test_faults(plot, message):
    with pytest.raises(InputError, match=message):
        plot()


def test_the_extra_is_named_where_matplotlib_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install matplotlib"):
        plot_pending(HOURS)


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_equal_results_are_equal_pictures_byte_for_byte(tmp_path, ending):
    for name in ("one", "other"):
        plot_sweep(a_sweep([1.0, 3.0, 5.0, 5.0]), "pending").savefig(tmp_path / f"{name}.{ending}")
        time.sleep(0.01)
    first, second = ((tmp_path / f"{name}.{ending}").read_bytes() for name in ("one", "other"))
    assert first == second
    assert b"<dc:date>" not in first
    plot_sweep(a_sweep([1.0, 3.0, 5.0, 6.0]), "pending").savefig(tmp_path / f"third.{ending}")
    assert (tmp_path / f"third.{ending}").read_bytes() != first
