"""Who might select this pod? An index of selectors by one label that each of them insists on.

A selector that wants ``app in (web, api)`` can only take pods that carry ``app``, so it is filed under that label and those
values, and a pod meets just the selectors filed under its own labels. Most selectors insist on something that few pods have;
those that do not are filed under their namespaces alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from moorage.api.selectors import Requirement, Selector

__all__ = ["ANYWHERE", "Place", "SelectorIndex", "places", "places_of_pod"]

T = TypeVar("T")

#: Where a selector is filed, and where a pod looks: namespace, label key, label value. Key and value are empty for selectors
#: that insist on no label; the namespace is ``ANYWHERE`` for those that are not bound to listed ones.
Place = tuple[str, str, str]
#: No namespace can have this name.
ANYWHERE = "*"


def places(namespaces: frozenset[str] | None, selector: Selector) -> list[Place]:
    """Return the places to file a selector under; ``namespaces`` None means any. Nowhere if it matches nothing."""
    if selector.matches_nothing:
        return []
    where = [ANYWHERE] if namespaces is None else sorted(namespaces)
    asked = _narrowest(selector)
    if asked is None:
        return [(namespace, "", "") for namespace in where]
    return [(namespace, asked.key, value) for namespace in where for value in asked.values]


def _narrowest(selector: Selector) -> Requirement | None:
    """Return the requirement that lists the fewest values a label must have, if any does."""
    listing = [asked for asked in selector.requirements if asked.operator == "In"]
    return min(listing, key=lambda asked: len(asked.values), default=None)


def places_of_pod(namespace: str, labels: Mapping[str, str]) -> Iterator[Place]:
    """Yield every place under which a selector of this namespace that takes these labels may be filed."""
    yield namespace, "", ""
    for key, value in labels.items():
        yield namespace, key, value


class SelectorIndex(Generic[T]):
    """Items filed by the pods they may select. Items are told apart by equality."""

    def __init__(self) -> None:
        self._filed: dict[Place, dict[T, None]] = {}

    def add(self, item: T, namespaces: frozenset[str] | None, selector: Selector) -> None:
        for place in places(namespaces, selector):
            self._filed.setdefault(place, {})[item] = None

    def remove(self, item: T, namespaces: frozenset[str] | None, selector: Selector) -> None:
        """Take out what was added with the very same arguments."""
        for place in places(namespaces, selector):
            items = self._filed[place]
            del items[item]
            if not items:
                del self._filed[place]

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield, once each, the items that may select such a pod. Some do not: ask them."""
        filed = self._filed
        if not filed:
            return
        for where in (namespace, ANYWHERE):
            for place in places_of_pod(where, labels):
                yield from filed.get(place, ())
