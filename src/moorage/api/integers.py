"""Integers as Go's ``strconv.ParseInt(text, 10, 64)`` reads them.

Python's ``int()`` is too generous for the API: it takes blanks, underscores and every script's digits. Label values and
taint values go through this module instead, so that what is a number here is a number to kube-scheduler.
"""

from __future__ import annotations

import re

__all__ = ["INT64_MAX", "INT64_MIN", "is_decimal_integer", "parse_int64"]

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

_PARSED = re.compile(r"([+-]?)0*([0-9]+)")
_CANONICAL = re.compile(r"0|-?[1-9][0-9]*")


def parse_int64(text: str) -> int | None:
    """Return the number a text spells, or None where Go would report an error (not a number, or beyond 64 bits)."""
    found = _PARSED.fullmatch(text)
    if found is None or len(found[2]) > 19:
        return None
    number = int(found[1] + found[2])
    return number if INT64_MIN <= number <= INT64_MAX else None


def is_decimal_integer(text: str) -> bool:
    """Return True for an integer as a person writes it: no plus sign, no leading zeros, no ``-0``.

    Source  apimachinery, pkg/api/validate/content/decimal_int.go
    """
    return _CANONICAL.fullmatch(text) is not None
