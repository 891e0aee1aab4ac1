"""The store of the tests of rules."""

from tests.stores import clock, nodes, pods, store

__all__ = ["clock", "nodes", "pods", "store"]
