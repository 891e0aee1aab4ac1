"""Types and helpers of quota usage: amounts by resource name, lookups of other objects, and scope selector matching.

Source  apiserver, pkg/quota/v1/resources.go; kubernetes, pkg/apis/core/v1/helper/helpers.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from moorage.api.meta import Quantity
from moorage.api.quantity import Exact, exact
from moorage.api.quotas import ScopedResourceSelectorRequirement
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import KINDS, ServedKind

__all__ = ["ONE", "ZERO", "Facts", "Usage", "add", "amounts", "matches_requirement", "raise_to_at_least"]

#: Amounts by quota resource name.
Usage: TypeAlias = dict[str, Exact]
ONE: Final = exact("1")
ZERO: Final = exact("0")


class Facts(NamedTuple):
    """The facts, other than the object itself, that its usage depends on.

    ``now`` is the time in seconds since 1970. ``all`` returns the objects of a kind in a namespace ("" for cluster-scoped
    kinds); ``find`` returns one of them by namespace and name, or None. ``kinds`` are all kinds that exist.
    """

    now: float
    all: Callable[[ServedKind, str], Iterable[Document]]
    find: Callable[[ServedKind, str, str], Document | None]
    kinds: Iterable[ServedKind] = KINDS


def amounts(given: Mapping[str, Quantity] | None) -> Usage:
    """Return a resource list as exact amounts."""
    return {name: exact(amount) for name, amount in given.items()} if given else {}


def add(to: Usage, more: Usage) -> None:
    """Add amounts to ``to``, in place."""
    for name, amount in more.items():
        to[name] = to[name].plus(amount) if name in to else amount


def raise_to_at_least(held: Usage, least: Usage) -> None:
    """Raise each amount in ``held`` to at least the one in ``least``, in place."""
    for name, amount in least.items():
        if name not in held or amount.nano > held[name].nano:
            held[name] = amount


def matches_requirement(requirement: ScopedResourceSelectorRequirement, value: str) -> bool:
    """Return True if a value ("" for none) matches a scope selector requirement."""
    match requirement.operator:
        case "Exists":
            return bool(value)
        case "DoesNotExist":
            return not value
        case "In":
            return bool(value) and value in requirement.values
        case _:
            return not value or value not in requirement.values
