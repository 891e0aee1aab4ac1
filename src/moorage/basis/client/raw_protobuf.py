"""A change of an object in protobuf that leaves all else as the bytes that came: other finalizers.

In JSON an API server shows raw fields without white space and with some letters escaped, so an object that another client
created with these cannot be sent back in JSON as it is stored. In protobuf it can.

Source  apimachinery, runtime/serializer/protobuf; meta/v1/generated.proto, ObjectMeta
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from moorage.api.wire_format import delimited
from moorage.errors import ClusterError

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\0"
#: The fields of the envelope that holds an object, of an object, and of its metadata.
_OBJECT, _METADATA, _VERSION, _FINALIZERS = 2, 1, 6, 14
_VARINT, _BYTES = 0, 2
#: The length of values of fixed length, by their wire type.
_FIXED: Final = {1: 8, 5: 4}


def with_finalizers(body: bytes, finalizers: Sequence[str]) -> tuple[bytes, str]:
    """Return an object with these finalizers, and its resource version.

    Raises  ClusterError if it is not an object in protobuf
    """
    try:
        if not body.startswith(_MAGIC):
            raise ValueError("it has another beginning")
        parts: list[bytes] = [_MAGIC]
        version = ""
        for number, part, held in _fields(body[len(_MAGIC) :]):
            if number == _OBJECT:
                changed, version = _object(held, finalizers)
                parts.append(delimited(_OBJECT, changed))
            else:
                parts.append(part)
    except (ValueError, IndexError) as error:
        raise ClusterError(f"the API server's answer is not an object in protobuf: {error}") from None
    return b"".join(parts), version


def _object(body: bytes, finalizers: Sequence[str]) -> tuple[bytes, str]:
    parts: list[bytes] = []
    version = ""
    for number, part, held in _fields(body):
        if number != _METADATA:
            parts.append(part)
        else:
            kept = [inner for name, inner, _ in _fields(held) if name != _FINALIZERS]
            version = next((value.decode() for name, _, value in _fields(held) if name == _VERSION), "")
            kept += [delimited(_FINALIZERS, one.encode()) for one in finalizers]
            parts.append(delimited(_METADATA, b"".join(kept)))
    return b"".join(parts), version


def _fields(body: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the fields of a message: number, all bytes, and the value of one that has a length."""
    at = 0
    while at < len(body):
        start = at
        tag, at = _number(body, at)
        number, kind = tag >> 3, tag & 7
        held = b""
        if kind == _VARINT:
            _, at = _number(body, at)
        elif kind == _BYTES:
            size, at = _number(body, at)
            held, at = body[at : at + size], at + size
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise ValueError(f"wire type {kind}")
        if at > len(body):
            raise ValueError("it is cut off")
        yield number, body[start:at], held


def _number(body: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where it ends."""
    found = shift = 0
    while True:
        byte = body[at]
        found, at, shift = found | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return found, at
