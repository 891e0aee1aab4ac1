"""The scheduler of ``moorage up``: the current release, or an emulated one."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from moorage.api.releases import CURRENT
from moorage.core.building.loading import ConfigSource, load_source
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import InputError
from moorage.framework.features import FeatureGates
from moorage.framework.profile import Profile
from moorage.framework.registry import load
from moorage.interfaces.cli.live.legacy_options import OldFlags
from moorage.interfaces.cli.live.run_release import ALGORITHM, Era, era_of, releases_with
from moorage.interfaces.cli.live.scheduler_factory import build_scheduler
from moorage.interfaces.cli.pflag import Given
from moorage.live.client.extenders import ExtenderClient
from moorage.live.server.scheduler_metrics import SchedulerMetrics

__all__ = ["PluginMeter", "WantedScheduler"]

#: Options → the corresponding flags of kube-scheduler.
_FLAGS: Final = {
    "algorithm_provider": "algorithm-provider",
    "policy_config_file": "policy-config-file",
    "policy_configmap": "policy-configmap",
    "policy_configmap_namespace": "policy-configmap-namespace",
    "use_legacy_policy_config": "use-legacy-policy-config",
    "scheduler_name": "scheduler-name",
    "hard_pod_affinity": "hard-pod-affinity-symmetric-weight",
}


class PluginMeter:
    """Measures the plugins of each scheduler that is built with ``watched``, for the web interface.

    ``bare`` are the profiles without measurements. Without ``measures``, nothing is measured.
    """

    def __init__(self, *, measures: bool) -> None:
        self.metrics = SchedulerMetrics(time.monotonic) if measures else None
        self.bare: dict[str, Profile] = {}

    def watched(self, profile: Profile) -> Profile:
        self.bare[profile.scheduler_name] = profile
        return profile if self.metrics is None else self.metrics.probe.watched(profile)


@dataclass(frozen=True, slots=True)
class WantedScheduler:
    """The scheduler to build, possibly before its cluster exists. ``old`` holds the flags of an emulated release."""

    given: Mapping[str, Any]
    era: Era
    old: OldFlags | None

    @classmethod
    def read(cls, given: Mapping[str, Any], report: Callable[[str], None]) -> WantedScheduler:
        """Return the scheduler that the options describe; ``report`` receives warnings about deprecated and ignored options.

        Raises  InputError
        """
        named = {flag: given[option] for option, flag in _FLAGS.items() if given[option] not in (None, "", False)}
        config = given["config"] or ""
        if given["emulate"] is not None:
            era = Era(given["emulate"], "--emulate")
        else:
            era = era_of(config, [flag for flag in ALGORITHM if flag in named])
        era = era.with_text(config)
        unknown = [flag for flag in named if all(flag != one.name for one in era.flags)]
        if unknown:
            *others, last = releases_with(unknown[0])
            known = f"{', '.join(others)} or {last}"
            raise InputError(f"--{unknown[0]}: not a flag of {era.release}; choose {known} with --emulate")
        if not era.is_old:
            return cls(given, era, None)
        values = {**{flag.name: flag.default for flag in era.flags}, "config": config, **named}
        old = OldFlags(era.completed(Given(values, frozenset(named))), era)
        old.check()
        for line in old.warnings():
            report(line)
        return cls(given, era, old)

    @property
    def needs_cluster(self) -> bool:
        """True if the scheduler reads its Policy from a ConfigMap, so that the cluster must exist first."""
        return self.old is not None and self.old.config_map is not None

    @property
    def cluster_gates(self) -> FeatureGates:
        """The gates of the other components, which run the current release; other gates apply to the scheduler only."""
        return FeatureGates.parse(self.given["feature_gates"]) if self.era.emulated is CURRENT else FeatureGates()

    def build(
        self, read_config_map: Callable[[str, str], bytes] | None = None, watched: Callable[[Profile], Profile] | None = None
    ) -> tuple[Scheduler, ExtenderClient]:
        """Return the scheduler, and a client for its extenders. ``read_config_map`` returns the Policy of a ConfigMap.
        ``watched`` wraps each profile.

        Raises  ConfigError, InputError
        """
        given = self.given
        if given["plugins"] and os.getcwd() not in sys.path:
            # Like `python -m`, find modules in the current directory, but never in place of an installed module.
            sys.path.append(os.getcwd())
        source = ConfigSource(
            self.era.config if self.old is None or self.old.has_config else None,
            given["config"] or "the default configuration",
            emulate=self.era.asked,
            feature_gates=given["feature_gates"],
            plugins=tuple(load(name) for name in given["plugins"]),
        )
        loaded = load_source(source, None if self.old is None else self.old.algorithm(read_config_map or _no_cluster))
        scheduler = build_scheduler(loaded, given["seed"], self.era.retried_s, max_disks=given["max_disks"], watched=watched)
        return scheduler, ExtenderClient(loaded.configuration.extenders)


def _no_cluster(namespace: str, name: str) -> bytes:
    raise InputError(f"couldn't get policy config map {namespace}/{name}: the cluster does not exist yet")
