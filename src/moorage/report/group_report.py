"""The outcome of pod groups in a run: as values, as a table, and as a part of the report document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moorage.report.style import PLAIN, Style, columns

__all__ = ["PodGroupOutcome", "group_data", "group_table"]

#: The plain table lists up to this many groups; with more, only those that are not scheduled.
_EVERY_GROUP = 100


@dataclass(frozen=True, slots=True)
class PodGroupOutcome:
    """A pod group at the end of a run.

    ``state``      Scheduled, Unschedulable, Error, Waiting (not tried; ``message`` says why) or Missing (it does not exist)
    ``min_count``  how many of its pods must be scheduled together; None for a basic group
    ``pods``       how many pods name the group; ``placed``: how many of these are on a node
    """

    namespace: str
    name: str
    state: str
    min_count: int | None
    pods: int
    placed: int
    message: str = ""


def group_table(groups: Sequence[PodGroupOutcome], *, wide: bool, style: Style = PLAIN) -> str:
    """Return the table of the groups; needs at least one."""
    shown = groups if wide or len(groups) <= _EVERY_GROUP else [group for group in groups if group.state != "Scheduled"]
    rows = [
        [
            group.namespace, group.name, group.state, str(group.placed), str(group.pods),
            "-" if group.min_count is None else str(group.min_count), group.message or "-",
        ]
        for group in shown
    ]  # fmt: skip
    table = columns(["NAMESPACE", "GROUP", "STATE", "PLACED", "PODS", "MIN", "WHY"], rows, right=(3, 4, 5), style=style)
    left = len(groups) - len(shown)
    return "\n".join(
        [style.bold("Pod groups:"), table, *([f"and {left} more, all scheduled (use -o wide for all)"] if left else [])]
    )


def group_data(groups: Sequence[PodGroupOutcome]) -> dict[str, Any]:
    """Return ``podGroups`` as plain data; an empty dict if there are none."""
    return {"podGroups": [_group(group) for group in groups]} if groups else {}


def _group(group: PodGroupOutcome) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "namespace": group.namespace,
        "name": group.name,
        "state": group.state,
        "minCount": group.min_count,
        "pods": group.pods,
        "placed": group.placed,
        "message": group.message or None,
    }
    return {key: value for key, value in shown.items() if value is not None}
