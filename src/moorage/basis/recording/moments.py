"""Moments of a log as text: ``2026-11-24T14:03:00Z``, ``2026-11-24 14:03``, ``14:03``, ``-10m``, ``now``. Times are UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from moorage.errors import InputError

__all__ = ["moment_text", "parse_moment"]

_TIME_OF_DAY: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9](?:\.[0-9]{1,6})?))?Z?", re.ASCII)
_BEFORE: Final = re.compile(r"-([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_FORMS: Final = "write 2026-11-24T14:03:00Z, 14:03 (the last one in the log), -10m (before its end) or now"


def parse_moment(text: str, first: int, last: int) -> int:
    """Return a moment in microseconds since 1970, for a log that covers ``first`` to ``last``.

    Raises  InputError
    """
    text = text.strip()
    if text in {"", "now", "end"}:
        return last
    if found := _BEFORE.fullmatch(text):
        return last - round(float(found[1]) * _SECONDS[found[2]] * 1e6)
    if found := _TIME_OF_DAY.fullmatch(text):
        clock = timedelta(hours=int(found[1]), minutes=int(found[2]), seconds=float(found[3] or 0))
        day = datetime.fromtimestamp(last / 1e6, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        at = _microseconds(day + clock)
        return at if at <= last or at - 86_400_000_000 < first else at - 86_400_000_000
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{text}: not a moment; {_FORMS}") from None
    if not 1971 <= when.year <= 9998:
        raise InputError(f"{text}: not a moment; {_FORMS}")
    return _microseconds(when if when.tzinfo is not None else when.replace(tzinfo=UTC))


def _microseconds(when: datetime) -> int:
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def moment_text(at: int) -> str:
    """Return a moment as the API writes times, with as many digits as it needs."""
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
    return when.isoformat(timespec="microseconds" if at % 1_000_000 else "seconds").replace("+00:00", "Z")
