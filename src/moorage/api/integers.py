"""Integers, parsed as Go's ``strconv.ParseInt(text, 10, 64)`` does.

Python's ``int()`` accepts blanks, underscores and digits of every script, which the API does not. Label values and taint values
are parsed here, so that they are numbers exactly when kube-scheduler says so.
"""

from __future__ import annotations

import re

__all__ = ["INT64_MAX", "INT64_MIN", "is_decimal_integer", "parse_int64"]

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

_PARSED = re.compile(r"([+-]?)0*([0-9]+)")
_CANONICAL = re.compile(r"0|-?[1-9][0-9]*")


def parse_int64(text: str) -> int | None:
    """Return the parsed number, or None where Go would report an error (not a number, or beyond 64 bits)."""
    found = _PARSED.fullmatch(text)
    if found is None or len(found[2]) > 19:
        return None
    number = int(found[1] + found[2])
    return number if INT64_MIN <= number <= INT64_MAX else None


def is_decimal_integer(text: str) -> bool:
    """Return True for an integer in canonical form: no plus sign, no leading zeros, no ``-0``.

    Source  apimachinery, pkg/api/validate/content/decimal_int.go
    """
    return _CANONICAL.fullmatch(text) is not None
