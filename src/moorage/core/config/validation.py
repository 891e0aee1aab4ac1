"""Validation of a configuration, with the messages and field names of kube-scheduler.

Faults are in the order of upstream's checks, so that both programs report the same fault first.

Source  kube-scheduler 1.36.2, apis/config/validation/validation.go; component-base/config/validation/validation.go
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from moorage.api.durations import format_duration
from moorage.api.feature_gates import FeatureGates
from moorage.api.names import check_qualified_name, is_extended_resource_name
from moorage.api.releases import CURRENT, Release
from moorage.core.config.absent_plugins import successor
from moorage.core.config.api_versions import V1, ApiVersion
from moorage.core.config.configuration import (
    Configuration,
    Extender,
    KubeSchedulerProfile,
    LeaderElection,
    PluginSet,
)
from moorage.core.config.plugin_sets import merge
from moorage.errors import Fault
from moorage.framework.points import POINTS

# Validation of scheduler extenders.
#
# Source  kube-scheduler 1.36.2, apis/config/validation/validation.go, validateExtenders


def extender_faults(extenders: tuple[Extender, ...]) -> Iterator[Fault]:
    """Yield the faults of the extenders, each alone and all together."""
    managed: set[str] = set()
    for i, extender in enumerate(extenders):
        path = f"extenders[{i}]"
        if extender.prioritize_verb and extender.weight <= 0:
            yield Fault("Invalid value", f"{path}.weight", "must have a positive weight applied to it", extender.weight)
        for j, resource in enumerate(extender.managed_resources):
            at = f"{path}.managedResources[{j}].name"
            yield from _resource_name_faults(resource.name, at)
            if resource.name in managed:
                yield Fault("Invalid value", at, "duplicate extender managed resource name", resource.name)
            managed.add(resource.name)
    binders = sum(1 for extender in extenders if extender.bind_verb)
    if binders > 1:
        found = f"found {binders} extenders implementing bind"
        yield Fault("Invalid value", "extenders", "only one extender can implement bind", found)


def _resource_name_faults(name: str, path: str) -> Iterator[Fault]:
    wrong = check_qualified_name(name)
    yield from (Fault("Invalid value", path, text, name) for text in wrong)
    if not wrong and not is_extended_resource_name(name):
        yield Fault("Invalid value", path, "is an invalid extended resource name", name)


def validation_faults(configuration: Configuration, gates: FeatureGates, version: ApiVersion = V1) -> Iterator[Fault]:
    """Yield the faults of a defaulted configuration, whose profiles are not resolved yet."""
    yield from client_faults(configuration.client_connection.burst, configuration.leader_election, gates.emulated)
    if configuration.parallelism <= 0:
        yield Fault("Invalid value", "parallelism", "should be an integer value greater than zero", configuration.parallelism)
    yield from _profiles(configuration.profiles, gates, version)
    yield from _percentage("percentageOfNodesToScore", configuration.percentage_of_nodes_to_score)
    initial, most = configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds
    if initial <= 0:
        yield Fault("Invalid value", "podInitialBackoffSeconds", "must be greater than 0", initial)
    if most < initial:
        text = "must be greater than or equal to PodInitialBackoffSeconds"
        yield Fault("Invalid value", "podMaxBackoffSeconds", text, most)
    yield from extender_faults(configuration.extenders)


def client_faults(burst: int, election: LeaderElection, release: Release) -> Iterator[Fault]:
    """Yield the faults of how the scheduler calls the API server and becomes the leader, after flags are applied."""
    if burst < 0:
        yield Fault("Invalid value", "clientConnection.burst", "must be non-negative", burst)
    yield from leader_election_faults(election, release)


def leader_election_faults(given: LeaderElection, release: Release = CURRENT) -> Iterator[Fault]:
    """Yield the faults of a configuration's leader election, after flags are applied."""
    if not given.leader_elect:
        return
    yield from _durations(given, release)
    names = {
        "resourceLock": given.resource_lock,
        "resourceNamespace": given.resource_namespace,
        "resourceName": given.resource_name,
    }
    for name, text in names.items():
        if not text and release.names_election_fields:
            yield Fault("Invalid value", f"leaderElection.{name}", f"{name} is required", text)
        elif not text:
            yield Fault("Required value", f"leaderElection.{name}")
    if given.resource_lock not in release.locks and len(release.locks) == 1:
        text = 'resourceLock value must be "leases"'
        yield Fault("Invalid value", "leaderElection.resourceLock", text, given.resource_lock)


def _durations(given: LeaderElection, release: Release) -> Iterator[Fault]:
    durations = {
        "leaseDuration": given.lease_duration,
        "renewDeadline": given.renew_deadline,
        "retryPeriod": given.retry_period,
    }
    for name, seconds in durations.items():
        if seconds <= 0:
            yield Fault("Invalid value", f"leaderElection.{name}", "must be greater than zero", _duration(seconds))
    # The message shows the deadline's value, as upstream's does.
    text, shown = "must be greater than `RenewDeadline`", _duration(given.renew_deadline)
    if release.names_election_fields:
        text = "LeaseDuration must be greater than RenewDeadline"
    is_equal = given.lease_duration == given.renew_deadline
    if given.lease_duration < given.renew_deadline or (is_equal and not release.lease_may_equal_deadline):
        yield Fault("Invalid value", "leaderElection.leaseDuration", text, shown)


def _duration(seconds: float) -> str:
    return format_duration(round(seconds * 1e9))


def _percentage(path: str, percentage: int | None) -> Iterator[Fault]:
    if percentage is not None and not 0 <= percentage <= 100:
        yield Fault("Invalid value", path, "not in valid range [0-100]", percentage)


# -- profiles -----------------------------------------------------------------------------------------------------------


def _profiles(profiles: tuple[KubeSchedulerProfile, ...], gates: FeatureGates, version: ApiVersion) -> Iterator[Fault]:
    if not profiles:
        yield Fault("Required value", "profiles")
        return
    places: dict[str, int] = {}
    for i, profile in enumerate(profiles):
        path, name = f"profiles[{i}]", profile.scheduler_name or ""
        yield from _profile(profile, path, gates, version)
        if name in places:
            text = f"scheduler names are unique; {json.dumps(name, ensure_ascii=False)} is taken by profiles[{places[name]}]"
            yield Fault("Duplicate value", f"{path}.schedulerName", text, name)
        places[name] = i
    yield from _queue_sorts(profiles, gates, version)


def _profile(profile: KubeSchedulerProfile, path: str, gates: FeatureGates, version: ApiVersion) -> Iterator[Fault]:
    if not profile.scheduler_name:
        yield Fault("Required value", f"{path}.schedulerName")
    yield from _percentage(f"{path}.percentageOfNodesToScore", profile.percentage_of_nodes_to_score)
    for point in POINTS:
        for i, plugin in enumerate(profile.plugins.at(point).enabled):
            if plugin.name in version.removed:
                where = f"{path}.plugins.{point}.enabled[{i}]"
                yield Fault("Invalid value", where, version.removed[plugin.name] + successor(plugin.name), plugin.name)
    yield from _plugin_config(profile, f"{path}.pluginConfig", gates, version)


def _plugin_config(profile: KubeSchedulerProfile, path: str, gates: FeatureGates, version: ApiVersion) -> Iterator[Fault]:
    seen: set[str] = set()
    for i, config in enumerate(profile.plugin_config):
        at, name = f"{path}[{i}]", config.name
        if name in seen:
            yield Fault("Duplicate value", at, value=name)
        seen.add(name)
        if name in version.removed:
            yield Fault("Invalid value", at, version.removed[name] + successor(name), name)
        elif name in version.checked and hasattr(config.args, "faults"):
            yield from config.args.faults(f"{at}.args", gates)


def _queue_sorts(profiles: tuple[KubeSchedulerProfile, ...], gates: FeatureGates, version: ApiVersion) -> Iterator[Fault]:
    """Yield a fault if profiles differ in QueueSort: all profiles share one queue."""
    first = _sorts(profiles[0], version)
    if len(first.enabled) > 1:
        text = "only one queue sort plugin can be enabled"
        yield Fault("Invalid value", "profiles[0].plugins.queueSort.Enabled", text, len(first.enabled))
    # kube-scheduler uses "" if no plugin is named, which also matches arguments without a name.
    sort = first.enabled[0].name if first.enabled else ""
    args = _args_of(profiles[0], sort) if sort else None
    for i, profile in enumerate(profiles[1:], 1):
        if _said(_sorts(profile, version)) != _said(first):
            text = gates.emulated.queue_sort_differs
            yield Fault("Invalid value", f"profiles[{i}].plugins.queueSort", text, profile.plugins.queue_sort)
        for config in profile.plugin_config:
            if config.name == sort and config.args != args:
                text = "queueSort must be the same for all profiles"
                yield Fault("Invalid value", f"profiles[{i}].pluginConfig.args", text, config.args)


def _sorts(profile: KubeSchedulerProfile, version: ApiVersion) -> PluginSet:
    """Return what the profile enables at QueueSort, with the defaults if the version has some there."""
    given = profile.plugins.queue_sort
    return PluginSet(enabled=merge(PluginSet(enabled=version.sorts), given).enabled) if version.sorts else given


def _args_of(profile: KubeSchedulerProfile, name: str) -> Any:
    return next((config.args for config in reversed(profile.plugin_config) if config.name == name), None)


def _said(given: PluginSet) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
    enabled = tuple((plugin.name, plugin.weight or 0) for plugin in given.enabled)
    return enabled, tuple(plugin.name for plugin in given.disabled)
