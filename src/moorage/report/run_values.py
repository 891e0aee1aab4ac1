"""What is measured of one run, as comparisons and stored reports hold it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

__all__ = ["MeasuredRun", "UnplacedPod"]


class UnplacedPod(Struct, frozen=True):
    """A pod that stays pending: ``namespace/name``, its workload, why, and the plugins that refuse it."""

    pod: str
    workload: str = ""
    message: str = ""
    plugins: tuple[str, ...] = ()


class MeasuredRun(Struct, frozen=True):
    """One run. A metric that is infinite, such as the wait of a pod that stays pending, is ``math.inf``.

    ``placements``  the node of each pod that the run was to place, empty for those without one; None: not known
    ``speed``       decisions per second of the processor, which differ from run to run
    """

    seed: int
    release: str
    metrics: Mapping[str, float]
    pending: tuple[UnplacedPod, ...] = ()
    placements: Mapping[str, str] | None = None
    speed: float = 0.0
    notes: tuple[str, ...] = ()
