"""The KubeSchedulerConfiguration schemas of v1beta1, v1beta2, v1beta3 and of v1 up to 1.35, and their conversion to v1.

The betas have no percentage per profile and no ``delayCacheUntilActive``. v1beta1 and v1beta2 have the addresses of health and
metrics, which are flags in v1; v1beta1 has no ``multiPoint``. v1 up to 1.35 has no extension points of placements.

Source  kube-scheduler config/v1beta1/types.go (1.21), v1beta2/types.go (1.22), v1beta3/types.go (1.24)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import structs

from moorage.api.meta import Value
from moorage.core.config.configuration import (
    ClientConnection,
    Configuration,
    Extender,
    KubeSchedulerProfile,
    LeaderElection,
    PluginConfig,
    Plugins,
    PluginSet,
)
from moorage.core.config.legacy_sets import is_ip, plain_addresses, socket_faults, split_host_port
from moorage.errors import Fault
from moorage.framework.args import Int32

P = TypeVar("P", bound="_Plugins")


class _Plugins(Value):
    """The extension points of v1beta1 and v1beta2."""

    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()


class _MultiPointPlugins(_Plugins):
    multi_point: PluginSet = PluginSet()


class _Profile(Value):
    scheduler_name: str | None = None
    plugins: _Plugins | None = None
    plugin_config: tuple[PluginConfig, ...] = ()


class _MultiPointProfile(Value):
    scheduler_name: str | None = None
    plugins: _MultiPointPlugins | None = None
    plugin_config: tuple[PluginConfig, ...] = ()


class _PluginsV135(_MultiPointPlugins):
    pre_enqueue: PluginSet = PluginSet()


class _ProfileV128(Value):
    scheduler_name: str | None = None
    plugins: _PluginsV135 | None = None
    plugin_config: tuple[PluginConfig, ...] = ()


class _ProfileV135(Value):
    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    plugins: _PluginsV135 | None = None
    plugin_config: tuple[PluginConfig, ...] = ()


class _Document(Value):
    """The fields of all versions. 0 means absent for fields that do not allow 0."""

    parallelism: Int32 = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: Int32 = 0
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    extenders: tuple[Extender, ...] = ()


class V1Beta3Document(_Document):
    profiles: tuple[_MultiPointProfile, ...] = ()


class V1Beta3DocumentV128(_Document):
    """v1beta3 as 1.26 to 1.28 read it."""

    profiles: tuple[_ProfileV128, ...] = ()


class V1Beta2Document(_Document):
    """v1beta2 as 1.23 to 1.25 read it."""

    profiles: tuple[_MultiPointProfile, ...] = ()
    healthz_bind_address: str | None = None
    metrics_bind_address: str | None = None


class V1Beta2DocumentV122(V1Beta2Document):
    """v1beta2 as 1.22 reads it: without ``multiPoint``, and with the addresses of v1beta1."""

    profiles: tuple[_Profile, ...] = ()  # type: ignore[assignment]


class V1Beta2DocumentV127(V1Beta2Document):
    """v1beta2 as 1.26 and 1.27 read it."""

    profiles: tuple[_ProfileV128, ...] = ()  # type: ignore[assignment]


class V1Beta1Document(V1Beta2Document):
    """The same fields as v1beta2 in 1.21, without ``multiPoint``."""

    profiles: tuple[_Profile, ...] = ()  # type: ignore[assignment]


class V1DocumentV125(V1Beta3Document):
    """v1 as 1.25 reads it."""


class V1DocumentV127(_Document):
    """v1 as 1.26 and 1.27 read it."""

    profiles: tuple[_ProfileV135, ...] = ()


class V1DocumentV135(V1DocumentV127):
    """v1 as 1.28 to 1.35 read it."""

    delay_cache_until_active: bool = False


def as_configuration(document: msgspec.Struct) -> Configuration:
    """Return a document of any version as v1, without the addresses."""
    if isinstance(document, Configuration):
        return document
    if isinstance(document, V1DocumentV127):
        given = {name: getattr(document, name) for name in document.__struct_fields__}
        return structs.replace(Configuration(), **{**given, "profiles": tuple(map(_as_profile, document.profiles))})
    if not isinstance(document, V1Beta2Document | V1Beta3Document | V1Beta3DocumentV128):
        raise TypeError(f"{type(document).__name__} is no scheduler configuration")
    shared = {name: getattr(document, name) for name in _Document.__struct_fields__}
    return structs.replace(Configuration(), profiles=tuple(map(_of_beta, document.profiles)), **shared)


def _of_beta(given: _Profile | _MultiPointProfile | _ProfileV128) -> KubeSchedulerProfile:
    """Return a profile of a beta. Where a beta reads ``preEnqueue``, it leaves it out when it merges the defaults."""
    plugins = structs.replace(_as_plugins(given.plugins), pre_enqueue=PluginSet())
    return KubeSchedulerProfile(scheduler_name=given.scheduler_name, plugins=plugins, plugin_config=given.plugin_config)


def _as_profile(given: _ProfileV135) -> KubeSchedulerProfile:
    plain = {name: getattr(given, name) for name in _ProfileV135.__struct_fields__}
    return KubeSchedulerProfile(**{**plain, "plugins": _as_plugins(given.plugins)})


def _as_plugins(given: _Plugins | None) -> Plugins:
    return Plugins() if given is None else structs.replace(Plugins(), **structs.asdict(given))


def address_faults(document: msgspec.Struct) -> list[Fault]:
    """Return a fault for each invalid address; those of v1beta1 are defaulted first."""
    if not isinstance(document, V1Beta2Document):
        return []
    given = {"healthzBindAddress": document.healthz_bind_address, "metricsBindAddress": document.metrics_bind_address}
    if isinstance(document, V1Beta1Document):
        return list(socket_faults(plain_addresses(given)))
    if isinstance(document, V1Beta2DocumentV122):
        known = {field: one for field, one in given.items() if one is not None and (split_host_port(one) or is_ip(one))}
        wrong = [fault for fault in _address_faults(given) if fault.field not in known]
        return [*wrong, *socket_faults(plain_addresses(known))]
    return _address_faults(given)


def _address_faults(given: Mapping[str, str | None]) -> list[Fault]:
    text = "must be a valid socket address format, (e.g. 0.0.0.0:10254 or [::]:10254)"
    return [
        Fault("Invalid value", field, text, address)
        for field, address in given.items()
        if address is not None and not _is_address(address)
    ]


def _is_address(address: str) -> bool:
    """Return True for host and port, ``:port``, or an IP address."""
    host, colon, port = address.rpartition(":")
    if is_ip(address):
        return True
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    return bool(colon) and port.isdecimal() and 0 < int(port) < 2**16 and (not host or is_ip(host))
