"""CSV tables of numbers and names, parsed strictly: a cell that does not fit its column is an error that names the line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from moorage.errors import InputError
from moorage.inputs.files import InputFile

__all__ = ["Row", "read_rows"]

_INTEGER = re.compile("[0-9]{1,15}")
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_SHOWN: Final = 40


class Row:
    """One line of a table. ``where`` starts every message about it."""

    def __init__(self, where: str, cells: dict[str, str]) -> None:
        self.where = where
        self._cells = cells

    def has(self, column: str) -> bool:
        """Return True if the layout has this column."""
        return column in self._cells

    def text(self, column: str) -> str:
        """Return a cell's text."""
        return self._cells[column]

    def integer(self, column: str) -> int:
        """Return a non-negative integer."""
        if not _INTEGER.fullmatch(self._cells[column]):
            raise self.fault(column, "expected a whole number")
        return int(self._cells[column])

    def number(self, column: str) -> float:
        """Return a non-negative number."""
        if not _NUMBER.fullmatch(self._cells[column]):
            raise self.fault(column, "expected a number")
        return float(self._cells[column])

    def optional_number(self, column: str) -> float | None:
        """Return a number, or None for an empty cell."""
        return self.number(column) if self._cells[column] else None

    def fault(self, column: str, why: str) -> InputError:
        """Return the error with the line, a column and the cell's text."""
        found = self._cells[column]
        shown = found if len(found) <= _SHOWN else found[:_SHOWN] + "…"
        return InputError(f"{self.where}: {column}: {why}, found {shown!r}")


def read_rows(source: InputFile, layouts: Sequence[Sequence[str]]) -> Iterator[Row]:
    """Yield the lines of a CSV file below its header, which must be one of ``layouts``. Blank lines are skipped.

    Raises  InputError, naming the line, for another header, for a line with more or fewer cells, and for invalid CSV
    """
    reader = csv.reader(_lines(source), strict=True)
    header = _next(reader, source.where)
    if header is None:
        raise InputError(f"{source.where}:1: the file is empty; its first line names the columns")
    if header not in [list(layout) for layout in layouts]:
        expected = " or ".join(",".join(layout) for layout in layouts)
        raise InputError(f"{source.where}:1: these columns are not known; expected {expected}")
    while (cells := _next(reader, source.where)) is not None:
        where = f"{source.where}:{reader.line_num}"
        if cells and len(cells) != len(header):
            raise InputError(f"{where}: expected {len(header)} cells, found {len(cells)}")
        if cells:
            yield Row(where, dict(zip(header, cells, strict=True)))


def _next(reader: Iterator[list[str]], where: str) -> list[str] | None:
    try:
        return next(reader, None)
    except csv.Error as error:
        line = getattr(reader, "line_num", 1)
        raise InputError(f"{where}:{line}: this is not CSV: {error}") from None


def _lines(source: InputFile) -> Iterable[str]:
    try:
        text = source.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{source.where}:{line}: this is not UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{source.where}:{line}: this is not CSV: it holds a NUL")
    return io.StringIO(text, newline="")
