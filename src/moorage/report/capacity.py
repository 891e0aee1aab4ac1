"""``Capacity``: how many instances of a pod fit, and why the next one does not."""

from __future__ import annotations

from msgspec.structs import replace

from moorage.report.capacity_text import capacity_summary, capacity_text
from moorage.report.capacity_values import CapacityValues

__all__ = ["Capacity"]


class Capacity(CapacityValues, frozen=True):
    """The answer of ``moorage capacity``; see ``CapacityValues``."""

    def summed_up(self) -> Capacity:
        """Return the answer with its summary set."""
        return replace(self, summary=capacity_summary(self))

    def _text(self, *, wide: bool) -> str:
        return capacity_text(self, wide=wide)
