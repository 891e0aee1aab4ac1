"""The scheduler on a live cluster: the loop that drives the engine, and leader election between replicas."""
