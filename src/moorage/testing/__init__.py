"""Test helpers for users: object builders, plugin checks, a cluster in memory and virtual time."""
