"""The result of a count by group of nodes: instances, free amounts, and why the next instance does not fit."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from moorage.api.core import Node
from moorage.laboratory.capacity_bound import FIT, Room
from moorage.laboratory.node_groups import groups_by_node
from moorage.laboratory.refusals import phrase
from moorage.laboratory.verdicts import EveryVerdict
from moorage.report.capacity_values import CapacityGroup, StopReason
from moorage.state.columns import IntArray

__all__ = ["binding_of", "exhausted_of", "groups_of", "stranded_of"]

#: Resource → the free amount on each row.
Free: TypeAlias = Mapping[str, IntArray]
_INSUFFICIENT = "Insufficient "
_TOO_MANY = "Too many pods"


def groups_of(
    nodes: Sequence[Node],
    room: Room,
    after: Free,
    per_node: Mapping[str, int],
    last: EveryVerdict | None,
) -> Iterator[CapacityGroup]:
    """Yield the groups of nodes, those that take instances first. Other nodes are grouped by the plugins that refuse them.

    ``room`` is the room for the first instance, ``after`` the free amounts now, and ``last`` are the verdicts for the instance
    that found no node.
    """
    first = room.judged
    group = groups_by_node(nodes)
    rows: dict[Hashable, list[int]] = {}
    for row, node in enumerate(nodes):
        takes = bool(room.open_rows[row]) or node.name in per_node
        why: Hashable = () if takes else tuple((status.plugin, status.reasons) for status in first.statuses(row))
        rows.setdefault((not takes, group[node.name], why), []).append(row)
    found = [_group(str(key[1]), members, nodes, after, per_node, first if key[0] else last, eligible=not key[0])
             for key, members in rows.items() if isinstance(key, tuple)]  # fmt: skip
    yield from sorted(found, key=lambda one: (not one.eligible, -one.instances))


def _group(
    name: str,
    rows: list[int],
    nodes: Sequence[Node],
    after: Free,
    per_node: Mapping[str, int],
    judged: EveryVerdict | None,
    *,
    eligible: bool,
) -> CapacityGroup:
    each = sorted((per_node.get(nodes[row].name, 0) for row in rows), reverse=True)
    left = {resource: (int(free[rows].min()), int(free[rows].max())) for resource, free in after.items()}
    stops = () if judged is None else tuple(_stops(judged, rows))
    return CapacityGroup(name, tuple(nodes[row].name for row in rows), sum(each), tuple(each), left, stops, eligible)


def binding_of(room: Room, last: EveryVerdict | None) -> list[StopReason]:
    """Return why nodes that accepted the first instance refuse the next one, the most frequent reason first."""
    if last is None:
        return []
    rows = np.flatnonzero(room.open_rows & (room.per_row > 0)).tolist()
    return _stops(last, rows)


def _stops(judged: EveryVerdict, rows: Sequence[int]) -> list[StopReason]:
    """Return the reasons for which plugins refuse these rows, the most frequent first."""
    counts: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        for status in judged.statuses(row):
            for reason in status.reasons or ("",):
                counts.setdefault((status.plugin or "", reason), []).append(row)
    found = [
        StopReason(plugin, reason, len(held), _resource(plugin, reason), _detail(judged, plugin, held[0]))
        for (plugin, reason), held in counts.items()
    ]
    return sorted(found, key=lambda one: -one.nodes)


def _resource(plugin: str, reason: str) -> str:
    if plugin != FIT:
        return ""
    return "pods" if reason == _TOO_MANY else reason.removeprefix(_INSUFFICIENT)


def _detail(judged: EveryVerdict, plugin: str, row: int) -> str:
    if plugin == FIT:
        return ""
    for one in judged.refusing:
        if one.name == plugin:
            why: Any = judged.why(one, row)
            return "" if why is None else phrase(why)
    return ""


def exhausted_of(room: Room, after: Free, nodes: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    """Return, for each node that accepted the first instance, the resources that are too short for one more."""
    found: dict[str, tuple[str, ...]] = {}
    for row in np.flatnonzero(room.open_rows & (room.per_row > 0)).tolist():
        short = tuple(name for name, need in room.needs.items() if need and after[name][row] < need)
        if short:
            found[nodes[row].name] = short
    return found


def stranded_of(room: Room, after: Free, per_node: Mapping[str, int], nodes: Sequence[Node]) -> dict[str, int]:
    """Return the free amount of each resource on the nodes that take instances."""
    takes = room.open_rows | np.array([node.name in per_node for node in nodes], dtype=bool)
    return {name: int(np.clip(free[takes], 0, None).sum()) for name, free in after.items() if name != "pods"}
