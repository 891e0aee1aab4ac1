"""Differential tests: the same to a real program and to ours, and what their answers differ in."""
