"""Helpers for table cells: field access, ages, selectors and containers in kubectl's format.

Source  kubernetes, pkg/printers/internalversion/printers.go; apimachinery, pkg/util/duration and pkg/labels
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final

from moorage.apiserver.vocabulary.records import Document

__all__ = [
    "NONE", "Cell", "age", "age_of", "at", "containers_of", "created_at", "epoch_of", "human_duration", "items", "name_of",
    "number", "pairs", "selector_of", "word",
]  # fmt: skip

Cell = str | int | float | bool | None
NONE: Final = "<none>"


# -- values ------------------------------------------------------------------------------------------------------------


def at(document: Mapping[str, Any], path: str, absent: Any = None) -> Any:
    """Return the value at a dotted path, or ``absent``."""
    current: Any = document
    for step in path.split("."):
        current = current.get(step) if isinstance(current, Mapping) else None
    return absent if current is None else current


def word(document: Mapping[str, Any], path: str, absent: str = "") -> str:
    """Return the string at a dotted path, or ``absent``."""
    return str(at(document, path) or absent)


def number(document: Mapping[str, Any], path: str) -> int:
    """Return the number at a dotted path, or 0."""
    return int(at(document, path, 0))


def items(document: Mapping[str, Any], path: str) -> list[Any]:
    """Return the list at a dotted path, or []."""
    found = at(document, path)
    return found if isinstance(found, list) else []


def name_of(document: Document) -> str:
    """Return an object's name."""
    return str(document["metadata"]["name"])


# -- times -------------------------------------------------------------------------------------------------------------


def human_duration(seconds: float) -> str:
    """Return a duration in kubectl's format, with up to two units: ``5m10s``, ``3d4h``, ``2y30d``."""
    left = int(seconds)
    if left < 0:
        return "<invalid>" if left < -1 else "0s"
    for limit, unit, big, small_unit, small in _STEPS:
        if left < limit:
            rest = left % big // small if small else 0
            return f"{left // big}{unit}" + (f"{rest}{small_unit}" if rest else "")
    return f"{left // _YEAR}y"


_DAY: Final = 86_400
_YEAR: Final = 365 * _DAY
#: Upper limit in seconds; unit and its seconds; smaller unit and its seconds.
_STEPS: Final = (
    (120, "s", 1, "", 0), (600, "m", 60, "s", 1), (10_800, "m", 60, "", 0), (28_800, "h", 3600, "m", 60),
    (172_800, "h", 3600, "", 0), (691_200, "d", _DAY, "h", 3600), (2 * _YEAR, "d", _DAY, "", 0),
    (8 * _YEAR, "y", _YEAR, "d", _DAY),
)  # fmt: skip


def epoch_of(when: Any) -> float | None:
    """Return an object's timestamp in seconds since 1970, or None if it is not a valid time."""
    if not isinstance(when, str):
        return None
    try:
        return datetime.datetime.fromisoformat(when).timestamp()
    except ValueError:
        return None


def age(when: Any, now: float) -> str:
    """Return how long ago a timestamp was."""
    then = epoch_of(when)
    return "<unknown>" if then is None else human_duration(now - then)


def age_of(document: Document, now: float) -> str:
    """Return the age of an object."""
    return age(document["metadata"].get("creationTimestamp"), now)


def created_at(document: Document) -> str:
    """Return the creation timestamp of an object."""
    return str(document["metadata"].get("creationTimestamp") or "")


# -- selectors and containers ------------------------------------------------------------------------------------------


def pairs(labels: Any) -> str:
    """Format labels, or a selector that is a map of labels, as ``a=1,b=2`` sorted by key; ``<none>`` without any."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) if labels else NONE


def selector_of(found: Any) -> str:
    """Return a ``LabelSelector`` in string form: ``app=web,tier in (a,b),!old``."""
    selector = found if isinstance(found, Mapping) else {}
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    terms += [(one["key"], _term(one)) for one in selector.get("matchExpressions") or ()]
    return ",".join(text for _, text in sorted(terms, key=lambda term: term[0])) or NONE


def _term(expression: Mapping[str, Any]) -> str:
    key, values = expression["key"], ",".join(sorted(expression.get("values") or ()))
    match expression.get("operator"):
        case "Exists":
            return str(key)
        case "DoesNotExist":
            return f"!{key}"
        case "NotIn":
            return f"{key} notin ({values})"
        case _:
            return f"{key} in ({values})"


def containers_of(spec: Any) -> list[Cell]:
    """Return the names and images of a pod's containers."""
    containers = items(spec or {}, "containers")
    return [",".join(str(one.get(name, "")) for one in containers) for name in ("name", "image")]
