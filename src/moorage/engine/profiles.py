"""From a configuration to profiles that run: resolve the names, build the plugins, report what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from moorage.config.document import Configuration
from moorage.config.profiles import ResolvedProfile, resolve
from moorage.framework.features import TODAY, FeatureGates
from moorage.framework.points import AnyPlugin
from moorage.framework.profile import Profile, make_profile
from moorage.framework.registry import Handle, Registry

__all__ = ["BuiltProfiles", "build_profiles", "build_resolved"]


@dataclass(frozen=True, slots=True)
class BuiltProfiles:
    """Profiles by scheduler name, and the names of enabled plugins that do not exist here, sorted."""

    profiles: Mapping[str, Profile]
    missing: tuple[str, ...] = ()


def build_profiles(configuration: Configuration, registry: Registry, gates: FeatureGates, handle: Handle) -> BuiltProfiles:
    """Build every profile of ``configuration``.

    Raises  ConfigError if a profile cannot be resolved
    """
    return build_resolved(resolve(configuration, registry, gates), registry, handle)


def build_resolved(resolved_profiles: Iterable[ResolvedProfile], registry: Registry, handle: Handle) -> BuiltProfiles:
    """Build profiles that have been resolved, of whatever release; ``registry`` holds that release's plugins."""
    profiles: dict[str, Profile] = {}
    missing: set[str] = set()
    for resolved in resolved_profiles:
        names = {name for in_point in resolved.points.values() for name in in_point}
        missing |= {name for name in names if name not in registry}
        profiles[resolved.scheduler_name] = _build(resolved, sorted(names - missing), registry, handle)
    return BuiltProfiles(profiles, tuple(sorted(missing)))


def _build(resolved: ResolvedProfile, names: list[str], registry: Registry, handle: Handle) -> Profile:
    plugins: dict[str, AnyPlugin] = {}
    for name in names:
        plugin = registry.build(name, resolved.args.get(name))
        attach = getattr(plugin, "attach", None)
        if attach is not None:
            attach(handle)
        plugins[name] = plugin
    made = make_profile(
        resolved.scheduler_name, plugins, resolved.points, resolved.weights, resolved.percentage_of_nodes_to_score
    )
    gates = handle.gates
    nominated_first = gates.release == TODAY or gates["PreferNominatedNode"]
    return replace(
        made,
        run_all_filters=resolved.run_all_filters,
        nominated_first=nominated_first,
        placement_weights=resolved.placement_weights,
    )
