"""Timestamps of a simulation in the API's format."""

from __future__ import annotations

__all__ = ["timestamp"]


def timestamp(seconds: float) -> str:
    """Return simulated time in the API's format: seconds since the run began, counted from the start of Unix time."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"1970-01-{1 + days % 28:02}T{hour:02}:{minute:02}:{second:02}Z"
