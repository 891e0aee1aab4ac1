"""The metrics of runs: their titles, how values are formatted, and whether more is better."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

__all__ = ["MetricKind", "amount_text", "difference_text", "kind_of", "title_of"]


class MetricKind(NamedTuple):
    """``unit``: count, seconds, share, number or price. ``better``: -1 if less is better, 1 if more is, 0 if neither."""

    unit: str
    better: int = -1


#: By the first part of a metric's name.
_KINDS: Final = {
    "pending": MetricKind("count"),
    "newPending": MetricKind("count"),
    "notCreated": MetricKind("count"),
    "wait": MetricKind("seconds"),
    "moved": MetricKind("count"),
    "nodesUsed": MetricKind("count"),
    "cost": MetricKind("price"),
    "utilisation": MetricKind("share", 0),
    "dominantShare": MetricKind("share", 0),
    "balance": MetricKind("number"),
    "jain": MetricKind("number", 1),
    "skew": MetricKind("number"),
    "fragmentation": MetricKind("share"),
    "stranded": MetricKind("share"),
    "fragmented": MetricKind("share"),
    "preemptions": MetricKind("count"),
    "attempts": MetricKind("count"),
    "decisionsPerSecond": MetricKind("count", 1),
}
_TITLES: Final = {
    "newPending": "new pending",
    "notCreated": "not created",
    "nodesUsed": "nodes used",
    "dominantShare": "dominant share",
    "preemptions.victims": "preempted",
    "preemptions.replaced": "preempted, replaced",
    "preemptions.budgetViolations": "budget violations",
    "decisionsPerSecond": "decisions/s",
    "moved.withinGroup": "moved within the group",
    "moved.toAnotherGroup": "moved to another group",
    "moved.toAnotherZone": "moved to another zone",
}
#: Values below this round to 0 and get no sign.
_NOTHING: Final = 0.0005
_AFTER: Final = {"utilisation": "used", "balance": "σ", "jain": "Jain", "stranded": "stranded", "fragmented": "fragmented"}  # noqa: RUF001


def kind_of(name: str) -> MetricKind:
    """Return the kind of a metric. For a name that ends in %, it is a share."""
    if name.endswith("%"):
        return MetricKind("share")
    return _KINDS.get(name.partition(".")[0], MetricKind("number", 0))


def title_of(name: str) -> str:
    """Return the title of a metric in a table: ``cpu used`` for ``utilisation.cpu``."""
    base = name.removesuffix(".mean")
    over_time = " over time" if base != name else ""
    if base in _TITLES:
        return _TITLES[base] + over_time
    head, _, rest = base.partition(".")
    if head in _AFTER and rest:
        return f"{rest} {_AFTER[head]}{over_time}"
    return f"{head} {rest}".strip() + over_time


def amount_text(name: str, value: float | None) -> str:
    """Write a value of a metric: ``12``, ``1.2s``, ``38.2%``, ``0.083``, ``never`` for an infinite wait."""
    if value is None:
        return "?"
    unit = kind_of(name).unit
    if abs(value) < _NOTHING:
        value = 0.0
    if math.isinf(value):
        return "never" if unit == "seconds" else "∞"
    if unit == "share":
        return f"{100 * value:.1f}%"
    if unit == "seconds":
        return f"{_short(value, 3)}s"
    return _short(value, {"count": 1, "price": 4}.get(unit, 3))


def _short(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def difference_text(name: str, value: float | None) -> str:
    """Write a difference with its sign."""
    text = amount_text(name, value)
    if value is not None and math.isinf(value) and kind_of(name).unit == "seconds":
        return "never" if value > 0 else "ends"
    return text if value is None or text.startswith("-") or not text.strip("0.%s") else f"+{text}"
