"""The cluster at a time in the past: the pods that were there then, where they were then, on the nodes as they are now."""

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
    """Return the rows of a moment, in seconds since 1970. Pods that are gone count until they went away."""
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
    """Return a pod as it was; why it was pending is not known of pods that have a node now."""
    if row.node is None:
        return row
    if (row.bound_at or row.arrived) <= at:
        return row if row.state == BOUND else msgspec.structs.replace(row, state=BOUND)
    return msgspec.structs.replace(row, node=None, state=_PENDING, cause="", attempts=0)
