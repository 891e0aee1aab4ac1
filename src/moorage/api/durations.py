"""Go durations such as ``1m30s``, ``500ms`` and ``0``: parse them to nanoseconds, and format them as Go does.

Source  Go's time package, ParseDuration and Duration.String
"""

from __future__ import annotations

import re
from typing import Final

from moorage.api.quantity import INT64_MAX
from moorage.errors import InputError

NANO_PER_SECOND: Final = 10**9

_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # micro sign
    "μs": 10**3,  # Greek mu
    "ms": 10**6,
    "s": NANO_PER_SECOND,
    "m": 60 * NANO_PER_SECOND,
    "h": 3600 * NANO_PER_SECOND,
}
_STEP = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?([^.0-9]*)")
#: The longest text to parse; Go prints no duration with more than 25 characters.
_MAX_TEXT: Final = 200


class DurationError(InputError):
    """A text is not a Go duration, such as ``10`` or ``1 day``."""


def parse_duration(text: str) -> int:
    """Parse a duration and return nanoseconds.

    Raises  DurationError, with Go's text, for unknown and missing units and for values beyond 64 bits
    """
    unsigned = text[1:] if text[:1] in {"+", "-"} else text
    if unsigned == "0":
        return 0
    if not unsigned or len(text) > _MAX_TEXT:
        raise _invalid(text)
    total, at = 0, 0
    while at < len(unsigned):
        step = _STEP.match(unsigned, at)
        if step is None or not (step[1] or step[3]):
            raise _invalid(text)
        total += _nanoseconds(text, step[1], step[3] or "", step[4])
        at = step.end()
    negative = text[0] == "-"
    if total > INT64_MAX + negative:
        raise _invalid(text)
    return -total if negative else total


def _nanoseconds(text: str, whole: str, places: str, unit: str) -> int:
    if int(whole or "0") > 1 << 63:
        raise _invalid(text)
    if not unit:
        raise DurationError(f"time: missing unit in duration {_quoted(text)}")
    if unit not in _UNITS:
        raise DurationError(f"time: unknown unit {_quoted(unit)} in duration {_quoted(text)}")
    scale = _UNITS[unit]
    return int(whole or "0") * scale + _fraction(places, scale)


def _fraction(places: str, scale: int) -> int:
    """Return the fraction as Go computes it: a truncated float product of as many digits as 63 bits hold."""
    digits = 0
    count = 0
    for count, digit in enumerate(places):  # noqa: B007 - counts what was taken
        longer = digits * 10 + int(digit)
        if longer > 1 << 63:
            break
        digits = longer
    else:
        count = len(places)
    return int(digits * (scale / 10.0**count))


def duration_seconds(text: str) -> float:
    """Parse a duration and return seconds."""
    return parse_duration(text) / NANO_PER_SECOND


def format_duration(nanoseconds: int) -> str:
    """Format a duration as Go does: ``1h0m0s``, ``1m30s``, ``1.5s``, ``100ms``, ``0s``."""
    if nanoseconds == 0:
        return "0s"
    sign, size = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if size < NANO_PER_SECOND:
        unit = "ns" if size < 10**3 else "µs" if size < 10**6 else "ms"
        return f"{sign}{_decimal(size, _UNITS[unit])}{unit}"
    minutes, rest = divmod(size, _UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(rest, NANO_PER_SECOND)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _decimal(size: int, unit: int) -> str:
    whole, rest = divmod(size, unit)
    if not rest:
        return str(whole)
    places = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0")
    return f"{whole}.{places}"


def _invalid(text: str) -> DurationError:
    return DurationError(f"time: invalid duration {_quoted(text[:_MAX_TEXT])}")


def _quoted(text: str) -> str:
    """Quote as Go's time package does: bytes outside printable ASCII as hexadecimal escapes."""
    shown = (
        f"\\{chr(b)}" if b in b'"\\' else chr(b) if 32 <= b < 127 else f"\\x{b:02x}" for b in text.encode("utf-8", "replace")
    )
    return f'"{"".join(shown)}"'
