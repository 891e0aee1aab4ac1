"""Files of traces as streams: lines of text, rows of a table, objects of JSON Lines. Files may be compressed with gzip.

Every error names file and line.
"""

from __future__ import annotations

import csv
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedReader, BytesIO
from mmap import ACCESS_READ, mmap
from typing import Any, BinaryIO, Final, TypeAlias, cast

import msgspec

from moorage.basis.inputs.files import InputFile
from moorage.basis.unpacking import GunzippedFile
from moorage.errors import InputError

#: The path of a file, or its content.
Source: TypeAlias = str | InputFile

_GZIP: Final = b"\x1f\x8b"
_CHUNK: Final = 1 << 20
#: The longest line of a table, in characters; lines of objects may be longer.
_LONGEST: Final = 1 << 20
_LONGEST_OBJECT: Final = 64 << 20
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?")
_PLAIN_INTEGER: Final = re.compile("[0-9]{1,15}")
_PLAIN_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
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


class ExactRow(TraceRow):
    """A row whose cells have no spaces, signs or exponents, and whose columns all exist."""

    __slots__ = ()

    def has(self, column: str) -> bool:
        """Return True if the table has this column."""
        return column in self.cells

    def text(self, column: str) -> str:
        """Return a cell."""
        return self.cells[column]

    def integer(self, column: str) -> int:
        """Return a non-negative integer."""
        if not _PLAIN_INTEGER.fullmatch(self.text(column)):
            raise self.fault(column, "expected a whole number")
        return int(self.text(column))

    def number(self, column: str, *, least: float | None = 0.0) -> float:
        """Return a non-negative number."""
        if not _PLAIN_NUMBER.fullmatch(self.text(column)):
            raise self.fault(column, "expected a number")
        return float(self.text(column))


@contextmanager
def open_bytes(source: Source) -> Iterator[BinaryIO]:
    """Open a regular file, and decompress it if it is compressed.

    Raises  InputError
    """
    if isinstance(source, InputFile):
        yield BytesIO(source.data)
        return
    path = source
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
            yield cast(BinaryIO, BufferedReader(GunzippedFile(file, path), _CHUNK)) if packed else file
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None


@contextmanager
def whole_bytes(path: str, most: int) -> Iterator[bytes | mmap]:
    """Yield the whole content of a file of at most ``most`` bytes, mapped into memory unless it is compressed.

    Raises  InputError
    """
    with open_bytes(path) as file:
        opened: Any = file
        if isinstance(opened, BufferedReader) and isinstance(opened.raw, GunzippedFile):
            content = BytesIO()  # a read of all would set aside the most that there can be
            while content.tell() <= most and (part := opened.read(_CHUNK)):
                content.write(part)
            data, size = content.getvalue(), content.tell()
        else:
            data, size = b"", os.fstat(file.fileno()).st_size
        if size > most:
            raise InputError(f"{path}: larger than {most >> 30} GiB")
        if data or not size:
            yield data
            return
        yield mmap(file.fileno(), 0, access=ACCESS_READ)  # unmapped once nothing refers to a part of it


def table_rows(
    path: str, columns: Sequence[str], *, required: Sequence[str] | None = None, header: bool | None = True
) -> Iterator[TraceRow]:
    """Yield the rows of a CSV file.

    ``columns``   the known columns, in the order of a file without a header
    ``required``  the columns that a header must have; by default all
    ``header``    whether the first line is a header; None: it is one if its first cell is the name of a column

    Raises  InputError
    """
    needed = columns if required is None else required

    def named(cells: Sequence[str], where: str) -> Sequence[str] | None:
        names = [cell.strip() for cell in cells]
        if header is False or (header is None and names[0] not in columns):
            return None
        if missing := [name for name in needed if name not in names]:
            raise InputError(f"{where}: the header lacks {', '.join(missing)}; expected {','.join(needed)}")
        return names

    for where, cells in _table(path, columns, named):
        yield TraceRow(where, cells)


def exact_rows(source: Source, layouts: Sequence[Sequence[str]]) -> Iterator[ExactRow]:
    """Yield the rows of a CSV file whose header is one of ``layouts``.

    Raises  InputError
    """

    def named(cells: Sequence[str], where: str) -> Sequence[str]:
        if tuple(cells) not in {tuple(layout) for layout in layouts}:
            expected = " or ".join(",".join(layout) for layout in layouts)
            raise InputError(f"{where}: these columns are not known; expected {expected}")
        return cells

    for where, cells in _table(source, layouts[0], named):
        yield ExactRow(where, cells)


def _table(
    source: Source, columns: Sequence[str], named: Callable[[Sequence[str], str], Sequence[str] | None]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the place and the cells of each row. ``named`` returns the names in the first line, None if it is a row."""
    path = source if isinstance(source, str) else source.where
    names: Sequence[str] | None = None
    with open_bytes(source) as file:
        reader = csv.reader(_lines(file, path), strict=True)
        try:
            for cells in filter(None, reader):
                where = f"{path}:{reader.line_num}"
                if names is None and (names := named(cells, where)) is not None:
                    continue
                names = columns if names is None else names
                if len(cells) != len(names):
                    raise InputError(f"{where}: expected {len(names)} cells, found {len(cells)}")
                yield where, dict(zip(names, cells, strict=True))
        except csv.Error as error:
            raise InputError(f"{path}:{reader.line_num}: this is not CSV: {error}") from None
    if names is None:
        raise InputError(f"{path}:1: the file is empty; expected the columns {','.join(columns)}")


def _lines(file: BinaryIO, path: str) -> Iterator[str]:
    number = 0
    while line := file.readline(_LONGEST + 1):
        number += 1
        if len(line) > _LONGEST:
            raise InputError(f"{path}:{number}: a line of more than {_LONGEST} bytes is no row of a table")
        if b"\0" in line:
            raise InputError(f"{path}:{number}: this is not CSV: it holds a NUL")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{path}:{number}: this is not UTF-8") from None


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
