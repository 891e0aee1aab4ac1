"""Estimate the maximum cost of operators and function calls and the sizes of their results from the sizes of the operands.

Source  apiserver: pkg/cel/library/cost.go, EstimateCallCost; cel-go: checker/cost.go, functionCost; ext/lists.go, ext/sets.go
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moorage.api.cel.syntax import Expr, Literal
from moorage.api.cel.types import Type

# Sizes that are known before an expression runs: of variables, by declaration, and of values derived from them.
#
# A size is a range: characters of a string, bytes, elements of a list, entries of a map. Numbers saturate at 64 bits, as in
# cel-go.
#
# Source  cel-go: checker/cost.go, SizeEstimate; apiserver: pkg/cel/types.go, DeclType

UNBOUNDED: Final = 2**64 - 1
ITEMS: Final = "@items"
VALUES: Final = "@values"
KEYS: Final = "@keys"


def total(*numbers: int) -> int:
    """Return the sum, at most UNBOUNDED."""
    return min(sum(numbers), UNBOUNDED)


def product(one: int, other: int) -> int:
    """Return the product, at most UNBOUNDED."""
    return min(one * other, UNBOUNDED)


def scaled(number: int, factor: float) -> int:
    """Return ``number * factor``, rounded up, at most UNBOUNDED."""
    found = float(number) * factor
    return UNBOUNDED if found >= 2.0**64 else math.ceil(found)


class SizeRange(NamedTuple):
    """The least and the greatest size of a value."""

    least: int
    most: int

    @classmethod
    def exactly(cls, size: int) -> SizeRange:
        return cls(size, size)

    def plus(self, other: SizeRange) -> SizeRange:
        return SizeRange(total(self.least, other.least), total(self.most, other.most))

    def times(self, other: SizeRange) -> SizeRange:
        return SizeRange(product(self.least, other.least), product(self.most, other.most))

    def union(self, other: SizeRange) -> SizeRange:
        return SizeRange(min(self.least, other.least), max(self.most, other.most))


UNKNOWN: Final = SizeRange(0, UNBOUNDED)
#: Returns the size of the value at a path from a variable, None if the path leads nowhere.
SizeLookup = Callable[[Sequence[str]], SizeRange | None]


@dataclass(frozen=True, slots=True)
class DeclaredSize:
    """The size of a variable's value, and of the values inside it.

    ``least_bytes``: the fewest bytes that it takes as JSON. ``others``: the size of every field that is not in ``fields``.
    """

    most: int = 0
    least_bytes: int = 0
    items: DeclaredSize | None = None
    fields: Mapping[str, DeclaredSize] = field(default_factory=dict)
    others: DeclaredSize | None = None
    keys: DeclaredSize | None = None

    def at(self, names: Iterable[str]) -> SizeRange | None:
        """Return the size of the value at a path of names: fields, ``@items``, ``@keys`` and ``@values``."""
        found: DeclaredSize | None = self
        for name in names:
            if found is None:
                return None
            if name in {ITEMS, VALUES}:
                found = found.items
            else:
                found = found.keys if name == KEYS else found.fields.get(name, found.others)
        return None if found is None else SizeRange(0, found.most % 2**64)


class FieldPath:
    """The way from a variable to a value, which shares its memory with the paths that it was made from, as Go's slices do.

    cel-go appends to such slices: of two paths made from one, the later may overwrite the last name of the earlier. What it
    estimates depends on this, and so does which rules kube-apiserver accepts.
    """

    __slots__ = ("_held", "_size")

    def __init__(self, held: list[str], size: int) -> None:
        self._held = held
        self._size = size

    @classmethod
    def of(cls, name: str) -> FieldPath:
        return cls([name], 1)

    def plus(self, name: str) -> FieldPath:
        """Return the path with one more name."""
        held = self._held
        if self._size == len(held):
            held = [*held, *[""] * max(1, len(held))]
        held[self._size] = name
        return FieldPath(held, self._size + 1)

    @property
    def names(self) -> list[str]:
        """The names as they are now."""
        return self._held[: self._size]


#: The cost of reading a character, and of a character of a pattern.
TRAVERSAL: Final = 0.1
_PATTERN: Final = 0.25
_NEW_LIST: Final = 10
#: The longest pattern that a named format stands for, and the longest name of a format.
_LONGEST_PATTERN: Final = 128
_LONGEST_FORMAT: Final = 64
_NETWORK_BYTES: Final = 16
#: The longest list that ``includes`` searches.
_MOST_INCLUDED: Final = 48


class CallEstimate(NamedTuple):
    """The maximum cost of a call without its operands, and the size of its result; None if that is not known."""

    cost: int
    size: SizeRange | None = None


class Operand(NamedTuple):
    """An operand of a call. ``path`` leads to it from a variable. ``size`` is None if the expression does not determine it."""

    type: Type
    path: FieldPath | None = None
    size: SizeRange | None = None
    node: Expr | None = None


class EstimatedCall(NamedTuple):
    function: str
    overload: str
    target: Operand | None
    args: tuple[Operand, ...]
    lookup: SizeLookup

    def size(self, operand: Operand | None) -> SizeRange:
        """Return the size of an operand; from 0 to UNBOUNDED if it is not known."""
        if operand is None:
            return UNKNOWN
        names = [] if operand.path is None else operand.path.names
        return operand.size or (self.lookup(names) if names else None) or UNKNOWN

    @property
    def given(self) -> str:
        """The types of the operands in the signature of the overload."""
        return self.overload.partition(": ")[2].partition(" ->")[0]

    @property
    def first(self) -> SizeRange:
        return self.size(self.args[0])

    @property
    def receiver(self) -> SizeRange:
        return self.size(self.target)

    @property
    def element(self) -> Operand | None:
        """An element of the target, None if the target is no list."""
        if self.target is None or not self.target.type.params:
            return None
        path = self.target.path
        return Operand(
            self.target.type.params[0], None if path is None else FieldPath([*path.names, ITEMS], len(path.names) + 1)
        )


_Estimate = Callable[[EstimatedCall], CallEstimate | None]


def estimate_call(call: EstimatedCall) -> CallEstimate | None:
    """Return the estimate for a call of a library function, None for other calls."""
    estimate = _ESTIMATES.get(call.function)
    return None if estimate is None else estimate(call)


# -- strings ---------------------------------------------------------------------------------------------------------------


def _read_first(factor: float = TRAVERSAL) -> _Estimate:
    return lambda call: CallEstimate(scaled(call.first.most, factor)) if call.args else None


def _changed(call: EstimatedCall) -> CallEstimate | None:
    return CallEstimate(scaled(call.receiver.most, TRAVERSAL), call.receiver)


def _url(call: EstimatedCall) -> CallEstimate | None:
    return CallEstimate(scaled(call.first.most, TRAVERSAL), call.first)


def _replace(call: EstimatedCall) -> CallEstimate | None:
    held, old, new = call.receiver, call.first, call.size(call.args[1])
    most, kept = _replaced(held.most, old.least, new.most <= old.least)
    least, kept_least = _replaced(held.least, old.most, old.most <= new.least)
    size = SizeRange(least, most).times(new).plus(SizeRange(kept_least, kept))
    return CallEstimate(scaled(held.most, 2 * TRAVERSAL), size)


def _replaced(length: int, part: int, is_kept: bool) -> tuple[int, int]:
    """Return how often a part of a text can be replaced, and how many characters of the text then remain."""
    if part == 0:
        return min(length + 1, UNBOUNDED), length
    return (0, length) if is_kept else (min(-(-length // part), UNBOUNDED), 0)


def _split(call: EstimatedCall) -> CallEstimate | None:
    limit = _literal(call.args[1]) if len(call.args) > 1 else None
    most = call.receiver.most if limit is None else limit % 2**64
    return CallEstimate(scaled(call.receiver.most, 2 * TRAVERSAL), SizeRange(0, most))


def _join(call: EstimatedCall) -> CallEstimate | None:
    count, element = call.receiver, call.element
    size = SizeRange(0, 0) if element is None else count.times(call.size(element))
    if call.args:
        between = SizeRange(max(count.least - 1, 0), max(count.most - 1, 0))
        size = size.plus(call.first.times(between))
    return CallEstimate(scaled(size.most, TRAVERSAL), size)


def _find(call: EstimatedCall) -> CallEstimate | None:
    return CallEstimate(matching(call), SizeRange(0, call.receiver.most))


def matching(call: EstimatedCall) -> int:
    """Return the cost of matching the target against a pattern."""
    return product(scaled(total(call.receiver.most, 1), TRAVERSAL), scaled(call.first.most, _PATTERN))


# -- lists -----------------------------------------------------------------------------------------------------------------


def _walk(call: EstimatedCall) -> CallEstimate | None:
    if call.target is None:
        return None
    element = call.element
    if element is None:  # a text, for ``indexOf``
        return CallEstimate(scaled(call.receiver.most, TRAVERSAL))
    of_text = scaled(call.size(element).most, TRAVERSAL) if element.type.kind in {"string", "bytes"} else 0
    return CallEstimate(product(call.receiver.most, total(1, of_text)))


def _new_list(factor: float, size: SizeRange) -> CallEstimate:
    return CallEstimate(total(scaled(size.most, factor), 1, _NEW_LIST), size)


def _literal(operand: Operand) -> int | None:
    """Return the value of an integer literal, None for everything else."""
    value = operand.node.value if isinstance(operand.node, Literal) else None
    return value if type(value) is int else None


def _number(operand: Operand, default: int) -> int:
    """Return the value of an integer literal, not below 0; ``default`` for everything else."""
    value = _literal(operand)
    return default if value is None else max(value, 0)


def _slice(call: EstimatedCall) -> CallEstimate | None:
    start, end = _number(call.args[0], 0), _number(call.args[1], call.receiver.most)
    return _new_list(1, SizeRange.exactly((end - start) % 2**64))


def _flatten(call: EstimatedCall) -> CallEstimate | None:
    depth = _number(call.args[0], UNBOUNDED) if call.args else 1
    return _new_list(float(depth), call.receiver)


def _sort(call: EstimatedCall) -> CallEstimate | None:
    size = call.first if call.args else call.receiver
    is_text = "list<string>" in call.overload or "list<bytes>" in call.overload
    return _new_list(2 + TRAVERSAL * is_text, size.times(size))


def _sets(factor: float) -> _Estimate:
    def estimate(call: EstimatedCall) -> CallEstimate | None:
        crossed = product(call.first.most, call.size(call.args[1]).most)
        return CallEstimate(total(scaled(crossed, factor), 1))

    return estimate


# -- other types -----------------------------------------------------------------------------------------------------------


def _ip(call: EstimatedCall) -> CallEstimate | None:
    return CallEstimate(scaled(call.first.most, TRAVERSAL) if call.args else 1)


def _contains_network(more: int) -> _Estimate:
    def estimate(call: EstimatedCall) -> CallEstimate | None:
        of_text = scaled(call.first.most, TRAVERSAL) if call.given.endswith("string") else 0
        return CallEstimate(total(scaled(2 * _NETWORK_BYTES, TRAVERSAL), more, of_text))

    return estimate


def _validate(call: EstimatedCall) -> CallEstimate | None:
    return CallEstimate(scaled(scaled(call.first.most, TRAVERSAL), _LONGEST_PATTERN * _PATTERN))


def _equal(call: EstimatedCall) -> CallEstimate | None:
    """Return the estimate for values of types that Kubernetes adds, None for all others."""
    one, other = call.args
    if one.type != other.type:
        return None
    match one.type.name:
        case "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver":
            return CallEstimate(1)
        case "kubernetes.NamedFormat":
            return CallEstimate(scaled(_LONGEST_FORMAT, TRAVERSAL))
        case "kubernetes.URL":
            return CallEstimate(scaled(1 if other.size is None else other.size.most, TRAVERSAL))
        case _:
            return None


def _each(names: Iterable[str], estimate: _Estimate) -> dict[str, _Estimate]:
    return dict.fromkeys(names, estimate)


_ESTIMATES: Final[Mapping[str, _Estimate]] = {
    **_each(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _walk),
    **_each(("lowerAscii", "upperAscii", "substring", "trim"), _changed),
    **_each(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _read_first()),
    **_each(("masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast",
             "isGlobalUnicast", "format.named", "sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan",
             "isLessThan", "compareTo", "add", "sub", "major", "minor", "patch", "getScheme", "getHostname", "getHost",
             "getPort", "getEscapedPath", "getQuery"), lambda _: CallEstimate(1)),
    **_each(("find", "findAll"), _find), **_each(("sort", "@sortByAssociatedKeys"), _sort),
    **_each(("sets.contains", "sets.intersects"), _sets(1)), "sets.equivalent": _sets(2),
    "url": _url, "replace": _replace, "split": _split, "join": _join, "ip": _ip, "_==_": _equal,
    "ip.isCanonical": _read_first(2 * TRAVERSAL), "validate": _validate, "includes": lambda _: CallEstimate(_MOST_INCLUDED),
    "containsIP": _contains_network(0), "containsCIDR": _contains_network(scaled(_NETWORK_BYTES, TRAVERSAL) + 1),
    "slice": _slice, "flatten": _flatten, "distinct": lambda call: _new_list(2, call.receiver.times(call.receiver)),
    "reverse": lambda call: _new_list(1, call.receiver),
    "lists.range": lambda call: _new_list(1, SizeRange.exactly(_number(call.args[0], UNBOUNDED))),
}  # fmt: skip


# -- operator estimates ------------------------------------------------------------------------------------------------
# Estimate the maximum cost of CEL's operators and built-in functions from the known sizes of their operands.
#
# Source  cel-go: checker/cost.go, functionCost

_TEXTS: Final = frozenset(["string, string", "bytes, bytes"])


def estimate_operator(call: EstimatedCall) -> CallEstimate:
    """Return the estimate of a call of an operator or a function of CEL; 1 for most."""
    estimate = _OPERATORS.get(call.function)
    return CallEstimate(1) if estimate is None else estimate(call)


def _sizes(call: EstimatedCall) -> list[SizeRange]:
    return [one.size or UNKNOWN for one in call.args]


def _receiver(call: EstimatedCall) -> SizeRange:
    return (call.target.size if call.target else None) or UNKNOWN


def _logical(_: EstimatedCall) -> CallEstimate:
    return CallEstimate(0)


def _compared(call: EstimatedCall) -> CallEstimate:
    return CallEstimate(scaled(min(one.most for one in _sizes(call)), TRAVERSAL))


def _ordered(call: EstimatedCall) -> CallEstimate:
    return _compared(call) if call.given in _TEXTS else CallEstimate(1)


def _in(call: EstimatedCall) -> CallEstimate:
    return CallEstimate(_sizes(call)[1].most if call.given == "A, list<A>" else 1)


def _format(call: EstimatedCall) -> CallEstimate:
    return CallEstimate(scaled(_receiver(call).most, TRAVERSAL))


def _at_an_end(call: EstimatedCall) -> CallEstimate:
    return CallEstimate(scaled(_sizes(call)[0].most, TRAVERSAL))


def _contains(call: EstimatedCall) -> CallEstimate:
    return CallEstimate(product(scaled(_receiver(call).most, TRAVERSAL), scaled(_sizes(call)[0].most, TRAVERSAL)))


def _matches(call: EstimatedCall) -> CallEstimate:
    return CallEstimate(1 if call.target is None else matching(call._replace(lookup=lambda _: None)))


def _bytes(call: EstimatedCall) -> CallEstimate:
    if call.given != "string":
        return CallEstimate(1)
    size = _sizes(call)[0]
    return CallEstimate(scaled(size.most, TRAVERSAL), SizeRange(size.least, size.most * 4 % 2**64))


def _string(call: EstimatedCall) -> CallEstimate:
    if call.given != "bytes":
        return CallEstimate(1)
    size = _sizes(call)[0]
    return CallEstimate(scaled(size.most, TRAVERSAL), SizeRange(size.least // 4, size.most))


def _quote(call: EstimatedCall) -> CallEstimate:
    size = _sizes(call)[0]
    quoted = SizeRange((size.least + 2) % 2**64, (size.most * 2 + 2) % 2**64)
    return CallEstimate(scaled(size.most, TRAVERSAL), quoted)


#: As in cel-go, the sizes of some results wrap around at 64 bits.
_OPERATORS: Final[Mapping[str, Callable[[EstimatedCall], CallEstimate]]] = {
    "_&&_": _logical, "_||_": _logical, "_==_": _compared, "_!=_": _compared, "_<_": _ordered, "_<=_": _ordered,
    "_>_": _ordered, "_>=_": _ordered, "@in": _in, "format": _format, "startsWith": _at_an_end, "endsWith": _at_an_end,
    "contains": _contains, "matches": _matches, "bytes": _bytes, "string": _string, "strings.quote": _quote,
}  # fmt: skip
