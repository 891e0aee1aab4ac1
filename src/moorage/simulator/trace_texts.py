"""Texts of a trace's rows, packed: a million names take some 20 MB, where as many strings take 80 MB."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

__all__ = ["PackedTexts", "RowNames", "repeats"]


class _Texts(Sequence[str]):
    """A sequence of texts; a subclass returns one at a time."""

    __slots__ = ()

    @abstractmethod
    def _text(self, row: int) -> str:
        """Return the text of a row, counted from 0."""

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        rows = range(len(self))[at]
        return self._text(rows) if isinstance(rows, int) else [self._text(row) for row in rows]


class PackedTexts(_Texts):
    """Texts in the order they were added, one after the other in a buffer."""

    __slots__ = ("_bytes", "_ends")

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("q", [0])

    def append(self, text: str) -> None:
        """Add a text."""
        self._bytes += text.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def _text(self, row: int) -> str:
        return self._bytes[self._ends[row] : self._ends[row + 1]].decode("utf-8", "surrogatepass")


class RowNames(_Texts):
    """The names of rows. ``number``: how often a row's text occurred before; if above 0, the name ends with it. None: all 0."""

    __slots__ = ("_number", "_texts")

    def __init__(self, texts: Sequence[str], number: npt.NDArray[np.int64] | None) -> None:
        self._texts, self._number = texts, number

    def __len__(self) -> int:
        return len(self._texts)

    def _text(self, row: int) -> str:
        number = 0 if self._number is None else self._number.item(row)
        return f"{self._texts[row]}.{number}" if number else self._texts[row]


def repeats(texts: Sequence[str], hashes: array[int]) -> npt.NDArray[np.int64] | None:
    """Return how often each text occurred before it; shape (texts,). None if all differ. ``hashes``: one for each text."""
    keys = np.frombuffer(hashes, dtype=np.int64) if len(hashes) else np.zeros(0, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    same = np.flatnonzero(np.diff(keys[order]) == 0)
    if not len(same):
        return None
    found = np.zeros(len(keys), dtype=np.int64)
    counts: dict[str, int] = {}
    for row in np.sort(order[np.union1d(same, same + 1)]).tolist():
        text = texts[row]
        found[row] = counts.get(text, 0)
        counts[text] = counts.get(text, 0) + 1
    return found
