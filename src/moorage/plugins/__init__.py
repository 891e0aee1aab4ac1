"""The built-in plugins, one module each. To add a plugin, write its module and list its class in ``shared/variants.toml``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from moorage.api.releases import RELEASES, TODAY, Release
from moorage.framework.registry import Registry
from moorage.plugins.shared.releases import PLUGINS_1_21, PLUGINS_TODAY, VARIANTS

__all__ = ["BUILTIN", "builtin_registry"]

#: Every built-in plugin class, sorted by name. The order has no effect on scheduling.
BUILTIN: tuple[Any, ...] = tuple(PLUGINS_TODAY.values())


def builtin_registry(release: str = TODAY) -> Registry:
    """Return the registry of a release's built-in plugins."""
    return _built_in(release).copy()


@cache
def _built_in(release: str) -> Registry:
    found = RELEASES[release]
    return Registry(PLUGINS_1_21.values() if found.legacy_flags else _plugins_of(found))


def _plugins_of(release: Release) -> Iterator[Any]:
    removed = (PLUGINS_1_21[name] for name in release.removed_plugins)
    for cls in (*BUILTIN, *removed):
        if cls.name not in release.lacks:
            ended = release.variants.get(cls.name)
            yield cls if ended is None else VARIANTS[cls.name, ended]
