"""Sweeps: one function run at every point of a grid, on many processes or machines, with stored results.

``moorage.sweep`` is the entry point. ``grid``, ``store``, ``runner`` and ``summary`` do not depend on clusters;
``cluster_grid`` has the function that simulates a cluster or a trace.
"""
