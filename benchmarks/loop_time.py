"""The speed of this machine under its load: the CPU time of a fixed computation, which figures are scaled by."""

from __future__ import annotations

from time import process_time

__all__ = ["loop_us"]


def loop_us() -> float:
    """Return the CPU microseconds of ``sum(range(1000))``, the best of some tries."""
    best = float("inf")
    for _ in range(20):
        began = process_time()
        sum(range(1000))
        best = min(best, process_time() - began)
    return best * 1e6
