"""What a document leaves open, filled in as kube-scheduler does before it checks anything.

Only what hangs on something else stands here: an explicit zero or empty text that counts as absent, the name of a profile
that is alone, and arguments of plugins that nobody configured.

Source  kube-scheduler 1.36.2, apis/config/v1/defaults.go; component-base/config/v1alpha1/defaults.go
"""

from __future__ import annotations

from msgspec import structs

from moorage.config.document import ClientConnection, Configuration, LeaderElection, Profile
from moorage.config.release_1_21 import default_lock
from moorage.framework.features import TODAY

__all__ = ["DEFAULT_SCHEDULER_NAME", "with_defaults"]

DEFAULT_SCHEDULER_NAME = "default-scheduler"


def with_defaults(configuration: Configuration, release: str = TODAY) -> Configuration:
    """Return the configuration with everything filled in that it leaves open, as a release does."""
    contention = configuration.enable_contention_profiling
    return structs.replace(
        configuration,
        leader_election=_leader_election(configuration.leader_election, default_lock(release)),
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


def _profiles(given: tuple[Profile, ...]) -> tuple[Profile, ...]:
    """Only a profile that is alone gets a name; of several, each must say its own."""
    profiles = given or (Profile(),)
    name = DEFAULT_SCHEDULER_NAME if len(profiles) == 1 else ""
    return tuple(p if p.scheduler_name is not None else structs.replace(p, scheduler_name=name) for p in profiles)
