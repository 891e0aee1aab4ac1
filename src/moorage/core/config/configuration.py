"""The scheduler's configuration as frozen structs: a KubeSchedulerConfiguration document with the fields of all versions.

Fields are snake_case here and camelCase on the wire. An absent field has the default given here;
``moorage.core.config.scheduler_document`` handles explicit zeros and empty strings. A plugin's arguments are an instance of its
``Args`` if the plugin is known, else plain data.

Source  kube-scheduler 1.36.2, kube-scheduler/config/v1/types.go; component-base/config/v1alpha1/types.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, field

from moorage.api.meta import Value
from moorage.framework.args import Duration, Int32

#: A 32-bit float on the wire; a larger number is a decoding error.
Float32: TypeAlias = Annotated[float, Meta(ge=-3.4028234663852886e38, le=3.4028234663852886e38)]


class LeaderElection(Value):
    """Leader election between replicas. Durations are seconds."""

    leader_elect: bool = True
    lease_duration: Duration = 0.0
    renew_deadline: Duration = 0.0
    retry_period: Duration = 0.0
    resource_lock: str = ""
    resource_name: str = ""
    resource_namespace: str = ""


class ClientConnection(Value):
    """The connection to the API server. ``qps`` and ``burst`` limit requests; a negative ``qps`` disables the limit."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: Float32 = 0.0
    burst: Int32 = 0


class PluginRef(Value):
    """A plugin by name. No weight, or 0, means weight 1."""

    name: str = ""
    weight: Int32 | None = None


class PluginSet(Value):
    """The plugins that a profile enables and disables at one extension point; ``*`` disables all defaults."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[PluginRef, ...] = ()

    @property
    def disabled_names(self) -> frozenset[str]:
        return frozenset(plugin.name for plugin in self.disabled)


class Plugins(Value):
    """The plugin sets of a profile, one per extension point; ``multi_point`` applies at every point a plugin implements."""

    pre_enqueue: PluginSet = PluginSet()
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
    multi_point: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()

    def at(self, point: str) -> PluginSet:
        """Return the set of an extension point, by its name in the configuration: ``preFilter``, ``multiPoint``."""
        found: PluginSet = getattr(self, _ATTRIBUTES[point])
        return found

    @classmethod
    def of(cls, sets: Mapping[str, PluginSet]) -> Plugins:
        """Return the plugins of some extension points, by the names of these in the configuration."""
        return cls(**{_ATTRIBUTES[point]: plugins for point, plugins in sets.items()})


_ATTRIBUTES = dict(zip(Plugins.__struct_encode_fields__, Plugins.__struct_fields__, strict=True))


class PluginConfig(Value):
    """The arguments of one plugin: its ``Args``, or plain data if the plugin is unknown."""

    name: str = ""
    args: Any = None


class KubeSchedulerProfile(Value):
    """A profile. ``scheduler_name`` is None only before defaulting."""

    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()


class ManagedResource(Value):
    name: str = ""
    ignored_by_scheduler: bool = False


class ExtenderTLSConfig(Value):
    """The TLS settings of an extender. The ``…_data`` fields hold PEM and override the files."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""


class Extender(Value):
    """A scheduler extender: an HTTP service that is called in addition to the plugins. An empty verb is not called.

    ``http_timeout`` is in seconds; 0 means 5. ``managed_resources``: only pods that request one of them are sent.
    """

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 0
    bind_verb: str = ""
    enable_https: bool = field(name="enableHTTPS", default=False)
    tls_config: ExtenderTLSConfig | None = None
    http_timeout: Duration = 0.0
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False


class Configuration(Value):
    """A KubeSchedulerConfiguration. Backoffs are seconds; a percentage of 0 filters every node.

    v1beta1 and v1beta2 have the addresses of health and metrics, which are flags later.
    """

    parallelism: Int32 = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: Int32 = 0
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    profiles: tuple[KubeSchedulerProfile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: bool = False
    healthz_bind_address: str | None = None
    metrics_bind_address: str | None = None
