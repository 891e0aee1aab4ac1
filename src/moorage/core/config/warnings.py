"""What a valid configuration says to no effect: arguments of plugins that do not run, and weights of zero."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from moorage.core.config.configuration import Configuration, KubeSchedulerProfile
from moorage.core.config.profiles import ResolvedProfile
from moorage.framework.registry import Registry


def warnings_of(configuration: Configuration, profiles: Iterable[ResolvedProfile], registry: Registry) -> Iterator[str]:
    """Yield a line for each setting that has no effect, by profile."""
    for i, (profile, resolved) in enumerate(zip(configuration.profiles, profiles, strict=False)):
        running = dict.fromkeys(name for names in resolved.points.values() for name in names)
        yield from _idle_arguments(profile, f"profiles[{i}]", running, registry)
        yield from _zero_weights(profile, f"profiles[{i}]", resolved.weights)


def _idle_arguments(profile: KubeSchedulerProfile, where: str, running: Mapping[str, Any], registry: Registry) -> Iterator[str]:
    """Yield arguments of plugins that the profile does not run. The defaults of built-in ones are what Go itself writes."""
    for j, config in enumerate(profile.plugin_config):
        if config.name in running or _are_defaults(config.args, registry.args_type(config.name)):
            continue
        near = get_close_matches(config.name, running, n=1, cutoff=0.8)
        hint = f"did you mean {near[0]}?" if near else "enable it, for example at multiPoint"
        yield f"{where}.pluginConfig[{j}]: the profile does not enable {config.name}, so its arguments have no effect; {hint}"


def _are_defaults(args: Any, args_type: type[Any] | None) -> bool:
    if args is None or args_type is None or not isinstance(args, msgspec.Struct):
        return not args
    try:
        return bool(args == args_type())
    except TypeError:  # it has arguments without defaults
        return False


def _zero_weights(profile: KubeSchedulerProfile, where: str, weights: Mapping[str, int]) -> Iterator[str]:
    for point in ("multiPoint", "score"):
        for plugin in profile.plugins.at(point).enabled:
            if plugin.weight == 0 and plugin.name in weights:
                name = f"{where}.plugins.{point}: the weight 0 of {plugin.name}"
                yield f"{name} counts as 1; to switch its scores off, list it in score.disabled"
