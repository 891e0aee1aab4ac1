"""Taints and tolerations: which taints of a node a pod tolerates.

A toleration without a key matches every key, without an effect every effect, and without an operator compares values for
equality. ``Lt`` and ``Gt`` compare the taint's value, as a number, with the toleration's; they require the feature gate
``TaintTolerationComparisonOperators``.

Source  api/core/v1/toleration.go, ToleratesTaint; component-helpers, scheduling/corev1/helpers.go
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from itertools import product
from typing import Final

from moorage.api.core import Taint, Toleration
from moorage.api.quantity import is_decimal_integer, parse_int64

#: Pods with more tolerations look them up.
_MANY: Final = 32


def tolerates(toleration: Toleration, taint: Taint, *, numeric: bool = False) -> bool:
    """Return True if the toleration tolerates the taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt" if numeric:
            return _compares(toleration, taint)
        case _:
            return False


def _compares(toleration: Toleration, taint: Taint) -> bool:
    """Compare two canonical integers; return False for anything else, as upstream does after logging it."""
    if not (is_decimal_integer(toleration.value) and is_decimal_integer(taint.value)):
        return False
    bound, value = parse_int64(toleration.value), parse_int64(taint.value)
    if bound is None or value is None:
        return False
    return value < bound if toleration.operator == "Lt" else value > bound


def find_untolerated(
    taints: Iterable[Taint],
    tolerations: Iterable[Toleration],
    effects: Container[str] | None = None,
    numeric: bool = False,
) -> Taint | None:
    """Return the first taint that no toleration tolerates, among taints with one of ``effects`` (None: all)."""
    is_tolerated = tolerance(tuple(tolerations), numeric)
    for taint in taints:
        if effects is not None and taint.effect not in effects:
            continue
        if not is_tolerated(taint):
            return taint
    return None


def tolerance(held: tuple[Toleration, ...], numeric: bool) -> Callable[[Taint], bool]:
    """Return a function that says whether one of the tolerations tolerates a taint."""
    if len(held) <= _MANY:
        return lambda taint: any(tolerates(toleration, taint, numeric=numeric) for toleration in held)
    exact = {(one.key, one.effect, None if one.operator == "Exists" else one.value) for one in held if one.operator in _EXACT}
    others = [one for one in held if numeric and one.operator not in _EXACT]

    def is_tolerated(taint: Taint) -> bool:
        forms = product((taint.key, ""), (taint.effect, ""), (taint.value, None))
        return not exact.isdisjoint(forms) or any(tolerates(one, taint, numeric=True) for one in others)

    return is_tolerated


_EXACT: Final = frozenset(["", "Equal", "Exists"])
