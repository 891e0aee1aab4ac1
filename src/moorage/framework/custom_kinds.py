"""Collects the custom kinds that plugins name in ``wakes_on``; the caller has to watch these kinds too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from moorage.api.custom_objects import CustomKind
from moorage.framework.events import Resource, Wake
from moorage.framework.profile import Profile, declared_wakes, writes_pods

__all__ = ["NamedKinds", "named_kinds", "unusable_names", "write_pods"]

_BUILT_IN = frozenset(map(str, Resource))


class NamedKinds(NamedTuple):
    """Custom kinds that plugins name, sorted by name. ``unusable`` are names of no valid form, whose events wake no pod."""

    kinds: tuple[CustomKind, ...] = ()
    unusable: tuple[str, ...] = ()


def named_kinds(profiles: Iterable[Profile]) -> NamedKinds:
    """Return the kinds that plugins name in addition to the built-in ones, including plugins that only score."""
    plugins = [plugin for profile in profiles for plugin in profile.plugins.values()]
    return _of(wake for plugin in plugins for wake in declared_wakes(plugin) or ())


def write_pods(profiles: Iterable[Profile]) -> bool:
    """Return True if a plugin says that it changes pods (``writes_pods``), which kube-scheduler's own role does not allow."""
    return any(writes_pods(plugin) for profile in profiles for plugin in profile.plugins.values())


def unusable_names(wakes: Iterable[Wake]) -> tuple[str, ...]:
    """Return the resources of ``wakes`` that are neither built in nor of the form ``plural.version.group``, sorted."""
    return _of(wakes).unusable


def _of(wakes: Iterable[Wake]) -> NamedKinds:
    names = {str(wake.event.resource) for wake in wakes}
    parsed = {name: CustomKind.parse(name) for name in sorted(names - _BUILT_IN)}
    kinds = tuple(kind for kind in parsed.values() if kind is not None)
    return NamedKinds(kinds, tuple(name for name, kind in parsed.items() if kind is None))
