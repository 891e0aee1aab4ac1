"""Capacities of several dumps as a table by date."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.report.capacity_values import CapacityValues
from moorage.report.style import columns
from moorage.wording import some

__all__ = ["capacity_history"]


def capacity_history(found: Sequence[CapacityValues]) -> str:
    """Return a table with a row for each dump and template, the oldest first; dumps without a date keep their order."""
    rows = [
        [
            one.request.taken_at, some(one.request.files), " + ".join(f"{part.template}" for part in one.parts),
            str(one.instances), "" if one.upper_bound is None else str(one.upper_bound), _stopped(one),
        ]
        for one in found
    ]  # fmt: skip
    if all(row[0] for row in rows):
        rows.sort(key=lambda row: row[0])
    return columns(["TAKEN", "DUMP", "TEMPLATE", "FIT", "AT MOST", "STOPPED BY"], rows, right=(3, 4)) + "\n"


def _stopped(one: CapacityValues) -> str:
    if one.fail_type != "Unschedulable":
        return one.fail_type
    return ", ".join(dict.fromkeys(stop.resource or stop.plugin for stop in one.binding)) or "no node accepts it"
