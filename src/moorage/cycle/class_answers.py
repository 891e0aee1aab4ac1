"""What a pod class answers, and the plugins that it asks."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from moorage.cycle.node_verdicts import Steps
from moorage.cycle.row_judge import RowPlans
from moorage.framework.prefilter_state import PreFiltered
from moorage.state.columns import BoolArray

__all__ = ["Feasible", "Quick", "SplitSteps"]


class Quick(Struct, frozen=True):
    """A decision of the cached path: the row, how many rows were feasible, and PreFilter's state for later points.

    ``among``: how many rows PreFilter left for this pod; -1 if it left all.
    """

    row: int
    feasible: int
    found: PreFiltered
    among: int = -1


class Feasible(NamedTuple):
    """The rows that a pod could go to, as a mask that must not be changed, their number, and PreFilter's state.

    ``beside``: the plugins whose verdict on a row may depend on more than its node and the pods there; None if PreFilter left
    out nodes, which may too
    """

    rows: BoolArray
    number: int
    found: PreFiltered
    beside: frozenset[str] | None = None


class SplitSteps(NamedTuple):
    """The plugins of a class: ``asked`` run for each pod, the cached answers of ``on_rows`` depend on the pods of a row, and
    ``idle`` are PreFilter plugins with nothing to do. ``asks_none``: ``asked`` is empty."""

    asked: Steps
    on_rows: RowPlans
    idle: frozenset[str]
    asks_none: bool
