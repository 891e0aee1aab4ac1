"""Run the scheduler as a process: wire the engine's loop to an API server, and serve health, metrics and debug pages."""
