"""Runs of a cluster beside each other: their inputs, measurements and differences, and policies."""
