"""Arithmetic of rollouts: counts given as a number or a percentage, and rounding.

Source  apimachinery, pkg/util/intstr/intstr.go; kubernetes, pkg/controller/deployment/util/deployment_util.go
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

__all__ = ["Bounds", "bounds", "rounded", "scaled"]


def scaled(value: Any, total: int, *, up: bool) -> int:
    """Return a count, or a percentage of ``total`` rounded up or down; 0 for an invalid value."""
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdecimal():
        share = int(value[:-1]) * total / 100
        return math.ceil(share) if up else math.floor(share)
    return value if isinstance(value, int) else 0


def rounded(value: float) -> int:
    """Round to the nearest whole number, halves away from zero."""
    return int(value - 0.5) if value < 0 else int(value + 0.5)


class Bounds(NamedTuple):
    """How many pods a rollout may have above the desired number, and how many may be unavailable."""

    surge: int
    unavailable: int


def bounds(rolling: dict[str, Any], wanted: int) -> Bounds:
    """Return the bounds of a rolling update; where both are 0, one pod may be unavailable."""
    surge = scaled(rolling.get("maxSurge", 0), wanted, up=True)
    unavailable = scaled(rolling.get("maxUnavailable", 0), wanted, up=False)
    return Bounds(surge, unavailable or (0 if surge else 1))
