"""Build a scheduler from a loaded configuration: the one place where profiles, extenders and timeouts meet the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from moorage.core.building.profiles import build_resolved
from moorage.core.config.scheduler_document import Loaded
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.engine_state import STANDARD_PARTS, EngineParts
from moorage.core.engine.scheduler import Scheduler
from moorage.framework.profile import Profile
from moorage.framework.registry import Handle

__all__ = ["build_scheduler"]


def build_scheduler(
    loaded: Loaded,
    cycle: Cycle,
    *,
    max_unschedulable_s: float = 300.0,
    max_disks: int | None = None,
    wrap: Callable[[Profile], Profile] | None = None,
    parts: EngineParts = STANDARD_PARTS,
) -> tuple[Scheduler, tuple[str, ...]]:
    """Return a scheduler for a configuration, and the names of enabled plugins that do not exist, sorted.

    ``wrap`` replaces each profile, for example by one that measures its plugins.

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
        initial_backoff_s=float(configuration.pod_initial_backoff_seconds),
        max_backoff_s=float(configuration.pod_max_backoff_seconds),
        max_unschedulable_s=max_unschedulable_s,
        max_disks=max_disks,
        parts=parts,
    )
    return scheduler, missing
