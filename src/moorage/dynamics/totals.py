"""Counts and waiting times of a simulation so far."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from msgspec import Struct

__all__ = ["SimulationTotals", "wait_figures"]


class SimulationTotals(Struct, frozen=True):
    """Counts since the simulation began, and percentiles of the waits from arrival to placement.

    ``arrived``    pods that came without a node, replacements included
    ``placed``     pods that got a node
    ``finished``   pods that ran for their whole lifetime
    ``preempted``  pods that were evicted for others
    ``deleted``    pods that were evicted, lost their node, or were deleted
    ``pending``    pods that are pending now
    ``attempts``   decisions of the scheduler
    """

    now_s: float
    arrived: int
    placed: int
    finished: int
    preempted: int
    deleted: int
    pending: int
    attempts: int
    wait_p50_s: float = 0.0
    wait_p90_s: float = 0.0
    wait_p99_s: float = 0.0
    wait_mean_s: float = 0.0

    def to_dict(self) -> Mapping[str, float]:
        """Return all figures by name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def wait_figures(waits: npt.NDArray[np.float64]) -> dict[str, float]:
    """Return percentiles (by nearest rank) and the mean of waits, in seconds, by name."""
    if not len(waits):
        return {}
    p50, p90, p99 = np.percentile(waits, (50, 90, 99), method="inverted_cdf").tolist()
    return {"wait_p50_s": p50, "wait_p90_s": p90, "wait_p99_s": p99, "wait_mean_s": float(waits.mean())}
