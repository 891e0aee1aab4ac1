"""The fault types of the API server, in its words, and checks that many objects share.

Each check is a generator that yields nothing for a valid value. Paths are texts such as ``spec.containers[0].name``.

Source  apimachinery, pkg/util/validation/field/errors.go; pkg/apis/meta/v1/validation/validation.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from moorage.api.meta import Quantity
from moorage.api.names import check_dns1123_label, check_label_value, check_qualified_name
from moorage.api.quantity import QuantityError, canonical, parse
from moorage.errors import Fault

Faults: TypeAlias = Iterator[Fault]
INT32_MAX: Final = 2**31 - 1
NOT_NEGATIVE: Final = "must be greater than or equal to 0"
POSITIVE: Final = "must be greater than zero"


def invalid(path: str, value: object, detail: str) -> Fault:
    """Return the fault of a value that violates a rule."""
    return Fault("Invalid value", path, detail, value)


def required(path: str, detail: str = "") -> Fault:
    """Return the fault of a missing value."""
    return Fault("Required value", path, detail)


def duplicate(path: str, value: object, detail: str = "") -> Fault:
    """Return the fault of a value that occurs twice."""
    return Fault("Duplicate value", path, detail, value)


def forbidden(path: str, detail: str) -> Fault:
    """Return the fault of a field that must not be set."""
    return Fault("Forbidden", path, detail)


def unsupported(path: str, value: object, supported: Iterable[str]) -> Fault:
    """Return the fault of a value that is not supported."""
    return Fault("Unsupported value", path, "supported values: " + ", ".join(f'"{one}"' for one in supported), value)


def too_long(path: str, most: int) -> Fault:
    """Return the fault of a text, or a map, above a number of bytes."""
    return Fault("Too long", path, f"may not be more than {most} bytes")


def too_many(path: str, count: int, most: int) -> Fault:
    """Return the fault of a list with too many items."""
    return Fault("Too many", path, f"must have at most {most} item{'' if most == 1 else 's'}", count)


# -- numbers ------------------------------------------------------------------------------------------------------------


def int32(path: str, value: int | None) -> Faults:
    """Yield the fault of a number beyond 32 bits. A real API server rejects it while decoding."""
    if value is not None and not -INT32_MAX - 1 <= value <= INT32_MAX:
        yield invalid(path, value, "must be a 32-bit integer")


def in_range(path: str, value: int | None, least: int, most: int, shown: str = "") -> Faults:
    """Yield the fault of a number outside a range. ``shown`` replaces the range in the message."""
    if value is not None and not least <= value <= most:
        yield invalid(path, value, shown or f"must be between {least} and {most}, inclusive")


def nonnegative(path: str, value: int | None) -> Faults:
    """Yield the fault of a negative number."""
    if value is not None and value < 0:
        yield invalid(path, value, NOT_NEGATIVE)
    yield from int32(path, value)


def positive(path: str, value: int | None) -> Faults:
    """Yield the fault of a number that is not above zero."""
    if value is not None and value <= 0:
        yield invalid(path, value, POSITIVE)
    yield from int32(path, value)


def quantity(path: str, value: Quantity, *, integer: bool = False) -> Faults:
    """Yield the faults of a quantity: invalid, negative, or with a fraction although ``integer`` is true."""
    try:
        nano = parse(value)
    except QuantityError as error:
        yield invalid(path, value, str(error))
        return
    if nano < 0:
        yield invalid(path, canonical(value), NOT_NEGATIVE)
    if integer and nano % 10**9:
        yield invalid(path, canonical(value), "must be an integer")


def any_quantity(path: str, value: Quantity) -> Faults:
    """Yield the fault of a text that is no quantity. Amounts of devices may be below zero."""
    try:
        parse(value)
    except QuantityError as error:
        yield invalid(path, value, str(error))


def positive_quantity(path: str, value: Quantity) -> Faults:
    """Yield the fault of a quantity that is not above zero."""
    try:
        is_positive = parse(value) > 0
    except QuantityError as error:
        yield invalid(path, value, str(error))
        return
    if not is_positive:
        yield invalid(path, canonical(value), POSITIVE)


# -- names and labels ---------------------------------------------------------------------------------------------------


def named(path: str, value: str, check: Callable[[str], list[str]] = check_dns1123_label) -> Faults:
    """Yield the faults of a name, according to ``check``."""
    for fault in check(value):
        yield invalid(path, value, fault)


def member(path: str, value: str, seen: set[str]) -> Faults:
    """Yield the faults of a list entry's name: missing, not a DNS label, or in ``seen``; add the name to ``seen``."""
    if not value:
        yield required(path)
        return
    yield from named(path, value)
    if value in seen:
        yield duplicate(path, value)
    seen.add(value)


def one_of(path: str, value: str | None, supported: Iterable[str]) -> Faults:
    """Yield the fault of an unsupported value. None means that the field is unset."""
    if value is not None and value not in supported:
        yield unsupported(path, value, supported)


def label_name(path: str, key: str) -> Faults:
    """Yield the faults of a label key."""
    yield from named(path, key, check_qualified_name)


def labels(path: str, given: Mapping[str, str]) -> Faults:
    """Yield the faults of label keys and values. As in the API server, the path is that of the whole map."""
    for key, value in given.items():
        yield from label_name(path, key)
        yield from named(path, value, check_label_value)
