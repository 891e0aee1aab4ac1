"""The table of the kinds that a server serves: the built-in ones and, while their definitions exist, custom ones.

A table never changes. The server replaces it when a definition changes, so a table identifies a state of all kinds.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from moorage.apiserver.vocabulary.served_kinds import (
    ALL_GATES,
    KINDS,
    MEASURED,
    REVIEWS,
    ServedKind,
    enabled_kinds,
    find_served,
)

__all__ = ["ALL_KINDS", "UNGATED_KINDS", "KindTable", "built_in_kinds"]

_BUILT_IN_GROUPS: Final = frozenset(one.group for one in (*KINDS, *MEASURED)) | {one.group for one in REVIEWS}
_BUILT_IN: Final = {kind.qualified: kind for kind in KINDS}


class KindTable:
    """The kinds of a server. ``gates`` are the enabled feature gates that enable built-in kinds; ``custom`` has one kind for
    each version of each custom kind, whether it is served or only stored.
    """

    def __init__(self, gates: Iterable[str] = (), custom: Iterable[ServedKind] = ()) -> None:
        self.gates: Final = frozenset(gates)
        self.custom: Final = tuple(custom)
        served = [kind for kind in self.custom if kind.custom is not None and kind.custom.is_served]
        #: All kinds whose objects are served.
        self.served: Final = (*enabled_kinds(self.gates), *served)
        #: All kinds under which objects are stored, whether they are served or not.
        self.stored: Final = (*KINDS, *(kind for kind in self.custom if kind.stored_as is None))
        self._by_path = {(kind.group, kind.version, kind.resource): kind for kind in served}
        self._by_name = {kind.qualified: kind for kind in self.stored if kind.custom is not None}
        self._groups = {kind.group for kind in served}
        self._types = {(kind.api_version, kind.kind) for kind in served}

    def find(self, resource: str, group: str, version: str) -> ServedKind | None:
        """Return the kind at a path, or None. It may be a built-in kind whose gate is off."""
        return find_served(resource, group, version) or self._by_path.get((group, version, resource))

    def find_stored(self, qualified: str) -> ServedKind | None:
        """Return the kind under which objects of a resource such as ``widgets.example.com`` are stored."""
        return _BUILT_IN.get(qualified) or self._by_name.get(qualified)

    def has_group(self, group: str) -> bool:
        return group in _BUILT_IN_GROUPS or group in self._groups

    def has_type(self, api_version: str, kind: str) -> bool:
        """Return True if objects of this type are served; gates of built-in kinds are not considered."""
        return (api_version, kind) in _BUILT_IN_TYPES or (api_version, kind) in self._types

    def find_type(self, api_version: str, kind: str) -> ServedKind | None:
        """Return the served kind of an object's ``apiVersion`` and ``kind``, or None."""
        return next((one for one in self.served if (one.api_version, one.kind) == (api_version, kind)), None)


_BUILT_IN_TYPES: Final = frozenset((kind.api_version, kind.kind) for kind in KINDS)


@cache
def built_in_kinds(gates: frozenset[str]) -> KindTable:
    """Return the table of a server without custom kinds. Servers with the same gates share it and documents cached for it."""
    return KindTable(gates)


#: Every built-in kind, and those that need no gate.
ALL_KINDS: Final = built_in_kinds(ALL_GATES)
UNGATED_KINDS: Final = built_in_kinds(frozenset())
