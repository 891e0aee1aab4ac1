"""The commands that answer questions about a cluster, and simulate it."""
