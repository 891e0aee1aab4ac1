"""Plots over simulated time, of a ``StateRecorder`` or any columns with ``time_s``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from moorage.errors import InputError
from moorage.interfaces.plots.drawing import COLOURS, Columns, PlotData, column_of, columns_of, new_figure, plain_axes

#: Unit, its length in seconds, and the shortest span in seconds for which it is used.
_UNITS: Final = (
    ("days", 86_400.0, 4 * 86_400.0),
    ("hours", 3600.0, 2 * 3600.0),
    ("minutes", 60.0, 120.0),
    ("seconds", 1.0, 0.0),
)
#: Unit → allowed distances of ticks, which divide the next larger unit.
_STEPS: Final = {
    "days": (1, 7, 28, 91, 364), "hours": (1, 2, 3, 6, 12, 24), "minutes": (1, 5, 10, 15, 30), "seconds": (1, 5, 10, 20, 30),
}  # fmt: skip
_MOST_TICKS: Final = 9


def plot_utilisation(data: PlotData, *, title: str = "Utilisation") -> Any:
    """Plot ``utilisation.RESOURCE``, in percent, for each resource in the columns.

    Raises  InputError without such columns
    """
    return _shares(data, "utilisation", title, "used")


def plot_fragmentation(data: PlotData, *, title: str = "Fragmentation") -> Any:
    """Plot ``fragmentation``, and ``fragmentation.NAME`` if there are any, in percent.

    Raises  InputError without such columns
    """
    return _shares(data, "fragmentation", title, "of what is free")


def plot_pending(data: PlotData, *, title: str = "Pending pods") -> Any:
    """Plot the number of pending pods.

    Raises  InputError without the column ``pending``
    """
    columns = columns_of(data)
    times, unit = _times(columns)
    pending = column_of(columns, "pending")
    figure, axes = new_figure(title)
    axes.fill_between(times, pending, step="post", color=COLOURS[1], alpha=0.25, linewidth=0)
    axes.step(times, pending, where="post", color=COLOURS[1], linewidth=1.2)
    axes.set(ylabel="pods", ylim=(0, max(1.0, 1.05 * float(pending.max()))))
    _time_axis(axes, times, unit)
    plain_axes(axes)
    return figure


def _shares(data: PlotData, kind: str, title: str, what: str) -> Any:
    columns = columns_of(data)
    times, unit = _times(columns)
    names = [name for name in columns if name == kind or name.startswith(f"{kind}.")]
    if not names:
        raise InputError(f"no column {kind} or {kind}.NAME; there are {', '.join(columns)}")
    figure, axes = new_figure(title)
    for number, name in enumerate(names):
        label = name.partition(".")[2] or kind
        axes.plot(times, 100 * columns[name], color=COLOURS[number % len(COLOURS)], linewidth=1.4, label=label)
    top = 100 * max(float(columns[name].max()) for name in names)
    axes.set(ylabel=f"% {what}", ylim=(0, 100 if top > 50 else max(1.1 * top, 1.0)))
    _time_axis(axes, times, unit)
    if len(names) > 1:
        axes.legend(frameon=False, ncols=len(names), loc="best")
    plain_axes(axes)
    return figure


def _time_axis(axes: Any, times: npt.NDArray[np.float64], unit: str) -> None:
    first, last = float(times[0]), float(times[-1])
    step = next((step for step in _STEPS[unit] if (last - first) / step < _MOST_TICKS), None)
    if step is not None:
        axes.set_xticks(np.arange(np.ceil(first / step) * step, last + 1e-9, step))
    axes.set(xlabel=unit, xlim=(first, last) if last > first else None)


def _times(columns: Columns) -> tuple[npt.NDArray[np.float64], str]:
    """Return the times in the unit that suits their span, and the unit."""
    times: npt.NDArray[np.float64] = column_of(columns, "time_s").astype(np.float64)
    span = float(times[-1] - times[0])
    unit, seconds = next((unit, seconds) for unit, seconds, least in _UNITS if span >= least)
    return times / seconds, unit
