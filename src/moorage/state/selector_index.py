"""An index of selectors by one label that each requires, to find the selectors that may match a pod.

A selector with ``app in (web, api)`` matches only pods with the label ``app``, so it is indexed under that label and those
values, and a pod is compared only with the selectors indexed under its own labels. Most selectors require a label value that
few pods have; selectors that require no label are indexed under their namespaces alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from moorage.api.selectors import Requirement, Selector

_Item = TypeVar("_Item")

#: A key of the index: namespace, label key, label value. Key and value are empty for selectors that require no label; the
#: namespace is ``ANYWHERE`` for those that select in any namespace.
Place = tuple[str, str, str]
#: No namespace can have this name.
ANYWHERE = "*"


def places(namespaces: frozenset[str] | None, selector: Selector) -> list[Place]:
    """Return the index keys of a selector; ``namespaces`` None means any. Empty if the selector matches nothing."""
    if selector.matches_nothing:
        return []
    where: Collection[str] = [ANYWHERE] if namespaces is None else namespaces
    if len(where) > 1:
        where = sorted(where)
    asked = narrowest(selector)
    if asked is None:
        return [(namespace, "", "") for namespace in where]
    return [(namespace, asked.key, value) for namespace in where for value in asked.values]


def narrowest(selector: Selector) -> Requirement | None:
    """Return the ``In`` requirement with the fewest values; None if the selector has none."""
    if len(selector.requirements) == 1:
        only = selector.requirements[0]
        return only if only.operator == "In" else None
    listing = [asked for asked in selector.requirements if asked.operator == "In"]
    return min(listing, key=lambda asked: len(asked.values), default=None)


def places_of_pod(namespace: str, labels: Mapping[str, str]) -> list[Place]:
    """Return every index key that a selector of this namespace which matches these labels may have."""
    return [(namespace, "", ""), *[(namespace, key, value) for key, value in labels.items()]]


class SelectorIndex(Generic[_Item]):
    """Items indexed by the pods they may select. Items are compared by equality."""

    def __init__(self) -> None:
        self._filed: dict[Place, dict[_Item, None]] = {}

    def __bool__(self) -> bool:
        """Return whether any item is indexed."""
        return bool(self._filed)

    def add(self, item: _Item, namespaces: frozenset[str] | None, selector: Selector) -> None:
        self.add_at(item, places(namespaces, selector))

    def add_at(self, item: _Item, filed: Iterable[Place]) -> None:
        """Add an item under these keys, which are its ``places``."""
        for place in filed:
            self._filed.setdefault(place, {})[item] = None

    def remove(self, item: _Item, namespaces: frozenset[str] | None, selector: Selector) -> None:
        """Remove an item that was added with equal arguments."""
        for place in places(namespaces, selector):
            items = self._filed[place]
            del items[item]
            if not items:
                del self._filed[place]

    def listing(self) -> list[tuple[Place, list[_Item]]]:
        """Return the items under each key, in their order; the keys are sorted."""
        return [(place, list(self._filed[place])) for place in sorted(self._filed)]

    def save(self, namespaces: frozenset[str] | None, selector: Selector) -> Callable[[], None]:
        """Return a function that restores the present items, and their order, under the index keys of these arguments."""
        before = {place: dict(self._filed.get(place, ())) for place in places(namespaces, selector)}

        def restore() -> None:
            for place, items in before.items():
                if items:
                    self._filed[place] = items
                else:
                    self._filed.pop(place, None)

        return restore

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterator[_Item]:
        """Yield the items that may select such a pod, each once. The caller must check each item."""
        return self.under((namespace, ANYWHERE), labels)

    def under(self, namespaces: Iterable[str], labels: Mapping[str, str]) -> Iterator[_Item]:
        """Yield the items indexed under these namespaces and labels, once for each namespace that an item is indexed under."""
        filed = self._filed
        if not filed:
            return
        for where in namespaces:
            for place in places_of_pod(where, labels):
                if place in filed:
                    yield from filed[place]
