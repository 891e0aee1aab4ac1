"""A scheduler as a process: the engine's loop, wired to a real API server, and what it answers to probes."""
