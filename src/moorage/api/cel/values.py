"""The values of expressions as Python objects, with their equality and order.

``int`` is CEL's int (64 bits, checked where it is computed), ``UInt`` its uint, ``float`` its double; bool, str, bytes and None
are themselves; a list is a tuple or a list, a map is a ``Map``. Types without a counterpart in Python have a class here.

Source  cel-go: common/types; apiserver/pkg/cel/quantity.go, semver.go
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias

from moorage.api.cel import types
from moorage.api.cel.bounds import EvalError
from moorage.api.cel.functions.quantities import Quantity
from moorage.api.cel.functions.semver import Semver
from moorage.api.cel.functions.times import DURATION_NAME, TIMESTAMP_NAME, Duration, Instant, Timestamp
from moorage.api.cel.types import Type, typed

# The values of Kubernetes' types for CEL: URLs, addresses, networks and named formats.


@dataclass(frozen=True, slots=True)
class Url:
    """An absolute URL, taken apart. Two are equal if their texts are."""

    text: str
    scheme: str
    host: str
    hostname: str
    port: str
    path: str
    query: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class CelAddress:
    """An IP address."""

    ip: ipaddress.IPv4Address | ipaddress.IPv6Address

    def __str__(self) -> str:
        return str(self.ip)


@dataclass(frozen=True, slots=True)
class CelNetwork:
    """An address with the length of its network's prefix; bits after the prefix may be set."""

    ip: ipaddress.IPv4Address | ipaddress.IPv6Address
    bits: int

    @property
    def masked(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        """The network without the bits after its prefix."""
        return _masked(self.ip, self.bits)

    def __str__(self) -> str:
        return f"{self.ip}/{self.bits}"


@lru_cache(256)
def _masked(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, bits: int) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(f"{ip}/{bits}", strict=False)


@dataclass(frozen=True, slots=True)
class Format:
    """A named format. ``check`` returns what is wrong with a text; ``pattern_size`` is the size of its pattern, for costs."""

    name: str
    check: Callable[[str], list[str]] = field(compare=False)
    pattern_size: int


INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1

#: Any value of an expression.
Value: TypeAlias = Any


class UInt(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()


class TypeValue:
    """A type as a value: the result of ``type(x)``, and the meaning of identifiers such as ``int``."""

    __slots__ = ("type",)

    def __init__(self, of: Type) -> None:
        self.type = of


class Optional:
    """An optional value; ``NONE`` is the empty one."""

    __slots__ = ("has_value", "held")

    def __init__(self, held: Value = None, *, has_value: bool = True) -> None:
        self.held = held
        self.has_value = has_value


NONE: Final = Optional(has_value=False)


class Map:
    """A map. Equal numbers are the same key, whatever their types; a bool is not a number.

    ``default`` is the result for a missing key (which still is not "in" the map); None means that a missing key is an error.
    """

    __slots__ = ("_entries", "default")

    def __init__(self, entries: Iterable[tuple[Value, Value]] = (), default: Value = None) -> None:
        self._entries: dict[Value, tuple[Value, Value]] = {_key(key): (key, value) for key, value in entries}
        self.default = default

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Value]:
        """Yield the keys in insertion order."""
        for key, _ in self._entries.values():
            yield key

    def __contains__(self, key: Value) -> bool:
        return _key(key) in self._entries

    def items(self) -> Iterator[tuple[Value, Value]]:
        yield from self._entries.values()

    def find(self, key: Value) -> tuple[Value, bool]:
        """Return the value of a key, and whether the key exists."""
        found = self._entries.get(_key(key))
        if found is not None:
            return found[1], True
        return (self.default, True) if self.default is not None else (None, False)

    def with_entries(self, entries: Map) -> Map:
        """Return a map with more entries.

        Raises  EvalError if a key exists
        """
        for key in entries:
            if key in self:
                raise EvalError(f"insert failed: key {show(key)} already exists")
        return self._joined(entries)

    def _joined(self, entries: Map) -> Map:
        return Map([*self.items(), *entries.items()])


class Growing(list[Any]):
    """The list that a fold builds. Elements are appended in place, as no other code sees the list before it is complete."""

    __slots__ = ()


class GrowingMap(Map):
    """The map that a fold builds. Entries are added in place."""

    __slots__ = ()

    def _joined(self, entries: Map) -> Map:
        self._entries.update(entries._entries)
        return self


EMPTY_MAP: Final = Map()


# -- authorization values ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RightsDecision:
    """Whether a request is allowed, and why; ``error`` is set if that is not known."""

    is_allowed: bool
    reason: str = ""
    error: str = ""

    def __str__(self) -> str:
        return f"Allowed: {str(self.is_allowed).lower()}, reason: {self.reason}"


#: Decides about a request of a user, None for the one who makes the request that is judged. Its parts are verb, path, group,
#: resource, subresource, namespace, name, fieldSelector and labelSelector.
Decide = Callable[["str | None", Mapping[str, str]], RightsDecision]


@dataclass(frozen=True, slots=True)
class _Check:
    decide: Decide
    user: str | None
    parts: Mapping[str, str]


class PathCheck(_Check):
    """A request for a path."""


class GroupCheck(_Check):
    """A request for a resource of an API group, which is not named yet."""


class ResourceCheck(_Check):
    """A request for a resource."""


class AuthorizerValue(Map):
    """Who decides about requests of a user. Its field ``requestResource`` is the resource of the request that is judged."""

    __slots__ = ("decide", "resource", "user")

    def __init__(self, decide: Decide, user: str | None, resource: Mapping[str, str]) -> None:
        super().__init__([("requestResource", ResourceCheck(decide, user, resource))])
        self.decide, self.user, self.resource = decide, user, resource


def _key(key: Value) -> Value:
    if isinstance(key, bool):
        return (key,)
    return key if isinstance(key, (int, float, str)) else (type_name(key), id(key))


def no_such_overload() -> EvalError:
    """Return the error for operands that an operator or function does not support."""
    return EvalError("no such overload")


LIST_TYPE: Final = Type("list")
MAP_TYPE: Final = Type("map")
TYPE_TYPE: Final = Type("type")
OPTIONAL_TYPE: Final = Type("opaque", "optional_type")
#: Class of a value → its type; lists and maps without those of their elements.
TYPES: Final[dict[type[Any], Type]] = {
    bool: types.BOOL, int: types.INT, UInt: types.UINT, float: types.DOUBLE, str: types.STRING, bytes: types.BYTES,
    type(None): types.NULL, tuple: LIST_TYPE, list: LIST_TYPE, Growing: LIST_TYPE, Map: MAP_TYPE, GrowingMap: MAP_TYPE,
    TypeValue: TYPE_TYPE, Optional: OPTIONAL_TYPE, Quantity: types.QUANTITY, Semver: types.SEMVER, Timestamp: types.TIMESTAMP,
    AuthorizerValue: typed("authorizer"), PathCheck: typed("pathcheck"), GroupCheck: typed("groupcheck"),
    ResourceCheck: typed("resourcecheck"), RightsDecision: typed("decision"), Duration: types.DURATION, Url: typed("url"),
    CelAddress: typed("ip"), CelNetwork: typed("cidr"), Format: typed("format"),
}  # fmt: skip
#: Types whose values have another name in messages at run time.
_NAMES: Final = {"timestamp": TIMESTAMP_NAME, "duration": DURATION_NAME, "any": "google.protobuf.Any", "null": "null_type"}
_GO: Final = {bool: "Bool", int: "Int", UInt: "Uint", float: "Double", str: "String", bytes: "Bytes", type(None): "Null"}


def type_name(value: Value) -> str:
    """Return the name of a value's type as run-time messages show it."""
    return name_of(TYPES.get(type(value), types.DYN))


def name_of(of: Type) -> str:
    """Return the name of a type as run-time messages show it."""
    name = of.name or of.kind
    return _NAMES.get(name, name)


def go_type(value: Value) -> str:
    """Return the name of the Go type in which cel-go holds such a value."""
    if isinstance(value, Quantity):
        return "*cel.Quantity" if value.computed else "cel.Quantity"
    if isinstance(value, Semver):
        return "cel.Semver"
    if isinstance(value, (Optional, TypeValue)):
        return "*types.Optional" if isinstance(value, Optional) else "*types.Type"
    return f"types.{_GO.get(type(value), 'Val')}"


def show(value: Value) -> str:
    """Return a value as messages show it, of texts and bytes the first 65,536."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    shown = value[:65_536] if isinstance(value, (str, bytes)) else value
    return type_name(value) if isinstance(value, (tuple, list, Map)) else str(shown)


def size_of(value: Value) -> int | None:
    """Return the number of characters, bytes, elements or entries; None for a value without size."""
    return len(value) if isinstance(value, (str, bytes, tuple, list, Map)) else None


_NUMBERS: Final = frozenset([int, UInt, float])
_LISTS: Final = (tuple, list)
#: The values that compare only with values of their own type.
_OF_THEIR_KIND: Final = (Quantity, Semver)


def equal(one: Value, other: Value) -> bool:
    """Return whether two values are equal. Numbers compare by value; other values of different types are not equal.

    Raises  EvalError for a quantity or a version compared with another type, as cel-go does
    """
    kind, its_kind = type(one), type(other)
    if kind in _NUMBERS and its_kind in _NUMBERS:
        return _numbers_equal(one, other)
    if one is None or other is None:
        return one is other
    if isinstance(one, _OF_THEIR_KIND):
        if type(other) is not type(one) or (isinstance(other, Quantity) and other.computed):
            raise no_such_overload()
        return one.compare(other) == 0  # type: ignore[arg-type]  # both are of one type
    if isinstance(one, _LISTS):
        return isinstance(other, _LISTS) and len(one) == len(other) and all(map(_not_unequal, one, other))
    if isinstance(one, Map):
        return isinstance(other, Map) and _maps_equal(one, other)
    return kind is its_kind and (_same_held(one, other) if kind in {Optional, TypeValue} else bool(one == other))


def are_equal(one: Value, other: Value) -> bool:
    """Return whether two values are equal. Values that cannot be compared are not."""
    try:
        return equal(one, other)
    except EvalError:
        return False


def _numbers_equal(one: Value, other: Value) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return False
        return _compare_numbers(one, other) == 0
    return int(one) == int(other)


def _not_unequal(one: Value, other: Value) -> bool:
    """Return False only if two parts are comparable and differ."""
    try:
        return equal(one, other)
    except EvalError:
        return True


def _maps_equal(one: Map, other: Map) -> bool:
    if len(one) != len(other):
        return False
    for key, value in one.items():
        its_value, found = other.find(key)
        if not found or not _not_unequal(value, its_value):
            return False
    return True


def _same_held(one: Value, other: Value) -> bool:
    """Return whether two optionals, or two types, are equal."""
    if isinstance(one, TypeValue):
        return (one.type.kind, one.type.name) == (other.type.kind, other.type.name)
    if not one.has_value or not other.has_value:
        return bool(one.has_value == other.has_value)
    return equal(one.held, other.held)


def compare(one: Value, other: Value) -> int:
    """Return -1, 0 or 1.

    Raises  EvalError for values without an order
    """
    kind, its_kind = type(one), type(other)
    if kind in _NUMBERS and its_kind in _NUMBERS:
        if (kind is float and math.isnan(one)) or (its_kind is float and math.isnan(other)):
            raise EvalError("NaN values cannot be ordered")
        return _compare_numbers(one, other)
    if kind is its_kind and kind in {str, bytes, bool}:
        if kind is str and not (one.isascii() and other.isascii()):
            one, other = one.encode(errors="surrogatepass"), other.encode(errors="surrogatepass")
        return int(one > other) - int(one < other)
    if kind is its_kind and isinstance(one, Instant):
        return int(one.nanos > other.nanos) - int(one.nanos < other.nanos)
    raise no_such_overload()


def _compare_numbers(one: Value, other: Value) -> int:
    """Compare as cel-go does: convert an integer to a double if the double is within the integer's range."""
    if isinstance(one, float) != isinstance(other, float):
        number, real = (other, one) if isinstance(one, float) else (one, other)
        least, most = (0, UINT_MAX) if isinstance(number, UInt) else (INT_MIN, INT_MAX)
        if real < least or real > most:
            order = 1 if real < least else -1
        else:
            order = int(float(number) > real) - int(float(number) < real)
        return -order if isinstance(one, float) else order
    return int(one > other) - int(one < other)


def as_cel(value: Any) -> Value:
    """Return plain data as CEL's values."""
    if isinstance(value, dict):
        return Map([(name, as_cel(inner)) for name, inner in value.items()])
    return [as_cel(one) for one in value] if isinstance(value, list | tuple) else value
