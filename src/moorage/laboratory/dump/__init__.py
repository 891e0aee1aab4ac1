"""Dumps of live clusters, and what is kept of a cluster between commands."""
