"""What each release has to schedule by: its plugins and its gates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from moorage.framework.features import FeatureGates
from moorage.framework.registry import Registry
from moorage.plugins import builtin_registry

__all__ = ["ReleasePlugins"]


@dataclass(frozen=True, slots=True)
class ReleasePlugins:
    """Built-in rules, more plugins, and the value of ``--feature-gates``. ``extend`` adds plugins to a registry."""

    feature_gates: str = ""
    extend: Callable[[Registry], Registry] | None = None

    def registry(self, release: str) -> Registry:
        """Return the plugins of a release.

        Raises  InputError if a further one cannot be registered
        """
        shipped = builtin_registry(release)
        return shipped if self.extend is None else self.extend(shipped)

    def gates(self, release: str) -> FeatureGates:
        """Return the gates of a release.

        Raises  ConfigError for a gate that it does not have
        """
        return FeatureGates.parse(self.feature_gates, release)
