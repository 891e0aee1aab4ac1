"""Defaulting of a configuration, as kube-scheduler does it before validation.

This module sets only the defaults that depend on other values: a zero or empty string that counts as absent, and the name of a
single profile. All other defaults are those of the structs' fields.

Source  kube-scheduler 1.36.2, apis/config/v1/defaults.go; component-base/config/v1alpha1/defaults.go
"""

from __future__ import annotations

from msgspec import structs

from moorage.config.configuration import ClientConnection, Configuration, KubeSchedulerProfile, LeaderElection
from moorage.releases import RELEASES, TODAY

__all__ = ["DEFAULT_SCHEDULER_NAME", "with_defaults"]

DEFAULT_SCHEDULER_NAME = "default-scheduler"


def with_defaults(configuration: Configuration, release: str = TODAY) -> Configuration:
    """Return the configuration with the defaults of a release applied."""
    contention = configuration.enable_contention_profiling
    return structs.replace(
        configuration,
        leader_election=_leader_election(configuration.leader_election, RELEASES[release].default_lock),
        client_connection=_client_connection(configuration.client_connection),
        enable_contention_profiling=configuration.enable_profiling if contention is None else contention,
        profiles=_profiles(configuration.profiles),
    )


def _leader_election(given: LeaderElection, lock: str) -> LeaderElection:
    return structs.replace(
        given,
        lease_duration=given.lease_duration or 15.0,
        renew_deadline=given.renew_deadline or 10.0,
        retry_period=given.retry_period or 2.0,
        resource_lock=given.resource_lock or lock,
        resource_name=given.resource_name or "kube-scheduler",
        resource_namespace=given.resource_namespace or "kube-system",
    )


def _client_connection(given: ClientConnection) -> ClientConnection:
    return structs.replace(
        given,
        content_type=given.content_type or "application/vnd.kubernetes.protobuf",
        qps=given.qps or 50.0,
        burst=given.burst or 100,
    )


def _profiles(given: tuple[KubeSchedulerProfile, ...]) -> tuple[KubeSchedulerProfile, ...]:
    """Set the default name of a single profile; with several profiles, each must have its own."""
    profiles = given or (KubeSchedulerProfile(),)
    name = DEFAULT_SCHEDULER_NAME if len(profiles) == 1 else ""
    return tuple(p if p.scheduler_name is not None else structs.replace(p, scheduler_name=name) for p in profiles)
