"""Protobuf's wire, as far as it takes to write it: numbers of any size, and what stands there with its length."""

from __future__ import annotations

__all__ = ["delimited", "number", "text", "varint"]


def varint(value: int) -> bytes:
    """Return a whole number, seven bits to a byte. Negative ones are written as 64-bit numbers without a sign."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    """Return a field that is a whole number or a truth."""
    return varint(field << 3) + varint(value)


def delimited(field: int, body: bytes) -> bytes:
    """Return a field that is a message or bytes."""
    return b"".join([varint(field << 3 | 2), varint(len(body)), body])


def text(field: int, value: str) -> bytes:
    """Return a field that is a text."""
    return delimited(field, value.encode())
