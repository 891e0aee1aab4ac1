"""Taints and tolerations: which taints of a node a pod tolerates.

A toleration without a key matches every key, without an effect every effect, and without an operator compares values for
equality. ``Lt`` and ``Gt`` compare the taint's value, as a number, with the toleration's; they require the feature gate
``TaintTolerationComparisonOperators``.

Source  api/core/v1/toleration.go, ToleratesTaint; component-helpers, scheduling/corev1/helpers.go
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from moorage.api.core import Taint, Toleration
from moorage.api.quantity import is_decimal_integer, parse_int64

__all__ = ["find_untolerated", "tolerates"]


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
    held = tuple(tolerations)
    for taint in taints:
        if effects is not None and taint.effect not in effects:
            continue
        if not any(tolerates(toleration, taint, numeric=numeric) for toleration in held):
            return taint
    return None
