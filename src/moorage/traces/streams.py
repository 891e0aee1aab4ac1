"""Files of traces as streams: lines of text, rows of a table, objects of JSON Lines. Files may be compressed with gzip.

Every fault names file and line.
"""

from __future__ import annotations

import csv
import gzip
import os
import re
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, BinaryIO, Final, cast

import msgspec

from moorage.errors import InputError

__all__ = ["TraceRow", "json_lines", "open_bytes", "table_rows"]

_GZIP: Final = b"\x1f\x8b"
#: The longest line of a table, in characters; lines of objects may be longer.
_LONGEST: Final = 1 << 20
_LONGEST_OBJECT: Final = 64 << 20
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?")
_SHOWN: Final = 40


class TraceRow:
    """A row of a table. ``where`` starts every message about it."""

    __slots__ = ("cells", "where")

    def __init__(self, where: str, cells: Mapping[str, str]) -> None:
        self.where = where
        self.cells = cells

    def text(self, column: str) -> str:
        """Return a cell without spaces around it; "" where the table does not have the column."""
        return self.cells.get(column, "").strip()

    def integer(self, column: str) -> int:
        """Return a whole number, which may be written as ``3.0``."""
        text = self.text(column)
        if _INTEGER.fullmatch(text):
            return int(text)
        number = self.number(column)
        if number != int(number):
            raise self.fault(column, "expected a whole number")
        return int(number)

    def number(self, column: str, *, least: float | None = 0.0) -> float:
        """Return a number that is at least ``least``."""
        text = self.text(column)
        if not _NUMBER.fullmatch(text):
            raise self.fault(column, "expected a number")
        value = float(text)
        if least is not None and value < least:
            raise self.fault(column, f"expected at least {least:g}")
        return value

    def optional(self, column: str, *, least: float | None = 0.0) -> float | None:
        """Return a number, or None for an empty cell."""
        return self.number(column, least=least) if self.text(column) else None

    def fault(self, column: str, why: str) -> InputError:
        """Return the error with the line, the column and the cell."""
        found = self.text(column)
        shown = found if len(found) <= _SHOWN else found[:_SHOWN] + "…"
        return InputError(f"{self.where}: {column}: {why}, found {shown!r}")


@contextmanager
def open_bytes(path: str) -> Iterator[BinaryIO]:
    """Open a regular file, and decompress it if it is compressed.

    Raises  InputError
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except ValueError:
        raise InputError(f"{path!r}: this is not a valid file name") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"{path}: expected one file, found a directory or a device")
    with open(handle, "rb") as file:
        packed = file.peek(2)[:2] == _GZIP
        try:
            yield cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{path}: this looks like gzip but cannot be decompressed: {error}") from None
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None


def table_rows(
    path: str, columns: Sequence[str], *, required: Sequence[str] | None = None, header: bool | None = True
) -> Iterator[TraceRow]:
    """Yield the rows of a CSV file.

    ``columns``   those that are known, in the order of a file without a header
    ``required``  those that a header must have; by default all
    ``header``    whether the first line names the columns; None: if its first cell is the name of one

    Raises  InputError
    """
    with open_bytes(path) as file, TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(_checked(text, path), strict=True)
        try:
            yield from _rows(reader, path, columns, columns if required is None else required, header)
        except csv.Error as error:
            raise InputError(f"{path}:{reader.line_num}: this is not CSV: {error}") from None
        except UnicodeDecodeError:
            raise InputError(f"{path}:{reader.line_num + 1}: this is not UTF-8") from None


def _checked(lines: Iterator[str], path: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if len(line) > _LONGEST:
            raise InputError(f"{path}:{number}: a line of more than {_LONGEST} characters is no row of a table")
        if "\0" in line:
            raise InputError(f"{path}:{number}: this is not CSV: it holds a NUL")
        yield line


def _rows(
    reader: Any, path: str, columns: Sequence[str], required: Sequence[str], header: bool | None
) -> Iterator[TraceRow]:  # fmt: skip
    names: Sequence[str] | None = None
    for cells in reader:
        if not cells:
            continue
        if names is None:
            named = [cell.strip() for cell in cells]
            if header or (header is None and named[0] in columns):
                names = _header(named, path, reader.line_num, required)
                continue
            names = columns
        where = f"{path}:{reader.line_num}"
        if len(cells) != len(names):
            raise InputError(f"{where}: expected {len(names)} cells, found {len(cells)}")
        yield TraceRow(where, dict(zip(names, cells, strict=True)))
    if names is None:
        raise InputError(f"{path}:1: the file is empty; expected the columns {','.join(columns)}")


def _header(named: Sequence[str], path: str, line: int, required: Sequence[str]) -> Sequence[str]:
    missing = [name for name in required if name not in named]
    if missing:
        raise InputError(f"{path}:{line}: the header lacks {', '.join(missing)}; expected {','.join(required)}")
    return named


def json_lines(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the object of each line that is not empty.

    Raises  InputError
    """
    decode = msgspec.json.Decoder().decode
    with open_bytes(path) as file:
        number = 0
        while line := file.readline(_LONGEST_OBJECT):
            number += 1
            where = f"{path}:{number}"
            if not line.strip():
                continue
            try:
                found = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InputError(f"{where}: this is not JSON: {error}") from None
            if not isinstance(found, dict):
                raise InputError(f"{where}: expected an object, found {type(found).__name__}")
            yield where, found
