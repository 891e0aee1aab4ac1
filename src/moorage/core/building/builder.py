"""Build a scheduler from a loaded configuration: the one place where profiles, extenders and timeouts meet the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from moorage.api.feature_gates import FeatureGates
from moorage.basis.printable import clip
from moorage.core.config.configuration import Configuration
from moorage.core.config.configured_extenders import extenders_of
from moorage.core.config.profiles import ResolvedProfile, resolve
from moorage.core.config.scheduler_document import Loaded
from moorage.core.config.waking import Waking
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.verifying import Verification
from moorage.core.engine.engine_state import STANDARD_SETTINGS, EngineSettings
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import RAISED, InputError, MoorageError
from moorage.framework.events import Wake
from moorage.framework.handle import Handle
from moorage.framework.points import Plugin
from moorage.framework.profile import Profile, attach, declared_wakes, make_profile
from moorage.framework.registry import Registry

# From a configuration to profiles that run: resolve the names, build the plugins, report what is missing.

_Answer = TypeVar("_Answer")


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
    """Build profiles that are already resolved; ``registry`` holds the plugins of their release."""
    profiles: dict[str, Profile] = {}
    missing: set[str] = set()
    for resolved in resolved_profiles:
        names = {name for in_point in resolved.points.values() for name in in_point}
        missing |= {name for name in names if name not in registry}
        profiles[resolved.scheduler_name] = _build(resolved, sorted(names - missing), registry, handle)
    return BuiltProfiles(profiles, tuple(sorted(missing)))


def _build(resolved: ResolvedProfile, names: list[str], registry: Registry, handle: Handle) -> Profile:
    plugins: dict[str, Plugin] = {}
    for name in names:
        plugins[name] = _begun(name, registry.build(name, resolved.args.get(name)), handle)
    made = make_profile(
        resolved.scheduler_name, plugins, resolved.points, resolved.weights, resolved.percentage_of_nodes_to_score
    )
    gates, release = handle.gates, handle.gates.emulated
    return replace(
        made,
        run_all_filters=resolved.run_all_filters,
        nominated_first=release.tries_nominated_node_first or gates["PreferNominatedNode"],
        release=release,
        waking=Waking(release.event_kinds, asks_hints=gates["SchedulerQueueingHints"]),
        placement_weights=resolved.placement_weights,
    )


def _begun(name: str, plugin: Plugin, handle: Handle) -> Plugin:
    """Attach a plugin and call its ``wakes_on`` once, so that errors are reported before the first pod arrives.

    Raises  InputError if the plugin raises, or yields anything but ``Wake``
    """
    _done(name, "attach", lambda: attach(plugin, handle))
    for wake in _done(name, "wakes_on", lambda: declared_wakes(plugin)) or ():
        if not isinstance(wake, Wake):
            raise InputError(f"plugin {name}: wakes_on yields {wake!r}; yield Wake(event, when)")
    return plugin


def _done(name: str, method: str, call: Callable[[], _Answer]) -> _Answer:
    try:
        return call()
    except MoorageError:
        raise
    except RAISED as error:
        raise InputError(f"plugin {name} failed in {method}: {type(error).__name__}: {clip(str(error))}") from error


def build_scheduler(
    loaded: Loaded,
    cycle: Cycle,
    settings: EngineSettings = STANDARD_SETTINGS,
    *,
    wrap: Callable[[Profile], Profile] | None = None,
) -> tuple[Scheduler, tuple[str, ...]]:
    """Return a scheduler for a configuration, and the names of enabled plugins that do not exist, sorted.

    The configuration's backoff replaces that of ``settings``. ``wrap`` replaces each profile, for example by one that measures
    its plugins.

    Raises  InputError if a plugin cannot be built
    """
    missing: tuple[str, ...] = ()

    def build_profiles(handle: Handle) -> Mapping[str, Profile]:
        nonlocal missing
        built = build_resolved(loaded.profiles, loaded.registry, handle)
        missing = built.missing
        return built.profiles if wrap is None else {name: wrap(profile) for name, profile in built.profiles.items()}

    configuration = loaded.configuration
    scheduler = Scheduler(
        cycle,
        loaded.gates,
        build_profiles,
        settings._replace(times=settings.times._replace(
            initial_backoff_s=float(configuration.pod_initial_backoff_seconds),
            max_backoff_s=float(configuration.pod_max_backoff_seconds),
        )),
    )  # fmt: skip
    return scheduler, missing


#: How often a pod of a live scheduler may become active in a second without a backoff.
_MOST_ACTIVE: Final = 100


def complete_scheduler(
    loaded: Loaded, seed: int, settings: EngineSettings = STANDARD_SETTINGS, *,
    watched: Callable[[Profile], Profile] | None = None, verified: float = 0.0,
) -> Scheduler:  # fmt: skip
    """Return a scheduler with the profiles of a configuration, each replaced by the result of ``watched``.

    ``verified``: the share of decisions to repeat without caches

    Raises  InputError if an enabled plugin does not exist
    """
    configuration = loaded.configuration
    cycle = Cycle(
        seed=seed,
        percentage_of_nodes_to_score=configuration.percentage_of_nodes_to_score or 0,
        extenders=extenders_of(configuration.extenders, loaded.release),
        verification=Verification(verified) if verified else None,
    )
    scheduler, missing = build_scheduler(loaded, cycle, settings, wrap=watched)
    scheduler.queue.most_active = _MOST_ACTIVE
    if missing:
        raise InputError(f"enabled plugins do not exist: {', '.join(missing)}")
    return scheduler
