"""How fast Moorage decides: seeded workloads, runs that check themselves, and comparisons of their results."""
