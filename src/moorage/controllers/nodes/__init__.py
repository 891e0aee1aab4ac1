"""Nodes that are pretended, the pods on them, and what becomes of both when a node is lost or tainted."""
