"""Validation of LimitRanges: standard types, the names of resources, and amounts that contradict each other.

Source  kubernetes, pkg/apis/core/validation/validation.go, ValidateLimitRange
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from moorage.api.names import check_qualified_name, is_native_resource
from moorage.api.quantity import QuantityError, parse
from moorage.api.validation.faults import invalid, required
from moorage.api.validation.resources import container_name_faults, standard_name_faults
from moorage.apiserver.vocabulary.records import Document
from moorage.errors import Fault

__all__ = ["limit_faults"]

Faults = Iterator[Fault]
_TYPES: Final = frozenset(["Container", "PersistentVolumeClaim", "Pod"])
_OF_CONTAINERS: Final = frozenset(["Container", "Pod"])
_DEFAULTS: Final = ("default", "defaultRequest")
_PARTS: Final = ("max", "min", *_DEFAULTS, "maxLimitRequestRatio")
#: Pairs of fields of which the first must not exceed the second; the field that a fault names; and the names of both in its
#: text.
_ORDER: Final = (
    ("min", "max", "min", "min value", "max value"),
    ("min", "defaultRequest", "defaultRequest", "min value", "default request value"),
    ("defaultRequest", "max", "defaultRequest", "default request value", "max value"),
    ("defaultRequest", "default", "defaultRequest", "default request value", "default limit value"),
    ("min", "default", "default", "min value", "default value"),
    ("default", "max", "default", "default value", "max value"),
)
_ONE: Final = 10**9
#: Ratios from this value on are compared as whole numbers.
_MOST_MILLI: Final = (2**63 - 1) // 1000


def limit_faults(found: Document) -> Faults:
    """Yield the faults of the limits of a LimitRange, beyond what admission reads."""
    for i, limit in enumerate((found.get("spec") or {}).get("limits") or ()):
        kind, path = limit.get("type") or "", f"spec.limits[{i}]"
        if not check_qualified_name(kind) and "/" not in kind and kind not in _TYPES:
            yield invalid(f"{path}.type", kind, "must be a standard limit type or fully qualified")
        yield from _limit_faults(path, kind, limit)


def _limit_faults(path: str, kind: str, limit: Document) -> Faults:
    amounts = {part: limit.get(part) or {} for part in _PARTS if not (kind == "Pod" and part in _DEFAULTS)}
    check = container_name_faults if kind in _OF_CONTAINERS else standard_name_faults
    for part, given in amounts.items():
        for name in given:
            yield from check(f"{path}.{part}[{name}]", name)
    if kind == "PersistentVolumeClaim" and "storage" not in amounts["min"] and "storage" not in amounts["max"]:
        yield required(f"{path}.limits", "either minimum or maximum storage value is required, but neither was provided")
    for name in dict.fromkeys(name for given in amounts.values() for name in given):
        yield from _amount_faults(path, name, {part: given[name] for part, given in amounts.items() if name in given})


def _amount_faults(path: str, name: str, amounts: Mapping[str, Any]) -> Faults:
    try:
        values = {part: parse(amount) for part, amount in amounts.items()}
    except QuantityError:
        return
    for low, high, at, low_words, high_words in _ORDER:
        if low in values and high in values and values[low] > values[high]:
            why = f"{low_words} {amounts[low]} is greater than {high_words} {amounts[high]}"
            yield invalid(f"{path}.{at}[{name}]", amounts[_shown(low, high, at)], why)
    yield from _ratio_faults(f"{path}.maxLimitRequestRatio[{name}]", amounts, values)
    asked, default = values.get("defaultRequest"), values.get("default")
    if not _may_overcommit(name) and asked is not None and default is not None and asked != default:
        why = f"default value {amounts['default']} must equal to defaultRequest value {amounts['defaultRequest']} in {name}"
        yield invalid(f"{path}.defaultRequest[{name}]", amounts["defaultRequest"], why)


def _shown(low: str, high: str, at: str) -> str:
    """Return the field whose amount the message shows. For a default this is the field that it contradicts."""
    if at == "default":
        return high if low == "default" else low
    return at


def _ratio_faults(path: str, amounts: Mapping[str, Any], values: Mapping[str, int]) -> Faults:
    ratio, low, high = (values.get(part) for part in ("maxLimitRequestRatio", "min", "max"))
    if ratio is None:
        return
    shown = amounts["maxLimitRequestRatio"]
    if ratio < _ONE:
        yield invalid(path, shown, f"ratio {shown} is less than 1")
    if low is None or high is None:
        return
    unit = _ONE // 1000 if max(ratio, low, high) < _MOST_MILLI * _ONE else _ONE
    low, high, scale = (-(-low // unit), -(-high // unit), 1000 if unit < _ONE else 1)
    most = high / low if low else float("inf") if high else float("nan")
    if -(-ratio // unit) / scale > most:
        yield invalid(path, shown, f"ratio {shown} is greater than max/min = {most:f}")


def _may_overcommit(name: str) -> bool:
    return is_native_resource(name) and not name.startswith("hugepages-")
