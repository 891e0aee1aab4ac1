"""Benchmarks of scheduling throughput: seeded workloads, self-checking runs, and comparisons of results."""
