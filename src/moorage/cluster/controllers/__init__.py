"""The controllers of an embedded cluster and its simulated nodes: they turn a deployment into running pods without machines.

The ``manager`` follows the store's watches, keeps the work queue, and executes the steps that controllers propose: those of
``rules.workloads`` and ``rules.volumes``, and those here that only a running cluster has (nodes, garbage collection, scaling).
Every controller can be tested by calling it, in virtual time.
"""
