"""Simulated nodes and their pods, and the controllers for lost and tainted nodes."""
