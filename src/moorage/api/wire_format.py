"""Protobuf's wire format, written: variable-length integers, and fields with a length.

Source  protobuf, Encoding
"""

from __future__ import annotations


def varint(value: int) -> bytes:
    """Return an integer as a varint. Negative integers are encoded as unsigned 64-bit numbers."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    """Return an integer or boolean field."""
    return varint(field << 3) + varint(value)


def delimited(field: int, body: bytes) -> bytes:
    """Return a length-delimited field: a message or bytes."""
    return b"".join([varint(field << 3 | 2), varint(len(body)), body])


def text(field: int, value: str) -> bytes:
    """Return a string field."""
    return delimited(field, value.encode())
