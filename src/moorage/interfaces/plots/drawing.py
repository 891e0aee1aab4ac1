"""The style of plots, and the data that they take: a mapping of columns, or an object with ``columns()``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from moorage.basis.packages import how_to_add
from moorage.errors import InputError

Columns = Mapping[str, npt.NDArray[Any]]
#: Colours that colour-blind people can tell apart (Okabe and Ito).
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")
_WIDTH, _HEIGHT = 6.4, 3.6


class HasColumns(Protocol):
    """A frame, a recorder or the result of a sweep."""

    def columns(self) -> Columns: ...


PlotData = Columns | HasColumns


def columns_of(data: PlotData) -> dict[str, npt.NDArray[Any]]:
    """Return the columns as arrays.

    Raises  InputError if there is no row
    """
    found = data if isinstance(data, Mapping) else data.columns()
    columns = {name: np.asarray(column) for name, column in found.items()}
    if not columns or not len(next(iter(columns.values()))):
        raise InputError("nothing to plot: the data has no rows")
    return columns


def column_of(columns: Columns, name: str) -> npt.NDArray[Any]:
    """Return a column.

    Raises  InputError if it is not there
    """
    if name not in columns:
        raise InputError(f"{name}: no such column; there are {', '.join(columns)}")
    return columns[name]


def new_figure(title: str = "", *, width: float = _WIDTH, height: float = _HEIGHT) -> tuple[Any, Any]:
    """Return a figure with one pair of axes.

    Raises  InputError if matplotlib is not installed
    """
    try:
        figures = importlib.import_module("matplotlib.figure")
    except ImportError:
        raise InputError(f"plots need matplotlib: {how_to_add('matplotlib')}") from None
    figure = _same_bytes(figures.Figure)(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    if title:
        axes.set_title(title, loc="left", fontsize="medium")
    return figure, axes


#: What a file says beside the picture, by its ending: nothing that differs from run to run.
_METADATA: Final = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}


@cache
def _same_bytes(figure: type[Any]) -> type[Any]:
    """Return a class of figures that save the same picture as the same bytes: without the date, with ids of their content."""

    class SameBytesFigure(figure):  # type: ignore[misc]
        def savefig(self, fname: Any, **given: Any) -> None:
            """Save the figure; see ``matplotlib.figure.Figure.savefig``."""
            matplotlib = importlib.import_module("matplotlib")
            ending = given.get("format") or str(fname).rpartition(".")[2]
            with matplotlib.rc_context({"svg.hashsalt": "moorage"}):
                super().savefig(fname, **{"metadata": _METADATA.get(ending), **given})

    return SameBytesFigure


def plain_axes(axes: Any) -> None:
    """Remove the top and right borders, and draw a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


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
