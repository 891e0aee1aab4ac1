"""How do costs grow? Measure one size after another along each axis, and fit the exponent.

Each axis builds a cluster of a given size and returns a step. A step returns the same amount of work each time that it is
called, except for what the axis varies. The cost is CPU time, the best of several calls; ``loop_us`` is the CPU time of
``sum(range(1000))`` beside it: the speed of the machine under its load. An exponent of 1 means that the cost doubles with the
size, 0 that the size does not matter. An axis fails if its exponent exceeds its limit.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from math import log
from time import process_time
from typing import Any, Final, NamedTuple

from benchmarks.growth_axes import AXES, Step
from benchmarks.loop_time import loop_us

__all__ = ["measure_growth"]

#: Calls before the measurement, because the first run of code is slower.
_WARM_UP: Final = 1
#: Costs below this are noise: an axis that stays below it at every size has an exponent of 0.
_NOISE_US: Final = 50.0


class Cost(NamedTuple):
    """The CPU microseconds of one step at one size, and the machine's speed beside it."""

    us: float
    loop_us: float


def measure_growth(names: Sequence[str] = (), *, small: bool = False, times: int = 3) -> Iterator[dict[str, Any]]:
    """Yield for each axis its costs at three sizes, the exponent, and whether it is within the limit."""
    for name in names or tuple(AXES):
        axis = AXES[name]
        sizes = axis.small if small else axis.large
        costs = [_cost(axis.make, size, times) for size in sizes]
        found = exponent(sizes, [cost.us / cost.loop_us for cost in costs], _NOISE_US / costs[0].loop_us)
        yield {
            "axis": name,
            "sizes": list(sizes),
            "us": [round(cost.us, 1) for cost in costs],
            "us_each": [round(cost.us / axis.each(size), 1) for cost, size in zip(costs, sizes, strict=True)],
            "loop_us": [round(cost.loop_us, 1) for cost in costs],
            "exponent": round(found, 2),
            "limit": axis.limit,
            "within": found <= axis.limit,
        }


def exponent(sizes: Sequence[int], costs: Sequence[float], noise: float = 0.0) -> float:
    """Return the slope of the least-squares line through the logarithms of sizes and costs; 0 if all costs are noise."""
    if max(costs) <= noise:
        return 0.0
    points = [(log(size), log(max(cost, noise / 4, 1e-9))) for size, cost in zip(sizes, costs, strict=True)]
    mean_x, mean_y = (sum(axis) / len(points) for axis in zip(*points, strict=True))
    across = sum((x - mean_x) ** 2 for x, _ in points)
    slope: float = sum((x - mean_x) * (y - mean_y) for x, y in points) / across
    return slope


def _cost(make: Callable[[int], Step], size: int, times: int) -> Cost:
    step = make(size)
    gc.disable()
    try:
        for _ in range(_WARM_UP):
            step()()
        found = [_timed(step) for _ in range(times)]
    finally:
        gc.enable()
    return min(found, key=lambda cost: cost.us / cost.loop_us)


def _timed(step: Step) -> Cost:
    work = step()
    before = loop_us()
    began = process_time()
    work()
    took = process_time() - began
    return Cost(took * 1e6, (before + loop_us()) / 2)
