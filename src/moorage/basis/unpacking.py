"""Unpack compressed data piece by piece, within one bound for every reader of it.

A few kilobytes can unpack to gigabytes. A reader counts what goes in and what comes out: from a size on that any machine has,
what comes out is at most so many times what went in, so a bomb ends after that size, not after its own.
"""

from __future__ import annotations

import io
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, NoReturn

from moorage.errors import InputError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

#: How many times as long unpacked data may be. Dumps of large clusters reach about 60.
MAX_RATIO: Final = 200
#: Up to this size the ratio is not limited.
FREE_SIZE: Final = 16 << 20
__all__ = ["CUT", "FREE_SIZE", "MAX_RATIO", "GunzippedFile", "UnpackingBound", "gunzipped", "unpacked_zstd", "zstd"]

#: How the error of data that is cut off ends.
CUT: Final = "it ends too early"
_CHUNK: Final = 1 << 20
_GZIP_FORM: Final = 31


class UnpackingBound:
    """Counts the bytes of one file, or of one answer, before and after. ``most``: how many come out in all."""

    def __init__(self, most: int | None = None) -> None:
        self.taken = self.given = 0
        self._most = most

    def count(self, taken: int, given: int) -> None:
        """Count bytes that went in and came out.

        Raises  InputError beyond the bound
        """
        self.taken += taken
        self.given += given
        if self.given > FREE_SIZE and self.given > MAX_RATIO * self.taken:
            raise InputError(f"decompressed, this grows more than {MAX_RATIO}-fold, which no dump does")
        if self._most is not None and self.given > self._most:
            raise InputError(f"decompressed, this is longer than {self._most} bytes")


def gunzipped(read: Callable[[int], bytes], bound: UnpackingBound) -> Iterator[bytes]:
    """Yield what gzip holds, of one member or several, in pieces of at most a mebibyte. Zeros may follow the last member.

    Raises  InputError for damaged or truncated data, and beyond the bound
    """
    decompressor, members, data = None, 0, b""
    while data := data or read(_CHUNK):
        if decompressor is None:
            data = data.lstrip(b"\0") if members else data
            if not data:
                continue
            decompressor, members = zlib.decompressobj(_GZIP_FORM), members + 1
        size, piece, data = len(data), *_piece(decompressor, data)
        bound.count(size - len(data), len(piece))
        if piece:
            yield piece
        while not data and not decompressor.eof and (piece := _piece(decompressor, b"")[0]):
            bound.count(0, len(piece))
            yield piece
        if decompressor.eof:
            decompressor = None
    if decompressor is not None:
        raise InputError(f"this looks like gzip but cannot be decompressed: {CUT}")


def _piece(decompressor: zlib._Decompress, data: bytes) -> tuple[bytes, bytes]:
    """Return the next piece, and the data that is left for later ones."""
    try:
        piece = decompressor.decompress(data, _CHUNK)
    except zlib.error as error:
        raise InputError(f"this looks like gzip but cannot be decompressed: {error}") from None
    return piece, decompressor.unused_data if decompressor.eof else decompressor.unconsumed_tail


class GunzippedFile(io.RawIOBase):
    """A file of gzip, read as what it holds.

    Raises  InputError as ``gunzipped``, with the name of the file
    """

    def __init__(self, file: BinaryIO, where: str) -> None:
        super().__init__()
        self._pieces, self._where, self._left = gunzipped(file.read, UnpackingBound()), where, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        """Fill a buffer, as ``io.RawIOBase`` does."""
        if not self._left:
            try:
                self._left = memoryview(next(self._pieces, b""))
            except InputError as error:
                raise InputError(f"{self._where}: {error}") from None
        into = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        size = min(len(into), len(self._left))
        into[:size], self._left = self._left[:size], self._left[size:]
        return size


def unpacked_zstd(body: bytes, bound: UnpackingBound) -> bytes:
    """Return what one frame of zstd holds.

    Raises  InputError for damaged or truncated data, and beyond the bound
    """
    decompressor = zstd.ZstdDecompressor()
    parts, data = [], body
    bound.count(len(body), 0)
    try:
        while not decompressor.eof:
            piece = decompressor.decompress(data, max_length=_CHUNK)
            data = b""
            bound.count(0, len(piece))
            parts.append(piece)
            if not piece and decompressor.needs_input:
                _refuse(CUT)
    except zstd.ZstdError as error:
        _refuse(str(error))
    return b"".join(parts)


def _refuse(why: str) -> NoReturn:
    raise InputError(f"this looks like zstd but cannot be decompressed: {why}")
