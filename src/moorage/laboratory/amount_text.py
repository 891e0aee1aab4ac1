"""Amounts of resources as exact quantities, and quantities as amounts in the scheduler's units."""

from __future__ import annotations

from typing import Final

from moorage.api.core import Quantity, ResourceList, ResourceRequirements
from moorage.api.pod_requests import amount
from moorage.api.quantity_amounts import shown_amount

#: The least amount of bytes for each step to which amounts are rounded.
_ROUND: Final = (
    (64 << 30, 4 << 30), (4 << 30, 1 << 30), (1 << 30, 256 << 20), (256 << 20, 64 << 20), (16 << 20, 16 << 20), (0, 1),
)  # fmt: skip
_BINARY: Final = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def quantity_of(resource: str, count: int) -> str:
    """Return an amount in the scheduler's units as the shortest exact quantity: ``683m``, ``2``, ``1536Mi``."""
    if resource == "cpu":
        return f"{count}m" if count % 1000 else str(count // 1000)
    if resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-"):
        for suffix, size in _BINARY:
            if count and count % size == 0:
                return f"{count // size}{suffix}"
    return str(count)


def round_amount(resource: str, count: int, *, up: bool = False) -> int:
    """Return an amount rounded down, or ``up``, to a number that people write: 2, 1.5, 750m; 12Gi, 768Mi."""
    if resource == "cpu":
        step = next(step for least, step in ((16000, 1000), (2000, 500), (1000, 250), (200, 50), (0, 10)) if count >= least)
    elif quantity_of(resource, 2**30).endswith("Gi"):
        step = next(size for least, size in _ROUND if count >= least)
    else:
        return count
    return -(-count // step) * step if up else count // step * step or count


def people_quantity(resource: str, count: int, *, up: bool = False) -> str:
    """Return an amount as people write it: ``144.38``, ``750m``, ``1.5Gi``, ``1700Mi``. Bytes are rounded down, or ``up``.

    Bytes that are a whole number of Mi and no tenth of a larger unit stay in Mi.
    """
    if resource == "cpu":
        return f"{count}m" if count < 1000 else f"{count / 1000:.2f}".rstrip("0").rstrip(".")
    some, other = (shown_amount(resource, count, up=way) for way in (False, True))
    exact = quantity_of(resource, count)
    return exact if some != other and exact.endswith("Mi") else other if up else some


def with_amount(amounts: ResourceList, resource: str, count: int) -> ResourceList:
    """Return a resource list with one amount set, in the scheduler's units; without the resource where it is 0."""
    kept: dict[str, Quantity] = {name: held for name, held in amounts.items() if name != resource}
    if count:
        kept[resource] = quantity_of(resource, count)
    return kept


def with_requests(held: ResourceRequirements, resource: str, count: int) -> ResourceRequirements:
    """Return requirements with one request set. A limit below it is raised to it; a limit that must be equal is set to it."""
    limits = held.limits
    if resource in limits and (amount(resource, limits[resource]) < count or _is_equal_to_limit(resource)):
        limits = with_amount(limits, resource, count)
    return ResourceRequirements(requests=with_amount(held.requests, resource, count), limits=limits, claims=held.claims)


def _is_equal_to_limit(resource: str) -> bool:
    """Return True for resources that cannot be overcommitted: extended resources and huge pages."""
    return resource not in {"cpu", "memory", "ephemeral-storage"}
