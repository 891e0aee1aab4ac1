"""Plots of results, with matplotlib (the extra ``plot``): over time, curves, and the results of a sweep.

Each function takes columns and returns a ``matplotlib.figure.Figure`` that is not shown:
``figure.savefig("run.svg")``.
"""

from moorage.interfaces.plots.drawing import plot_curves
from moorage.interfaces.plots.over_time import plot_fragmentation, plot_pending, plot_utilisation
from moorage.interfaces.plots.sweep_plots import plot_decision_map, plot_sweep

__all__ = ["plot_curves", "plot_decision_map", "plot_fragmentation", "plot_pending", "plot_sweep", "plot_utilisation"]
