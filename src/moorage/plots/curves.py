"""Curves of several kinds with a band over the seeds: allocation or fragmentation against the load, for each policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from moorage.plots.drawing import COLOURS, PlotData, column_of, columns_of, new_figure, plain_axes

__all__ = ["plot_curves"]


def plot_curves(
    data: PlotData, x: str, y: str, by: str, *, title: str = "", xlabel: str = "", ylabel: str = "", span: bool = True
) -> Any:
    """Plot the mean of ``y`` at each ``x``, one curve for each value of ``by``; all other columns, such as seeds, are averaged.

    ``span``  shade from the least to the largest value

    Raises  InputError for a column that is not there
    """
    columns = columns_of(data)
    xs, ys, kinds = (column_of(columns, name) for name in (x, y, by))
    figure, axes = new_figure(title)
    for number, kind in enumerate(dict.fromkeys(kinds.tolist())):
        rows = kinds == kind
        places, where = np.unique(xs[rows], return_inverse=True)
        values = [ys[rows][where == at] for at in range(len(places))]
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(places, [one.mean() for one in values], color=colour, linewidth=1.4, label=str(kind))
        if span and any(len(one) > 1 for one in values):
            low, high = [one.min() for one in values], [one.max() for one in values]
            axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel=xlabel or x, ylabel=ylabel or y, xlim=(xs.min(), xs.max()))
    axes.legend(frameon=False, loc="best", title=by)
    plain_axes(axes)
    return figure
