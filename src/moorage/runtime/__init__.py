"""The scheduler on a living cluster: the loop that drives the engine, and who of several replicas may."""
