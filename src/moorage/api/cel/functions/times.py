"""Timestamps and durations in expressions: read, computed with, and taken apart.

Both are whole nanoseconds. A timestamp is in the years 1 to 9999; a duration fits 64 bits.

Source  cel-go: common/types/timestamp.go, duration.go
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache, total_ordering
from typing import Any, Final
from zoneinfo import ZoneInfo

from moorage.api.cel.bounds import EvalError
from moorage.api.durations import DurationError, parse_duration
from moorage.api.quantity import INT64_MAX

TIMESTAMP_NAME: Final = "google.protobuf.Timestamp"
DURATION_NAME: Final = "google.protobuf.Duration"
_SECOND: Final = 10**9
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST, _MOST = -62135596800 * _SECOND, 253402300800 * _SECOND - 1
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:[.,](\d+))?(?:(Z)|([+-])(\d\d):(\d\d))", re.ASCII)
_OFFSET: Final = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)


@total_ordering
class Instant:
    """The base of both: whole nanoseconds, since 1970 for a timestamp."""

    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Instant) and self.nanos == other.nanos

    def __lt__(self, other: Instant) -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash((type(self), self.nanos))


class Duration(Instant):
    """A length of time."""

    __slots__ = ()

    def __init__(self, nanos: int) -> None:
        if not -INT64_MAX - 1 <= nanos <= INT64_MAX:
            raise EvalError("integer overflow")
        super().__init__(nanos)

    def __str__(self) -> str:
        whole, rest = divmod(abs(self.nanos), _SECOND)
        places = f".{rest:09d}".rstrip("0") if rest else ""
        return f"{'-' if self.nanos < 0 else ''}{whole}{places}s"


class Timestamp(Instant):
    """A point in time."""

    __slots__ = ()

    def __init__(self, nanos: int) -> None:
        if not _LEAST <= nanos <= _MOST:
            raise EvalError("timestamp overflow")
        super().__init__(nanos)

    def __str__(self) -> str:
        whole, rest = divmod(self.nanos, _SECOND)
        places = f".{rest:09d}".rstrip("0") if rest else ""
        return f"{(_EPOCH + timedelta(seconds=whole)).replace(tzinfo=None).isoformat()}{places}Z"

    def at(self, zone: tzinfo) -> datetime:
        """Return the time to the microsecond in a time zone."""
        try:
            return (_EPOCH + timedelta(microseconds=self.nanos // 1000)).astimezone(zone)
        except OverflowError:
            raise EvalError("timestamp overflow") from None


def timestamp_of(text: str) -> Timestamp:
    """Read a timestamp: ``2026-01-02T03:04:05.6Z``.

    Raises  EvalError
    """
    found = _TIME.fullmatch(text)
    try:
        if found is None:
            raise ValueError(text)
        day, time, places, _, sign, hours, minutes = found.groups()
        seconds = int((datetime.fromisoformat(f"{day}T{time}+00:00") - _EPOCH).total_seconds())
        if sign and (int(hours) > 23 or int(minutes) > 59):
            raise ValueError(text)
    except ValueError:
        raise EvalError(f"type conversion error from 'string' to '{TIMESTAMP_NAME}'") from None
    offset = (int(hours) * 3600 + int(minutes) * 60) * (-1 if sign == "-" else 1) if sign else 0
    return Timestamp((seconds - offset) * _SECOND + int((places or "0")[:9].ljust(9, "0")))


def duration_of(text: str) -> Duration:
    """Read a duration: ``1h30m``.

    Raises  EvalError
    """
    try:
        return Duration(parse_duration(text))
    except DurationError:
        raise EvalError(f"type conversion error from 'string' to '{DURATION_NAME}'") from None


# -- parts -------------------------------------------------------------------------------------------------------------


def _zone(name: str) -> tzinfo:
    found = _OFFSET.fullmatch(name)
    if found is not None:
        minutes = int(found[2]) * 60 + int(found[3])
        if minutes < 24 * 60:
            return timezone(timedelta(minutes=-minutes if found[1] == "-" else minutes))
    zone = UTC if name in {"", "UTC"} else _zone_named(name) if len(name) <= _LONGEST_ZONE else None
    if zone is None:
        raise EvalError(f"unknown time zone {name}")
    return zone


#: No time zone has a longer name.
_LONGEST_ZONE: Final = 64


@lru_cache(1024)
def _zone_named(name: str) -> ZoneInfo | None:
    """Look a time zone up; what is not there is searched in many folders."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


_PARTS: Final[dict[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda at: at.year,
    "getMonth": lambda at: at.month - 1,
    "getDate": lambda at: at.day,
    "getDayOfMonth": lambda at: at.day - 1,
    "getDayOfWeek": lambda at: at.isoweekday() % 7,
    "getDayOfYear": lambda at: at.timetuple().tm_yday - 1,
    "getHours": lambda at: at.hour,
    "getMinutes": lambda at: at.minute,
    "getSeconds": lambda at: at.second,
    "getMilliseconds": lambda at: at.microsecond // 1000,
}
#: Parts of a duration → how many nanoseconds are one.
_LENGTHS: Final = {"getHours": 3600 * _SECOND, "getMinutes": 60 * _SECOND, "getSeconds": _SECOND, "getMilliseconds": 10**6}


def _part(read: Callable[[datetime], int]) -> Callable[..., int]:
    return lambda one, zone="": read(one.at(_zone(zone)))


def _whole(nanos: int) -> Callable[[Duration], int]:
    return lambda one: abs(one.nanos) // nanos * (1 if one.nanos >= 0 else -1)


#: The methods that take them apart: name, signature, function, cost.
FIELDS: Final[list[tuple[str, str, Any, None]]] = [
    *((name, "timestamp . -> int", _part(read), None) for name, read in _PARTS.items()),
    *((name, "timestamp . string -> int", _part(read), None) for name, read in _PARTS.items()),
    *((name, "duration . -> int", _whole(nanos), None) for name, nanos in _LENGTHS.items()),
]
