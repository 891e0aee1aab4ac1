"""Amounts of resources as people write them, rounded towards the safe side."""

from __future__ import annotations

from typing import Final

_BINARY_UNITS: Final = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def shown_amount(resource: str, amount: int, *, up: bool = False) -> str:
    """Write an amount: cpu in millicores, memory and storage in bytes, others in counts: ``870m``, ``3.9Gi``, ``2``.

    Bytes have one decimal at most and are rounded down, or ``up``: what is needed never looks smaller than it is, and what is
    free never larger. Other amounts are exact.
    """
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 and abs(amount) < 1000 else f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
    if resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-"):
        for unit, size in _BINARY_UNITS:
            if abs(amount) >= size:
                tenths = -(-10 * amount // size) if up else 10 * amount // size
                return f"{tenths // 10}{'' if tenths % 10 == 0 else f'.{tenths % 10}'}{unit}"
    return str(amount)
