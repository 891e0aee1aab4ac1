"""What the accounts of quotas are made of: amounts by name, what else there is to know, and what scopes ask.

Source  apiserver, pkg/quota/v1/resources.go; kubernetes, pkg/apis/core/v1/helper/helpers.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from moorage.api.meta import Quantity
from moorage.api.quantity import Exact, exact
from moorage.api.quotas import ScopedResourceSelectorRequirement
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind

__all__ = ["ONE", "ZERO", "Facts", "Usage", "add", "amounts", "label_fits", "raise_to"]

#: How much of each resource, by the names that quotas have.
Usage: TypeAlias = dict[str, Exact]
ONE: Final = exact("1")
ZERO: Final = exact("0")


class Facts(NamedTuple):
    """What is known besides an object: the time, in seconds since 1970, and the objects of a kind in a namespace ("" for kinds
    that have none), all of them or one by its name."""

    now: float
    all: Callable[[ServedKind, str], Iterable[Document]]
    find: Callable[[ServedKind, str, str], Document | None]


def amounts(given: Mapping[str, Quantity] | None) -> Usage:
    """Return a list of resources as amounts."""
    return {name: exact(amount) for name, amount in given.items()} if given else {}


def add(to: Usage, more: Usage) -> None:
    """Add amounts to others, in place."""
    for name, amount in more.items():
        to[name] = to[name].plus(amount) if name in to else amount


def raise_to(held: Usage, least: Usage) -> None:
    """Raise amounts, in place, that are below others."""
    for name, amount in least.items():
        if name not in held or amount.nano > held[name].nano:
            held[name] = amount


def label_fits(asked: ScopedResourceSelectorRequirement, value: str) -> bool:
    """Return True where a value, "" for none, is what a requirement asks for."""
    match asked.operator:
        case "Exists":
            return bool(value)
        case "DoesNotExist":
            return not value
        case "In":
            return bool(value) and value in asked.values
        case _:
            return not value or value not in asked.values
