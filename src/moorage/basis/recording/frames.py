"""The file format of logs: frames with checksums, each of which holds compressed records.

A file is a sequence of frames. A frame is a header of 40 bytes and a body, both with a checksum of their own, so that a damaged
frame is found and the frames after it can still be read. The body is a zstd frame of a msgpack array of records. Records have
numbers that go up by one; the header has the number and the time of the frame's first record.

Writing stops anywhere when a process is killed. A frame that the file ends in is incomplete, not damaged.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Container, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from moorage.basis.unpacking import UnpackingBound, unpacked_zstd, zstd
from moorage.errors import InputError

_HEADER: Final = struct.Struct("<4sB3xIIqQII")
_MAGIC: Final = b"\xabMRL"
#: What a frame holds: nothing known, the begin of a file, changes, objects of a snapshot, the end of a snapshot.
LOST, BEGIN, CHANGES, OBJECTS, END = range(5)
_KINDS: Final = frozenset({BEGIN, CHANGES, OBJECTS, END})
#: No writer makes larger bodies.
_MOST_BYTES: Final = 64 << 20
_LEVEL: Final = 3


class Put(Struct, frozen=True, array_like=True, tag="p", gc=False):
    """An object was added or changed: its JSON without its resource version. ``at``: microseconds since 1970."""

    at: int
    kind: str
    key: str
    version: str
    body: bytes


class Touched(Struct, frozen=True, array_like=True, tag="t", gc=False):
    """An object has a new resource version, and no other change that scheduling reads."""

    at: int
    kind: str
    key: str
    version: str


class Dropped(Struct, frozen=True, array_like=True, tag="d", gc=False):
    """An object was deleted."""

    at: int
    kind: str
    key: str


class Mark(Struct, frozen=True, array_like=True, tag="m"):
    """A remark of the recorder: it started, the clock was set, a decision was compared."""

    at: int
    what: str
    facts: dict[str, Any]


Record = Put | Touched | Dropped | Mark
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Record]).decode


class LogFrame(NamedTuple):
    """A frame, or bytes of a file that are none, of kind ``LOST``. ``size``: how many records its header announces.

    ``why``: what is wrong with it; "" for a whole frame, which has its records. ``torn``: the file ends in it, as after a kill
    """

    kind: int
    number: int
    size: int
    at: int
    offset: int
    records: Sequence[Record] = ()
    why: str = ""
    torn: bool = False


def packed(kind: int, number: int, at: int, records: Sequence[Record]) -> bytes:
    """Return a frame with these records; ``number`` and ``at`` are those of the first."""
    body = zstd.compress(_encode(records), _LEVEL)
    values = (_MAGIC, kind, len(body), len(records), at, number, zlib.crc32(body))
    return _HEADER.pack(*values, zlib.crc32(_HEADER.pack(*values, 0)[:-4])) + body


def frames_in(data: bytes | memoryview, wanted: Container[int] = _KINDS) -> Iterator[LogFrame]:
    """Yield the frames of a file and what lies between them, in order; only those of the wanted kinds have their records."""
    view, at, end = memoryview(data), 0, len(data)
    bound = UnpackingBound()
    while at < end:
        header = _header(view, at)
        if header is None:
            further = _next_header(view, at + 1)
            torn = further == end and (end - at < _HEADER.size or not any(view[at:end]))
            why = "incomplete header" if torn else "wrong checksum of a header"
            yield LogFrame(LOST, 0, 0, 0, at, why=why, torn=torn)
            at = further
            continue
        kind, length, count, time, number, checksum = header
        body = bytes(view[at + _HEADER.size : at + _HEADER.size + length])
        if len(body) < length:
            yield LogFrame(LOST, 0, 0, 0, at, why="incomplete frame", torn=True)
            return
        frame = LogFrame(kind, number, count, time, at)
        try:
            yield frame._replace(records=_unpacked(body, count, checksum, bound)) if kind in wanted else frame
        except ValueError as error:
            yield frame._replace(why=str(error))
        at += _HEADER.size + length


def _unpacked(body: bytes, count: int, checksum: int, bound: UnpackingBound) -> list[Record]:
    """Return the records of a frame.

    Raises  ValueError if the body is not what a writer makes
    """
    if zlib.crc32(body) != checksum:
        raise ValueError("wrong checksum of a frame")
    try:
        text = unpacked_zstd(body, bound)
    except InputError as error:
        raise ValueError(str(error)) from None
    try:
        records = _decode(text)
    except msgspec.MsgspecError:
        records = []
    if len(records) != count:
        raise ValueError("records that this version of Moorage does not know")
    return records


def _header(view: memoryview, at: int) -> tuple[int, int, int, int, int, int] | None:
    """Return kind, length, count, time, number and checksum of the frame at an offset; None if there is no valid header."""
    if len(view) - at < _HEADER.size or bytes(view[at : at + 4]) != _MAGIC:
        return None
    _, kind, length, count, time, number, checksum, own = _HEADER.unpack_from(view, at)
    if zlib.crc32(view[at : at + _HEADER.size - 4]) != own or kind not in _KINDS or length > _MOST_BYTES:
        return None
    return kind, length, count, time, number, checksum


def _next_header(view: memoryview, start: int) -> int:
    """Return the offset of the next valid header from ``start`` on; the end of the file if there is none."""
    data = bytes(view)
    at = data.find(_MAGIC, start)
    while at >= 0 and _header(view, at) is None:
        at = data.find(_MAGIC, at + 1)
    return len(view) if at < 0 else at
