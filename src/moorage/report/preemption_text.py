"""Preemption as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moorage.printable import one_line
from moorage.report.preemption_values import PreemptionReport
from moorage.report.style import paragraph

__all__ = ["preemption_lines"]


def preemption_lines(report: PreemptionReport, nodes: Sequence[str], *, wide: bool) -> Iterator[str]:
    """Yield what preemption would do."""
    del nodes, wide
    yield paragraph(one_line(report.summary), indent="  ")
