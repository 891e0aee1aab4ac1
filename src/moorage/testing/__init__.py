"""Test helpers for users: object builders, plugin checks, and answers to recorded scenarios."""
