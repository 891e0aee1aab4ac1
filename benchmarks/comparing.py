"""Compare two result files: the ratio of their medians, and the spread of both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any

__all__ = ["compare"]

Results = Iterable[Mapping[str, Any]]


def compare(before: Results, after: Results) -> Iterator[str]:
    """Yield a line for each workload and size in both files."""
    first, second = _rates(before), _rates(after)
    yield f"{'workload':40} {'before':>12} {'after':>12} {'ratio':>7}   least-most before; after"
    for what in first:
        if what in second:
            old, new = first[what], second[what]
            a, b = median(old), median(new)
            spread = f"{min(old):.0f}-{max(old):.0f}; {min(new):.0f}-{max(new):.0f}"
            yield f"{what:40} {a:12.0f} {b:12.0f} {b / a:7.2f}   {spread}"


def _rates(results: Results) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {}
    for one in results:
        rates.setdefault(f"{one['workload']} {one['nodes']}/{one['init']}/{one['pods']}", []).append(one["pods_per_s"])
    return rates
