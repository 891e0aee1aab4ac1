"""Which kinds of their own the plugins of some profiles name in ``wakes_on``: whoever runs them has to follow those, too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from moorage.api.custom_objects import CustomKind
from moorage.framework.events import Resource, Wake
from moorage.framework.profile import Profile, declared_wakes

__all__ = ["NamedKinds", "named_kinds", "unusable_names"]

_BROUGHT = frozenset(map(str, Resource))


class NamedKinds(NamedTuple):
    """Kinds in the order of their names, and names that are none of a kind, which wake nobody."""

    kinds: tuple[CustomKind, ...] = ()
    unusable: tuple[str, ...] = ()


def named_kinds(profiles: Iterable[Profile]) -> NamedKinds:
    """Return what the plugins name beside the kinds that Kubernetes brings; plugins that only score may name kinds as well."""
    plugins = [plugin for profile in profiles for plugin in profile.plugins.values()]
    return _of(wake for plugin in plugins for wake in declared_wakes(plugin) or ())


def unusable_names(wakes: Iterable[Wake]) -> tuple[str, ...]:
    """Return what these take for kinds, and is no name of one."""
    return _of(wakes).unusable


def _of(wakes: Iterable[Wake]) -> NamedKinds:
    names = {str(wake.event.resource) for wake in wakes}
    parsed = {name: CustomKind.parse(name) for name in sorted(names - _BROUGHT)}
    kinds = tuple(kind for kind in parsed.values() if kind is not None)
    return NamedKinds(kinds, tuple(name for name, kind in parsed.items() if kind is None))
