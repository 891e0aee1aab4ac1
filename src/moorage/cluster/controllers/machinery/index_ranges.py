"""Completion indexes of an indexed job in compact form: ``1,3-5,7``.

Source  kubernetes, pkg/controller/job/indexed_job_utils.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from moorage.api.quantity import parse_int64

__all__ = ["Indexes", "parse_indexes"]


@dataclass(frozen=True, slots=True)
class Indexes:
    """Indexes as sorted, disjoint spans, both ends included. A job may have too many indexes for a set."""

    spans: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.spans)

    def with_numbers(self, numbers: Iterable[int]) -> Indexes:
        """Return the union with more indexes."""
        return self.with_spans((number, number) for number in numbers)

    def with_spans(self, spans: Iterable[tuple[int, int]]) -> Indexes:
        """Return the union with other spans."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted([*self.spans, *spans]):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return Indexes(tuple(merged))

    def __str__(self) -> str:
        return ",".join(_spelled(first, last) for first, last in self.spans)

    def free_below(self, end: int) -> Iterator[int]:
        """Yield the indexes from 0 to below ``end`` that are not in this."""
        start = 0
        for first, last in self.spans:
            yield from range(start, min(first, end))
            start = last + 1
        yield from range(start, end)


def parse_indexes(text: str, completions: int) -> Indexes:
    """Parse ``1,3-5,7`` and return the indexes below ``completions``; invalid parts are skipped."""
    spans = []
    for part in text.split(",") if text else ():
        low, _, high = part.partition("-")
        first, last = parse_int64(low), parse_int64(high or low)
        if first is not None and last is not None and max(0, first) <= min(last, completions - 1):
            spans.append((max(0, first), min(last, completions - 1)))
    return Indexes().with_spans(spans)


def _spelled(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
