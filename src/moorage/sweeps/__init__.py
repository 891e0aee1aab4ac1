"""Sweeps: one function run at every point of a grid, on many processes or machines, with stored results.

``moorage.sweep`` is the entry. ``grid``, ``store``, ``runner`` and ``summary`` know nothing of clusters; ``cluster_runs`` is
the function that simulates a cluster or a trace.
"""
