"""The simulator: it reads a cluster's objects, expands workloads into pods, and runs the engine over them in virtual time."""
