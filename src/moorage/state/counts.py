"""Pods counted by who would select them, and the affinity terms that placed pods hold.

Rules about other pods never look at pods. They ask how many on each row a matcher selects (``PodCounts``) or how many on
each row hold a term (``HeldTerms``); both are columns that move by one when a pod comes or goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.api.selectors import Selector
from moorage.state.columns import Column, RowSpace
from moorage.state.pod_info import AffinityTerm, PodInfo

__all__ = ["Counts", "HeldTerm", "HeldTerms", "MatchTerm", "PodCounts", "PodMatcher"]

Counts = npt.NDArray[np.int32]


class MatchTerm(NamedTuple):
    """Pods of these namespaces whose labels the selector takes."""

    namespaces: frozenset[str]
    selector: Selector


class PodMatcher(NamedTuple):
    """Pods that every term takes. ``live_only`` leaves out pods that are being deleted."""

    terms: tuple[MatchTerm, ...]
    live_only: bool = False

    def matches(self, label_class: tuple[str, tuple[tuple[str, str], ...], bool]) -> bool:
        """Judge all pods of one label class (namespace, labels, terminating) at once."""
        namespace, labels, terminating = label_class
        if terminating and self.live_only:
            return False
        asked = dict(labels)
        return all(namespace in term.namespaces and term.selector.matches(asked) for term in self.terms)


class _LabelClass:
    """Placed pods that no selector can tell apart: where they are, and which matchers count them."""

    __slots__ = ("matched_by", "rows")

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.matched_by: list[Column] = []


class PodCounts:
    """How many pods on each row a matcher selects, kept current for every matcher that was asked about."""

    #: Matchers kept before the least recently asked is dropped.
    capacity = 4096

    def __init__(self, space: RowSpace) -> None:
        self._space = space
        self._classes: dict[tuple[str, tuple[tuple[str, str], ...], bool], _LabelClass] = {}
        self._matchers: dict[PodMatcher, Column] = {}

    def of(self, matcher: PodMatcher) -> Counts:
        """Return the number of matching pods on each row, shape (rows,), int32. Read-only for callers."""
        column = self._matchers.get(matcher)
        if column is None:
            column = self._count(matcher)
        return column.view

    def add(self, row: int, pod: PodInfo) -> None:
        self._shift(row, pod, 1)

    def remove(self, row: int, pod: PodInfo) -> None:
        self._shift(row, pod, -1)

    def move(self, old: int, new: int, pods: Iterator[PodInfo]) -> None:
        """Renumber the row of ``pods``; their columns have been moved by the space already."""
        for label_class in {id(c): c for c in (self._classes[pod.label_class] for pod in pods)}.values():
            label_class.rows[new] = label_class.rows.pop(old)

    def _shift(self, row: int, pod: PodInfo, by: int) -> None:
        label_class = self._classes.get(pod.label_class)
        if label_class is None:
            label_class = self._classes[pod.label_class] = _LabelClass()
            label_class.matched_by = [c for m, c in self._matchers.items() if m.matches(pod.label_class)]
        left = label_class.rows.get(row, 0) + by
        if left:
            label_class.rows[row] = left
        else:
            del label_class.rows[row]
        for column in label_class.matched_by:
            column.data[row] += by
        if not label_class.rows:
            del self._classes[pod.label_class]

    def _count(self, matcher: PodMatcher) -> Column:
        if len(self._matchers) >= self.capacity:
            self._drop_all()
        column = self._matchers[matcher] = self._space.column(np.int32)
        for key, label_class in self._classes.items():
            if matcher.matches(key):
                label_class.matched_by.append(column)
                for row, count in label_class.rows.items():
                    column.data[row] += count
        return column

    def _drop_all(self) -> None:
        self._matchers.clear()
        for label_class in self._classes.values():
            label_class.matched_by = []


class HeldTerm(NamedTuple):
    """A term that placed pods carry. ``weight`` is 0 for required terms."""

    term: AffinityTerm
    weight: int = 0


class HeldTerms:
    """How many pods on each row hold a term, for one kind of term (required anti-affinity, preferred affinity …)."""

    def __init__(self, space: RowSpace) -> None:
        self._space = space
        self._columns: dict[HeldTerm, Column] = {}
        self._totals: dict[HeldTerm, int] = {}

    def __len__(self) -> int:
        return len(self._columns)

    def __iter__(self) -> Iterator[tuple[HeldTerm, Counts]]:
        """Yield each distinct term that at least one placed pod holds, with its holders on each row, shape (rows,)."""
        for held, column in self._columns.items():
            yield held, column.view

    def add(self, row: int, held: HeldTerm) -> None:
        column = self._columns.get(held)
        if column is None:
            column = self._columns[held] = self._space.column(np.int32)
            self._totals[held] = 0
        column.data[row] += 1
        self._totals[held] += 1

    def remove(self, row: int, held: HeldTerm) -> None:
        self._totals[held] -= 1
        self._columns[held].data[row] -= 1
        if not self._totals[held]:
            del self._totals[held], self._columns[held]
