"""Cron schedules: five fields or a descriptor such as ``@daily``, in a time zone.

``*/15 9-17 * * MON-FRI`` means what it means to robfig/cron. If both the day of the month and the day of the week are
restricted, a match of either is enough. A time in the hour that the change to summer time skips is not due that day; a time in
the hour that occurs twice is due both times.

Source  github.com/robfig/cron v3, parser.go and spec.go
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from datetime import tzinfo as TimeZone  # noqa: N812 (it is a class)
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from moorage.api.durations import DurationError, duration_seconds


class CronError(ValueError):
    """A schedule is invalid."""


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_MONTHS: Final = tuple(name.lower() for name in calendar.month_abbr[1:])
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 6, _DAYS),
)
_WORDS: Final = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
#: How many years ahead to search for a due time.
_HORIZON: Final = 5


class _Set(NamedTuple):
    """The allowed values of a field. ``free`` is True for a field without restriction (``*`` or ``?``)."""

    values: frozenset[int]
    free: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """A parsed schedule. ``every_s``: the period of an ``@every`` schedule, which has no fields; 0 otherwise."""

    minutes: _Set
    hours: _Set
    days: _Set
    months: _Set
    weekdays: _Set
    zone: TimeZone
    every_s: float = 0.0

    def after(self, epoch_s: float) -> float | None:
        """Return the next due time after ``epoch_s``, both in Unix seconds; None if there is none within five years."""
        if self.every_s:
            return float(int(epoch_s) + self.every_s)
        start = datetime.fromtimestamp(int(epoch_s), UTC).replace(second=0) + timedelta(minutes=1)
        moment = start
        limit = start.year + _HORIZON
        while moment.year <= limit:
            local = moment.astimezone(self.zone)
            if local.month not in self.months.values:
                moment = self._skip(moment, _next_month(local))
            elif not self._takes_day(local):
                moment = self._skip(moment, local.replace(hour=0, minute=0, fold=0) + timedelta(days=1))
            elif local.hour not in self.hours.values:
                moment = _rounded(moment + timedelta(hours=1), local)
            elif local.minute not in self.minutes.values:
                moment += timedelta(minutes=1)
            else:
                return moment.timestamp()
        return None

    def _takes_day(self, local: datetime) -> bool:
        of_month = local.day in self.days.values
        of_week = (local.isoweekday() % 7) in self.weekdays.values
        return of_month and of_week if self.days.free or self.weekdays.free else of_month or of_week

    def _skip(self, moment: datetime, target: datetime) -> datetime:
        """Return the first moment of the local day ``target``, at least a minute after ``moment`` even if clocks change."""
        found = target.replace(tzinfo=self.zone).astimezone(UTC)
        local = found.astimezone(self.zone)
        if local.day != target.day:
            # A clock change skips midnight on that day.
            found += timedelta(hours=24 - local.hour)
        return max(found, moment + timedelta(minutes=1))


def _next_month(local: datetime) -> datetime:
    year, month = (local.year + 1, 1) if local.month == 12 else (local.year, local.month + 1)
    return local.replace(year=year, month=month, day=1, hour=0, minute=0, fold=0)


def _rounded(moment: datetime, local: datetime) -> datetime:
    """Return ``moment`` at the start of its local hour. ``local`` is the local time one hour earlier."""
    return moment - timedelta(minutes=local.minute)


# -- parsing ------------------------------------------------------------------------------------------------------------


def zone_named(name: str | None) -> TimeZone:
    """Return the time zone of a name; UTC if the name is empty.

    Raises  CronError for an unknown time zone
    """
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CronError(f"unknown time zone {name}") from None


def parse_schedule(text: str, zone: TimeZone = UTC) -> Schedule:
    """Parse a schedule. A prefix ``TZ=…`` overrides the time zone.

    Raises  CronError
    """
    prefix, _, rest = text.strip().partition(" ")
    if prefix.startswith(("TZ=", "CRON_TZ=")):
        zone, text = zone_named(prefix.partition("=")[2]), rest
    text = text.strip()
    if text.startswith("@every "):
        return _every(text.removeprefix("@every ").strip(), zone)
    if text.startswith("@"):
        if text not in _WORDS:
            raise CronError(f"unrecognized descriptor: {text}")
        text = _WORDS[text]
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise CronError(f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]")
    minutes, hours, days, months, weekdays = (_read(part, field) for part, field in zip(parts, _FIELDS, strict=True))
    return Schedule(minutes, hours, days, months, weekdays, zone)


def _every(text: str, zone: TimeZone) -> Schedule:
    try:
        seconds = duration_seconds(text)
    except DurationError as error:
        raise CronError(f"failed to parse duration @every {text}: {error}") from error
    everything = _Set(frozenset(), True)
    return Schedule(everything, everything, everything, everything, everything, zone, max(1.0, float(int(seconds))))


def _read(text: str, field: _Field) -> _Set:
    values: set[int] = set()
    free = False
    for part in text.split(","):
        span, is_free = _span(part, field)
        values.update(span)
        free = free or is_free
    return _Set(frozenset(values), free)


def _span(part: str, field: _Field) -> tuple[range, bool]:
    """Return the values of one part of a field, and whether it is ``*`` or ``?`` without a step."""
    bounds, slash, step_text = part.partition("/")
    low_text, dash, high_text = bounds.partition("-")
    if low_text in {"*", "?"}:
        low, high = field.low, field.high
    else:
        low = _value(low_text, field)
        if "-" in high_text:
            raise CronError(f"too many hyphens: {part}")
        open_end = field.high if slash else low
        high = _value(high_text, field) if dash else open_end
    if "/" in step_text:
        raise CronError(f"too many slashes: {part}")
    step = _number(step_text) if slash else 1
    if low < field.low:
        raise CronError(f"beginning of range ({low}) below minimum ({field.low}): {part}")
    if high > field.high:
        raise CronError(f"end of range ({high}) above maximum ({field.high}): {part}")
    if low > high:
        raise CronError(f"beginning of range ({low}) beyond end of range ({high}): {part}")
    if not step:
        raise CronError(f"step of range should be a positive number: {part}")
    return range(low, high + 1, step), low_text in {"*", "?"} and step == 1


def _value(text: str, field: _Field) -> int:
    name = text.lower()
    if name in field.names:
        return field.names.index(name) + field.low
    return _number(text)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise CronError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    return int(text)
