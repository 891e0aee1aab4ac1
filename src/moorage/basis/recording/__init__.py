"""Logs of a cluster: every change of its objects, with snapshots between, from which any moment can be rebuilt."""
