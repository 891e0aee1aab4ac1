"""Run `moorage run`, `up` and `record` for long, and measure how their memory changes."""
