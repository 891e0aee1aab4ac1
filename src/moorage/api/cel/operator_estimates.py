"""Estimate the maximum cost of CEL's operators and built-in functions from the known sizes of their operands.

Source  cel-go: checker/cost.go, functionCost
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from moorage.api.cel.call_estimates import TRAVERSAL, CallEstimate, EstimatedCall, matching
from moorage.api.cel.estimated_sizes import UNKNOWN, SizeRange, product, scaled

__all__ = ["estimate_operator"]

_TEXTS: Final = frozenset(["string, string", "bytes, bytes"])


def estimate_operator(call: EstimatedCall) -> CallEstimate:
    """Return the estimate of a call of an operator or a function of CEL; 1 for most."""
    estimate = _ESTIMATES.get(call.function)
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
_ESTIMATES: Final[Mapping[str, Callable[[EstimatedCall], CallEstimate]]] = {
    "_&&_": _logical, "_||_": _logical, "_==_": _compared, "_!=_": _compared, "_<_": _ordered, "_<=_": _ordered,
    "_>_": _ordered, "_>=_": _ordered, "@in": _in, "format": _format, "startsWith": _at_an_end, "endsWith": _at_an_end,
    "contains": _contains, "matches": _matches, "bytes": _bytes, "string": _string, "strings.quote": _quote,
}  # fmt: skip
