"""The cluster at a time in the past: the pods that existed then, on their nodes of that time. Nodes are those of today."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from moorage.web.mirror import GonePod
from moorage.web.rows import BOUND, PodRow
from moorage.web.snapshot import SnapshotRows

__all__ = ["rows_at"]

_PENDING = "pending"


def rows_at(rows: SnapshotRows, gone: Sequence[GonePod], at: float) -> SnapshotRows:
    """Return the rows at a time ``at``, in seconds since 1970, including pods that ended or were deleted later."""
    pods = {row.key: row for row in _pods_at(rows.pods.values(), gone, at)}
    used: dict[str, Counter[str]] = {}
    causes: Counter[tuple[str, str]] = Counter()
    for row in pods.values():
        if row.node is None:
            causes[row.key.partition("/")[0], row.cause] += 1
        else:
            held = used.setdefault(row.node, Counter())
            held.update(row.requests)
            held["pods"] += 1
    return SnapshotRows(rows.nodes, pods, causes, rows.groups, used, rows.shapes)


def _pods_at(live: Iterable[PodRow], gone: Sequence[GonePod], at: float) -> Iterator[PodRow]:
    for row in [*(one.row for one in gone if one.at > at), *live]:
        if row.arrived <= at:
            yield _pod_at(row, at)


def _pod_at(row: PodRow, at: float) -> PodRow:
    """Return the row of a pod at a time. The cause of its wait is only known if it is still pending."""
    if row.node is None:
        return row
    if (row.bound_at or row.arrived) <= at:
        return row if row.state == BOUND else msgspec.structs.replace(row, state=BOUND)
    return msgspec.structs.replace(row, node=None, state=_PENDING, cause="", attempts=0)
