"""Plots of a sweep: a metric at each point with its interval, and decision maps over two axes of the grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from moorage.errors import InputError
from moorage.interfaces.plots.drawing import COLOURS, PlotData, column_of, columns_of, new_figure, plain_axes
from moorage.laboratory.sweeps.grid import SEED
from moorage.laboratory.sweeps.results import MetricSummary, SweepResult
from moorage.report.gates import amount_text, kind_of, title_of

#: Maximum number of points on a plot, each of which has a label.
_MOST_POINTS = 40


def plot_sweep(found: SweepResult, metric: str, *, title: str = "") -> Any:
    """Plot the mean of a metric at every point of a sweep, with its 95 % interval, or with the range of its seeds.

    Raises  InputError for a metric that no run has or that is finite in none, and for more than 40 points
    """
    axes_of_grid = [axis.name for axis in found.grid.axes if axis.name != SEED and axis.varies]
    groups = [(group.labels, group.metrics[metric]) for group in found.groups([metric]) if metric in group.metrics]
    finite = [(labels, one) for labels, one in groups if np.isfinite([one.mean, one.least, one.most]).all()]
    if not finite:
        raise InputError(f"{metric}: nothing to plot, no point has a finite value")
    if len(finite) > _MOST_POINTS:
        raise InputError(f"{len(finite)} points are too many for one plot; select some, or use plot_decision_map")
    figure, axes = new_figure(title or title_of(metric), height=0.9 + 0.32 * len(finite))
    scale = 100.0 if kind_of(metric).unit == "share" else 1.0
    first = axes_of_grid[0] if axes_of_grid else None
    kinds = list(dict.fromkeys(labels[first] for labels, _ in finite)) if first else []
    for place, (labels, one) in enumerate(finite):
        colour = COLOURS[kinds.index(labels[first]) % len(COLOURS)] if first else COLOURS[0]
        low, high = (scale * end for end in one.interval or (one.least, one.most))
        axes.plot([low, high], [place, place], color=colour, linewidth=2.2, alpha=0.5, solid_capstyle="round")
        axes.plot([scale * one.mean], [place], "o", color=colour, markersize=5)
    points = [[f"{name}={labels[name]}" if "." in name else str(labels[name]) for name in axes_of_grid] for labels, _ in finite]
    axes.set_yticks(range(len(finite)), [", ".join(one) or "all" for one in points])
    axes.set(ylim=(len(finite) - 0.5, -0.5), xlabel=_unit(metric, [one for _, one in finite]))
    plain_axes(axes)
    axes.grid(visible=False, axis="y")
    return figure


def _unit(metric: str, held: list[MetricSummary]) -> str:
    unit = {"share": "%", "seconds": "seconds"}.get(kind_of(metric).unit, title_of(metric))
    certain = all(one.interval or one.least == one.most for one in held)
    return f"{unit} (mean and {'95 % interval' if certain else 'range of the seeds'})"


def plot_decision_map(
    data: PlotData, x: str, y: str, metric: str, *, best: str = "", least: bool = True, title: str = ""
) -> Any:
    """Plot a map over two columns: the mean of a metric in each cell, or with ``best`` which value of that column is best.

    ``best``   a column such as ``config`` or ``policy``: a cell has the colour of its winner and the winner's mean
    ``least``  the least mean wins; otherwise the largest

    Raises  InputError for a column that is not there
    """
    columns = columns_of(data)
    xs, ys, values = (column_of(columns, name) for name in (x, y, metric))
    across, down = (list(dict.fromkeys(one.tolist())) for one in (xs, ys))
    kinds = column_of(columns, best) if best else np.full(len(values), metric, dtype=object)
    names = list(dict.fromkeys(kinds.tolist()))
    means = np.full((len(names), len(down), len(across)), np.nan)
    for k, name in enumerate(names):
        for row, low in enumerate(down):
            for column, side in enumerate(across):
                cell = values[(kinds == name) & (ys == low) & (xs == side)]
                means[k, row, column] = cell.mean() if len(cell) else np.nan
    figure, axes = new_figure(
        title or (f"least {metric}" if best and least else f"most {metric}" if best else title_of(metric))
    )
    if best:
        _winners(axes, means, names, least)
    else:
        image = axes.imshow(means[0], cmap="cividis", aspect="auto")
        figure.colorbar(image, ax=axes, label=metric)
    _cells(axes, means, metric, least if best else None)
    for edges, size in ((axes.axvline, len(across)), (axes.axhline, len(down))):
        for at in range(1, size):
            edges(at - 0.5, color="white", linewidth=1.5)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks(range(len(across)), [str(one) for one in across])
    axes.set_yticks(range(len(down)), [str(one) for one in down])
    axes.set(xlabel=x, ylabel=y)
    return figure


def _winners(axes: Any, means: Any, names: list[Any], least: bool) -> None:
    from matplotlib.colors import ListedColormap  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from matplotlib.patches import Patch  # type: ignore[import-not-found,import-untyped,unused-ignore]

    colours = [COLOURS[number % len(COLOURS)] for number in range(len(names))]
    axes.imshow(
        _winner(means, least), cmap=ListedColormap(colours), vmin=-0.5, vmax=len(names) - 0.5, aspect="auto", alpha=0.55
    )
    handles = [Patch(color=colour, alpha=0.55, label=str(name)) for colour, name in zip(colours, names, strict=True)]
    axes.legend(handles=handles, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))


def _winner(means: Any, least: bool) -> Any:
    worst = np.inf if least else -np.inf
    filled = np.where(np.isnan(means), worst, means)
    return filled.argmin(axis=0) if least else filled.argmax(axis=0)


def _cells(axes: Any, means: Any, metric: str, least: bool | None) -> None:
    """Write the value into each cell."""
    chosen = means[0] if least is None else np.take_along_axis(means, _winner(means, least)[None], axis=0)[0]
    middle = np.nanmean(chosen) if np.isfinite(chosen).any() else 0.0
    for (row, column), value in np.ndenumerate(chosen):
        if not np.isnan(value):
            colour = "black" if least is not None or value > middle else "white"
            text = amount_text(metric, float(value))
            axes.text(column, row, text, ha="center", va="center", color=colour, fontsize="medium")
