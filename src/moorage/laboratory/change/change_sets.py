"""Sets of changes: combine them, compare their strength, and order them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from moorage.framework.changes import Change
from moorage.laboratory.change.change_text import describe
from moorage.laboratory.change.offers import ChangeSet

#: Numeric changes → the step that makes them one unit weaker.
_WEAKER: Final = {
    "request": 1, "max-skew": -1, "min-domains": 1, "allocatable": -1, "pods": -1, "priority": -1, "plugin-argument": -1,
}  # fmt: skip
#: Changes to a priority class, NAME=VALUE, which are alike but for their values.
_CLASSES: Final = frozenset(["priority-class", "create-class"])
#: Up to this many changes, every proper subset is tried.
MOST_SUBSETS: Final = 6
#: How many changes keep their field and their sort key. A search combines few changes in many ways.
_REMEMBERED: Final = 8192


def is_numeric(change: Change) -> bool:
    """Return True for a change of a number, which has a threshold."""
    return change.verb in _WEAKER and isinstance(change.new, int)


@lru_cache(maxsize=_REMEMBERED)
def field_of(change: Change) -> tuple[str, str, str]:
    """Return the field that a change sets; two changes of one set cannot set it to different values."""
    if change.verb in {"evict", "move", "wait", "surge", "scale"} and change.target.startswith("pod/"):
        return (change.target, "", "evict")
    if change.verb == "correct":
        return (change.target, f"{change.path} {change.old}", change.verb)
    named = change.path if change.new is not None or change.verb in _WEAKER or not change.old else f"{change.path} {change.old}"
    return (change.target, named, change.verb)


def does_more(one: Change, other: Change) -> bool:
    """Return whether the first of two numeric changes of one field is the stronger one."""
    assert isinstance(one.new, int)
    assert isinstance(other.new, int)
    return (one.new < other.new) if _WEAKER[one.verb] > 0 else (one.new > other.new)


def combined(*sets: Iterable[Change]) -> ChangeSet | None:
    """Return the changes of all sets, the strongest of each number; None if two contradict each other."""
    together = frozenset[Change]().union(*sets)
    if len(set(map(field_of, together))) == len(together):
        return together
    held: dict[tuple[str, str, str], Change] = {}
    for change in (change for some in sets for change in some):
        slot = field_of(change)
        before = held.get(slot)
        if before is None:
            held[slot] = change
        elif is_numeric(change):
            further = change if does_more(change, before) else before
            held[slot] = replace(further, old=before.old)
        elif change.verb in {"tolerate", "tolerate-own"}:
            held[(*slot[:2], f"{change.verb} {change.new}")] = change
        elif before.new != change.new:
            return None
    return frozenset(held.values())


def covers(stronger: ChangeSet, weaker: ChangeSet) -> bool:
    """Return whether one set has every change of another, or a stronger change of the same field."""
    missing = weaker - stronger
    if not all(map(is_numeric, missing)):
        return False
    held = {field_of(change): change for change in stronger} if missing else {}
    return all((other := held.get(field_of(change))) is not None and does_more(other, change) for change in missing)


def subsets(changes: ChangeSet) -> Iterator[ChangeSet]:
    """Yield the proper subsets of a small set except the empty one; for a large set, only those that lack one change."""
    if len(changes) < 2:
        return
    ordered = sorted(changes, key=describe)
    sizes = range(1, len(ordered)) if len(ordered) <= MOST_SUBSETS else (len(ordered) - 1,)
    for size in sizes:
        yield from map(frozenset, itertools.combinations(ordered, size))


def weakened(changes: ChangeSet) -> Iterator[ChangeSet]:
    """Yield the set with each numeric change one unit weaker, in the order of the changes' texts."""
    for change in sorted(filter(is_numeric, changes), key=_words_and_number):
        assert isinstance(change.new, int)
        weaker = replace(change, new=change.new + _WEAKER[change.verb])
        if weaker.new != change.old:
            yield (changes - {change}) | {weaker}


def sort_key(changes: ChangeSet) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Return the sort key of sets of one cost: fewer changes first, then by text, with numbers by value."""
    return len(changes), tuple(sorted(map(_words_and_number, changes)))


@lru_cache(maxsize=_REMEMBERED)
def _words_and_number(change: Change) -> tuple[str, int]:
    text = f"{change.owner} {change.verb} {change.target} {change.path} "
    if change.verb in _CLASSES:
        return text, int(str(change.new).partition("=")[2])
    return (text, change.new) if isinstance(change.new, int) else (f"{text}{change.new}", 0)


def shape_of(changes: ChangeSet) -> tuple[tuple[str, ...], ...]:
    """Return a key that is equal for sets that differ only in their nodes, pods and amounts."""
    return tuple(
        sorted((one.owner, one.verb, one.target if one.owner in {"pod", "config"} else "", _field(one)) for one in changes)
    )


def _field(change: Change) -> str:
    if change.verb == "add-node":
        return ""
    value = "" if isinstance(change.new, int) or change.owner == "cluster" or change.verb in _CLASSES else f" {change.new}"
    taint = f" {change.old}" if change.verb in {"untaint", "drop-port", "drop-expression", "prefer"} else ""
    return f"{change.path}{value}{taint}"
