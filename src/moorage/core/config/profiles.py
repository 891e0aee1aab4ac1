"""Resolve a configuration to the plugins that each profile runs, in order, with weights and arguments.

The registry has the points that a plugin implements. For plugins of the release that are not registered, the release's own
table has them, so that a profile resolves to what kube-scheduler would run. ``ResolvedProfile.missing`` names these plugins.

Source  kube-scheduler 1.36.2, framework/runtime/framework.go, NewFramework; profile/profile.go; scheduler.go, buildExtenders
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from moorage.api.feature_gates import FeatureGates
from moorage.core.config.api_versions import V1, ApiVersion
from moorage.core.config.configuration import Configuration, KubeSchedulerProfile
from moorage.core.config.decoder import fields_of
from moorage.core.config.plugin_sets import ALL_POINTS, Expansion
from moorage.errors import ConfigError, Fault
from moorage.framework.points import POINTS
from moorage.framework.registry import Registry

_FIT = "NodeResourcesFit"


@dataclass(frozen=True, slots=True)
class ResolvedProfile:
    """The resolved profile of a scheduler name.

    ``points``   extension point → plugins in the order they run; points without plugins are left out
    ``weights``  Score plugin → weight
    ``args``     plugin → arguments, for the plugins that run and take some
    ``missing``  plugins that run in kube-scheduler and are not registered here
    ``run_all_filters``  run every Filter plugin on a node, even after one has refused it
    """

    scheduler_name: str
    percentage_of_nodes_to_score: int
    points: Mapping[str, tuple[str, ...]]
    weights: Mapping[str, int]
    args: Mapping[str, object]
    missing: tuple[str, ...] = ()
    run_all_filters: bool = False
    placement_weights: Mapping[str, int] = field(default_factory=dict)


def resolve(
    configuration: Configuration, registry: Registry, gates: FeatureGates, version: ApiVersion = V1
) -> tuple[ResolvedProfile, ...]:
    """Return the resolved profiles of a loaded configuration, in its order.

    Raises  ConfigError with every fault that kube-scheduler would refuse to start with
    """
    expansions = _expansions(configuration, registry, gates, version)
    faults = list(_faults(configuration, registry, gates, expansions, version))
    if faults:
        raise ConfigError("the profiles cannot be built:", faults)
    return tuple(
        resolved(configuration, profile, expansion, registry, gates)
        for profile, expansion in zip(configuration.profiles, expansions, strict=True)
    )


def resolution_faults(
    configuration: Configuration, registry: Registry, gates: FeatureGates, version: ApiVersion = V1
) -> list[Fault]:
    """Return the faults that ``resolve`` would raise."""
    expansions = _expansions(configuration, registry, gates, version)
    return list(_faults(configuration, registry, gates, expansions, version))


def catalogue(registry: Registry, version: ApiVersion = V1) -> dict[str, tuple[str, ...]]:
    """Return plugin → the extension points it implements, for every plugin that may be named."""
    found = dict(version.plugin_points)
    for name, points in registry.points().items():
        known = version.plugin_points.get(name)
        found[name] = points if known is None else tuple(point for point in known if point in points or point not in POINTS)
    for name, points in version.idle_points.items():
        found[name] = (*found.get(name, ()), *(point for point in points if point not in found.get(name, ())))
    return found


def _expansions(configuration: Configuration, registry: Registry, gates: FeatureGates, version: ApiVersion) -> list[Expansion]:
    known = catalogue(registry, version)
    found = [
        version.expand(profile, gates, known, f"profiles[{i}].plugins") for i, profile in enumerate(configuration.profiles)
    ]
    for expansion in found:
        add_own_points(expansion, registry, version.plugin_points)
        _drop_idle(expansion, registry, version.idle_points)
    return found


def _drop_idle(found: Expansion, registry: Registry, idle: Mapping[str, tuple[str, ...]]) -> None:
    """Drop plugins from the points at which they may be listed and have nothing to do."""
    implemented = registry.points()
    for point in dict.fromkeys(point for points in idle.values() for point in points):
        gone = {name for name, points in idle.items() if point in points and point not in implemented.get(name, ())}
        found.points[point] = tuple(name for name in found.points[point] if name not in gone)


def add_own_points(found: Expansion, registry: Registry, known: Mapping[str, tuple[str, ...]]) -> None:
    """Add plugins to PreFilter and PreScore that they implement here, but not in the emulated release (``known``)."""
    implemented = registry.points()
    for point, before in (("filter", "preFilter"), ("score", "preScore")):
        here = found.points[point]
        gained = [name for name in here if before in implemented.get(name, ()) and before not in known.get(name, (before,))]
        found.points[before] = (*found.points[before], *gained)


def resolved(
    configuration: Configuration, profile: KubeSchedulerProfile, found: Expansion, registry: Registry, gates: FeatureGates
) -> ResolvedProfile:
    """Return the resolved profile for expanded plugin sets, with arguments."""
    running = _running(found)
    return ResolvedProfile(
        scheduler_name=profile.scheduler_name or "",
        percentage_of_nodes_to_score=_percentage(configuration, profile),
        points={point: found.points[point] for point in POINTS if found.points[point] and _is_used(point, gates)},
        weights=found.weights,
        placement_weights=found.placement_weights if _is_used("placementScore", gates) else {},
        args=args_of(configuration, profile, running, registry, gates),
        missing=tuple(name for name in running if name not in registry),
    )


def _is_used(point: str, gates: FeatureGates) -> bool:
    """Return False for the placement points if the gate TopologyAwareWorkloadScheduling is off."""
    return gates["TopologyAwareWorkloadScheduling"] or point not in {"placementGenerate", "placementScore"}


def _percentage(configuration: Configuration, profile: KubeSchedulerProfile) -> int:
    """Return the profile's percentage, or the one of all profiles; 0 filters every node."""
    own = profile.percentage_of_nodes_to_score
    return configuration.percentage_of_nodes_to_score if own is None else own


def _running(found: Expansion) -> tuple[str, ...]:
    """Return the names of all plugins that run, in the order of the extension points."""
    return tuple(dict.fromkeys(name for point in POINTS for name in found.points[point]))


# -- arguments ----------------------------------------------------------------------------------------------------------


def args_of(
    configuration: Configuration, profile: KubeSchedulerProfile, names: Iterable[str], registry: Registry, gates: FeatureGates
) -> dict[str, Any]:
    """Return the plugins' arguments from the profile, or their defaults; plugins without arguments are left out."""
    given = {config.name: config.args for config in profile.plugin_config}
    args: dict[str, Any] = {}
    for name in names:
        found = given.get(name)
        if found is None:
            found = _default_args(registry, name, gates)
        if found is not None:
            args[name] = found
    if _FIT in args and (ignored := _ignored_by_extenders(configuration)) and hasattr(args[_FIT], "ignored_resources"):
        args[_FIT] = structs.replace(args[_FIT], ignored_resources=ignored)
    return args


def _default_args(registry: Registry, name: str, gates: FeatureGates) -> Any:
    args_type = registry.args_type(name)
    if args_type is None or _needed(args_type):
        return None
    args = args_type()
    return args.completed(gates) if hasattr(args, "completed") else args


def _needed(args_type: type[Any]) -> list[str]:
    """Return the names of required arguments. Plugins of the release have none."""
    return [name for name, field in fields_of(args_type).items() if field.required]


def _ignored_by_extenders(configuration: Configuration) -> tuple[str, ...]:
    """Return the extenders' resources with ``ignoredByScheduler``; they replace NodeResourcesFit's ``ignoredResources``."""
    managed = (resource for extender in configuration.extenders for resource in extender.managed_resources)
    return tuple(resource.name for resource in managed if resource.ignored_by_scheduler)


# -- faults -------------------------------------------------------------------------------------------------------------


def _faults(
    configuration: Configuration, registry: Registry, gates: FeatureGates, expansions: list[Expansion], version: ApiVersion
) -> Iterator[Fault]:
    for i, (profile, found) in enumerate(zip(configuration.profiles, expansions, strict=True)):
        yield from _extender_faults(configuration, profile, f"profiles[{i}].pluginConfig")
        yield from _repeated_configs(profile, f"profiles[{i}].pluginConfig")
        yield from found.faults
        yield from _missing_args(profile, found, registry, f"profiles[{i}].pluginConfig")
        args = args_of(configuration, profile, _running(found), registry, gates)
        args = {name: value for name, value in args.items() if name not in version.checked}
        yield from _args_faults(profile, args, gates, f"profiles[{i}].pluginConfig")
    yield from _unlike_each_other(configuration, expansions)


def _extender_faults(configuration: Configuration, profile: KubeSchedulerProfile, path: str) -> Iterator[Fault]:
    """Yield a fault if NodeResourcesFit is absent although extenders have resources that it must ignore."""
    if not _ignored_by_extenders(configuration) or any(config.name == _FIT for config in profile.plugin_config):
        return
    multi_point = profile.plugins.multi_point
    by_default = not {"*", _FIT} & multi_point.disabled_names
    named = any(plugin.name == _FIT for point in (*ALL_POINTS, "multiPoint") for plugin in profile.plugins.at(point).enabled)
    if not by_default and not named:
        text = f"can't find NodeResourcesFitArgs in plugin config; an extender's ignoredByScheduler needs {_FIT}"
        yield Fault("Required value", path, text)


def _repeated_configs(profile: KubeSchedulerProfile, path: str) -> Iterator[Fault]:
    seen: set[str] = set()
    for i, config in enumerate(profile.plugin_config):
        if config.name in seen:
            yield Fault("Duplicate value", f"{path}[{i}]", f"repeated config for plugin {config.name}", config.name)
        seen.add(config.name)


def _missing_args(profile: KubeSchedulerProfile, found: Expansion, registry: Registry, path: str) -> Iterator[Fault]:
    """Yield a fault for each plugin that runs without arguments that it needs."""
    given = {config.name for config in profile.plugin_config}
    for name in _running(found):
        args_type = registry.args_type(name)
        needed = _needed(args_type) if args_type is not None and name not in given else []
        if needed:
            yield Fault("Required value", path, f"plugin {name} needs arguments: {', '.join(needed)}")


def _args_faults(profile: KubeSchedulerProfile, args: Mapping[str, Any], gates: FeatureGates, path: str) -> Iterator[Fault]:
    """Yield faults in arguments that kube-scheduler validates only when it builds the plugin, for plugins that run."""
    index = {config.name: i for i, config in reversed(list(enumerate(profile.plugin_config)))}
    for name, value in args.items():
        if name in index and hasattr(value, "faults"):
            yield from value.faults(f"{path}[{index[name]}].args", gates)


def _unlike_each_other(configuration: Configuration, expansions: list[Expansion]) -> Iterator[Fault]:
    """Yield faults if profiles differ in their QueueSort plugin or its arguments: all profiles share one queue."""
    first: tuple[str, Any] | None = None
    names: set[str] = set()
    for i, (profile, found) in enumerate(zip(configuration.profiles, expansions, strict=True)):
        own = profile.scheduler_name or ""
        if own in names:
            yield Fault(
                "Duplicate value", f"profiles[{i}].schedulerName", f'duplicate profile with scheduler name "{own}"', own
            )
        names.add(own)
        if len(found.points["queueSort"]) != 1:
            continue
        sort = found.points["queueSort"][0]
        args = next((config.args for config in profile.plugin_config if config.name == sort), None)
        if first is None:
            first = (sort, args)
        elif sort != first[0]:
            text = f'different queue sort plugins for profile "{own}": "{sort}", first: "{first[0]}"'
            yield Fault("Invalid value", f"profiles[{i}].plugins.queueSort", text, sort)
        elif args != first[1]:
            text = f'different queue sort plugin args for profile "{own}"'
            yield Fault("Invalid value", f"profiles[{i}].pluginConfig", text, args)
