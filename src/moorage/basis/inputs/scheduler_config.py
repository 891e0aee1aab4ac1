"""Load a scheduler's configuration, from a document, a provider or the defaults, with plugins and feature gates.

Every command and the library load through ``load_source``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import TODAY, find_release, why_unknown
from moorage.core.config.algorithm import Algorithm, load_algorithm
from moorage.core.config.config_map import taken_out
from moorage.core.config.scheduler_document import Loaded, from_provider, load_any, load_default
from moorage.errors import InputError
from moorage.framework.profile import declared_name
from moorage.framework.registry import Registry
from moorage.plugins import builtin_registry


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """Where a configuration comes from. It is the ``ReleaseRules`` of its own document.

    ``config``         the text of a KubeSchedulerConfiguration or a Policy, ``where`` its name in messages
    ``emulate``        the release to emulate, ``1.34`` or ``1.34.1``; by default that of the document's apiVersion
    ``provider``       an algorithm provider in place of a document
    ``feature_gates``  the value of ``--feature-gates``; if it is empty, ``open_gates`` apply to their own release
    ``plugins``        classes in addition to the built-in ones
    """

    config: bytes | None = None
    where: str = "the default configuration"
    emulate: str | None = None
    provider: str = ""
    feature_gates: str = ""
    plugins: tuple[Any, ...] = ()
    open_gates: FeatureGates = field(default_factory=FeatureGates)

    def registry(self, release: str) -> Registry:
        """Return the plugins of a release.

        Raises  InputError if an additional plugin cannot be registered
        """
        return registry_with(self.plugins, self.config or b"", release)

    def gates(self, release: str) -> FeatureGates:
        """Return the feature gates of a release.

        Raises  ConfigError for a gate that the release does not have
        """
        if not self.feature_gates and release == self.open_gates.release:
            return self.open_gates
        return FeatureGates.parse(self.feature_gates, release)


def registry_with(plugins: Iterable[Any], config: bytes = b"", release: str = TODAY) -> Registry:
    """Return a registry of a release's built-in plugins, of ``plugins``, and of installed plugins that ``config`` names.

    One of ``plugins`` replaces an installed one of its name.

    Raises  InputError if a class is no plugin, its name is taken, or an installed plugin cannot be imported
    """
    shipped, named = builtin_registry(release), tuple(plugins)
    without = frozenset(name for plugin in named if (name := declared_name(plugin)) is not None)
    return shipped.with_installed(config.decode("utf-8", "replace"), without).with_named(named, shipped)


def load_source(source: ConfigSource, algorithm: Algorithm | None = None) -> Loaded:
    """Return the configuration of a source; ``algorithm`` is the separate Policy of 1.19 to 1.22, or provider of 1.19 to 1.21.

    Raises  ConfigError, InputError
    """
    if source.emulate is not None:
        release = find_release(source.emulate)
        if release is None:
            raise InputError(why_unknown(source.emulate))
        source = replace(source, emulate=release.name)
    if source.config is not None:
        config, where = taken_out(source.config, source.where)
        source = replace(source, config=config, where=where)
    if algorithm is not None:
        return load_algorithm(algorithm, source.config, source.where, source, source.emulate)
    if source.provider:
        if source.config is not None:
            raise InputError("an algorithm provider cannot be combined with a configuration; name one of them")
        return from_provider(source.provider, source, source.emulate)
    if source.config is None:
        return _load_default(source)
    return load_any(source.config, source.where, source, source.emulate)


#: Default configurations by release and gates, which they depend on alone.
_DEFAULTS: Final[dict[Hashable, Loaded]] = {}
_DEFAULTS_KEPT: Final = 16


def _load_default(source: ConfigSource) -> Loaded:
    """Return the configuration of a scheduler that gets no document, cached unless plugins are added."""
    if source.plugins:
        return load_default(source, source.emulate)
    key = source.emulate, source.feature_gates, source.open_gates.value
    known = _DEFAULTS.get(key)
    if known is None:
        if len(_DEFAULTS) >= _DEFAULTS_KEPT:
            _DEFAULTS.clear()
        known = _DEFAULTS[key] = load_default(source, source.emulate)
    return known
