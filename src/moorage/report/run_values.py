"""The measurements of one run, in the form of comparisons and stored reports."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from moorage.report.gates import GateResult


class UnplacedPod(Struct, frozen=True):
    """A pod that stays pending: ``namespace/name``, its workload, why, and the plugins that refuse it."""

    pod: str
    workload: str = ""
    message: str = ""
    plugins: tuple[str, ...] = ()


class MeasuredRun(Struct, frozen=True):
    """One run. A metric that is infinite, such as the wait of a pod that stays pending, is ``math.inf``.

    ``placements``  the node of each pod that the run was to place, empty for those without one; None: not known
    ``speed``       decisions per CPU second, which differ from run to run
    """

    seed: int
    release: str
    metrics: Mapping[str, float]
    pending: tuple[UnplacedPod, ...] = ()
    placements: Mapping[str, str] | None = None
    speed: float = 0.0
    notes: tuple[str, ...] = ()


class RunMeasures(Struct, frozen=True):
    """The measurements of a simulation, and its comparison with an earlier one.

    ``digest``       of the input; empty for a trace
    ``gates``        the results of the requested gates
    ``new_pending``  pods that were not pending before
    ``against``      the run that this one was compared with; empty: none
    """

    digest: str
    run: MeasuredRun
    gates: tuple[GateResult, ...] = ()
    new_pending: tuple[UnplacedPod, ...] = ()
    against: str = ""


def json_number(value: float | None, *, exactly: bool = False) -> float | int | None:
    """Return a number for JSON: whole numbers as such, None for what is infinite or undefined; else nine decimals, or all."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if value == int(value) else value if exactly else round(value, 9)
