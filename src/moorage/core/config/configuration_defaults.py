"""Defaulting of a configuration, as kube-scheduler does it before validation.

This module sets only the defaults that depend on other values: a zero or empty string that counts as absent, and the name
of a single profile. All other defaults are those of the structs' fields.

Source  kube-scheduler 1.36.2, apis/config/v1/defaults.go; component-base/config/v1alpha1/defaults.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from msgspec import structs

from moorage.api.meta import Value
from moorage.api.releases import RELEASES, TODAY
from moorage.core.config.configuration import (
    ClientConnection,
    Configuration,
    KubeSchedulerProfile,
    LeaderElection,
)

DEFAULT_SCHEDULER_NAME = "default-scheduler"
_V = TypeVar("_V", LeaderElection, ClientConnection)


def with_defaults(configuration: Configuration, release: str = TODAY) -> Configuration:
    """Return the configuration with the defaults of a release applied."""
    contention = configuration.enable_contention_profiling
    return structs.replace(
        configuration,
        leader_election=_completed(configuration.leader_election, resource_lock=RELEASES[release].default_lock),
        client_connection=_completed(configuration.client_connection),
        enable_contention_profiling=configuration.enable_profiling if contention is None else contention,
        profiles=_profiles(configuration.profiles),
    )


#: The fields whose zero or empty value counts as absent, and what stands for it.
_FOR_ABSENT: Final[Mapping[type[Value], Mapping[str, Any]]] = {
    LeaderElection: {
        "lease_duration": 15.0, "renew_deadline": 10.0, "retry_period": 2.0, "resource_name": "kube-scheduler",
        "resource_namespace": "kube-system",
    },
    ClientConnection: {"content_type": "application/vnd.kubernetes.protobuf", "qps": 50.0, "burst": 100},
}  # fmt: skip


def _completed(given: _V, **more: str) -> _V:
    values = {**_FOR_ABSENT[type(given)], **more}
    return structs.replace(given, **{name: getattr(given, name) or value for name, value in values.items()})


def _profiles(given: tuple[KubeSchedulerProfile, ...]) -> tuple[KubeSchedulerProfile, ...]:
    """Set the default name of a single profile; with several profiles, each must have its own."""
    profiles = given or (KubeSchedulerProfile(),)
    name = DEFAULT_SCHEDULER_NAME if len(profiles) == 1 else ""
    return tuple(p if p.scheduler_name is not None else structs.replace(p, scheduler_name=name) for p in profiles)
