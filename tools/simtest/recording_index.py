"""Facts about a whole recording that are needed to judge single entries: decisions that led to a bind, and Reserve plugins."""

from __future__ import annotations

from collections.abc import Iterable

from tools.simtest.recording import AttemptRecord, Called, Entry, Lost, WriteRecord

__all__ = ["choices_that_came_true", "has", "holds", "reserving_plugins"]


def choices_that_came_true(entries: Iterable[Entry]) -> set[int]:
    """Return the indexes of the attempts that led to a bind."""
    last: dict[tuple[str, str, str], int] = {}
    bound: set[str] = set()
    found: set[int] = set()
    for number, entry in enumerate(entries):
        if isinstance(entry, AttemptRecord) and entry.node:
            last[entry.actor, entry.uid, entry.node] = number
        elif isinstance(entry, Lost):
            bound = {pod["metadata"]["uid"] for pod in entry.pods if pod["spec"].get("nodeName")}
        elif isinstance(entry, WriteRecord) and entry.kind == "Pod" and entry.uid not in bound:
            node = entry.document["spec"].get("nodeName")
            if node:
                bound.add(entry.uid)
                choice = last.get((entry.actor, entry.uid, node))
                if choice is not None:
                    found.add(choice)
    return found


def holds(calls: list[Called], plugins: tuple[str, ...]) -> bool:
    """Return whether every plugin has reserved for a pod, and none has undone or finished."""
    return tuple((one.plugin, one.point) for one in calls) == tuple((plugin, "reserve") for plugin in plugins)


def reserving_plugins(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the plugins that implement Reserve, in their order: those of the longest sequence of calls."""
    longest: tuple[str, ...] = ()
    row: list[str] = []
    last = ""
    for entry in entries:
        if isinstance(entry, Called):
            row = [*row, entry.plugin] if entry.point == "reserve" and entry.uid == last and entry.plugin not in row else []
            if entry.point == "reserve" and not row:
                row = [entry.plugin]
            last = entry.uid
            longest = max(longest, tuple(row), key=len)
    return longest


def has(calls: Iterable[Called], entry: Called) -> bool:
    """Return whether a plugin was already called at that point."""
    return any((one.point, one.plugin) == (entry.point, entry.plugin) for one in calls)
