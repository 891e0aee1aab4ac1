"""Numbers of a rollout: shares of a total, given as a count or in percent, and how a change of size is spread.

Source  apimachinery, pkg/util/intstr/intstr.go; kubernetes, pkg/controller/deployment/util/deployment_util.go
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

__all__ = ["Bounds", "bounds", "rounded", "scaled"]


def scaled(value: Any, total: int, *, up: bool) -> int:
    """Return a count, or a percentage of ``total`` rounded up or down; 0 for what is neither."""
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdecimal():
        share = int(value[:-1]) * total / 100
        return math.ceil(share) if up else math.floor(share)
    return value if isinstance(value, int) else 0


def rounded(value: float) -> int:
    """Round to the nearest whole number, halves away from zero."""
    return int(value - 0.5) if value < 0 else int(value + 0.5)


class Bounds(NamedTuple):
    """How far a rollout may go above and below the number that is wanted."""

    surge: int
    unavailable: int


def bounds(rolling: dict[str, Any], wanted: int) -> Bounds:
    """Return the bounds of a rolling update; where both come to nothing, one pod may be missing."""
    surge = scaled(rolling.get("maxSurge", 0), wanted, up=True)
    unavailable = scaled(rolling.get("maxUnavailable", 0), wanted, up=False)
    return Bounds(surge, unavailable or (0 if surge else 1))
