"""``DeschedulerPolicy`` v1alpha2 with the arguments of the default plugins, read and validated as the descheduler does.

Source  descheduler 0.36, pkg/api/v1alpha2, pkg/descheduler/policyconfig.go, pkg/framework/plugins/*/{types,validation}.go
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from moorage.api.durations import DurationError, duration_seconds
from moorage.api.meta import LabelSelector
from moorage.api.reading.manifests import read_first_yaml
from moorage.api.selectors import SelectorError, compile_label_selector, parse_selector
from moorage.errors import InputError

SYSTEM_CRITICAL: Final = 2_000_000_000
_STATES: Final = tuple(sorted((
    "Running", "Pending", "Succeeded", "Failed", "Unknown", "NodeAffinity", "NodeLost", "Shutdown",
    "UnexpectedAdmissionError", "PodInitializing", "ContainerCreating", "ImagePullBackOff", "CrashLoopBackOff",
    "CreateContainerConfigError", "ErrImagePull", "CreateContainerError", "InvalidImageName", "OOMKilled", "Error",
    "Completed", "DeadlineExceeded", "Evicted", "ContainerCannotRun", "StartError",
)))  # fmt: skip
_PROTECTIONS: Final = ("PodsWithLocalStorage", "SystemCriticalPods", "FailedBarePods", "DaemonSetPods")
_EXTRA_PROTECTIONS: Final = ("PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims")
_ONE_LIST: Final = "only one of Include/Exclude %s can be set"


class _Strict(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class NamespaceLists(_Strict, frozen=True):
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class DeschedulerPluginArgs(_Strict, frozen=True):
    """Arguments of a plugin. ``apiVersion`` and ``kind`` may be given, as for every API object."""

    api_version: str = ""
    kind: str = ""


class PodFilterArgs(DeschedulerPluginArgs, frozen=True):
    """The pods that most plugins are limited to."""

    namespaces: NamespaceLists | None = None
    label_selector: LabelSelector | None = None


class PriorityThreshold(_Strict, frozen=True):
    name: str = ""
    value: int | None = None


class StorageClassName(_Strict, frozen=True):
    name: str = ""


class PodsWithPVC(_Strict, frozen=True):
    protected_storage_classes: tuple[StorageClassName, ...] = ()


class ProtectionsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    pods_with_pvc: PodsWithPVC | None = msgspec.field(name="PodsWithPVC", default=None)


class PodProtections(_Strict, frozen=True):
    extra_enabled: tuple[str, ...] = ()
    default_disabled: tuple[str, ...] = ()
    config: ProtectionsConfig | None = None


class DefaultEvictorArgs(DeschedulerPluginArgs, frozen=True):
    node_selector: str = ""
    label_selector: LabelSelector | None = None
    namespace_label_selector: LabelSelector | None = None
    priority_threshold: PriorityThreshold | None = None
    node_fit: bool = False
    min_replicas: int = 0
    min_pod_age: str | None = None
    no_eviction_policy: str = ""
    pod_protections: PodProtections = PodProtections()
    evict_local_storage_pods: bool = False
    evict_daemon_set_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    ignore_pods_without_pdb: bool = msgspec.field(name="ignorePodsWithoutPDB", default=False)
    evict_failed_bare_pods: bool = False

    def protections(self) -> frozenset[str]:
        """Return the protections in force. ``podProtections`` replaces the deprecated fields."""
        given = self.pod_protections
        if given.default_disabled or given.extra_enabled:
            return frozenset(_PROTECTIONS) - set(given.default_disabled) | set(given.extra_enabled)
        return frozenset(name for name, holds in (
            ("PodsWithLocalStorage", not self.evict_local_storage_pods), ("DaemonSetPods", not self.evict_daemon_set_pods),
            ("SystemCriticalPods", not self.evict_system_critical_pods), ("FailedBarePods", not self.evict_failed_bare_pods),
            ("PodsWithPVC", self.ignore_pvc_pods), ("PodsWithoutPDB", self.ignore_pods_without_pdb),
        ) if holds)  # fmt: skip

    def faults(self) -> list[str]:
        found, given, threshold = [], self.pod_protections, self.priority_threshold
        if threshold is not None and threshold.value is not None and threshold.name:
            found.append("priority threshold misconfigured, only one of priorityThreshold fields can be set")
        if self.no_eviction_policy not in ("", "Preferred", "Mandatory"):
            found.append('noEvictionPolicy accepts only ["Preferred" "Mandatory"] values')
        deprecated = (
            self.evict_local_storage_pods, self.evict_daemon_set_pods, self.evict_system_critical_pods, self.ignore_pvc_pods,
            self.evict_failed_bare_pods, self.ignore_pods_without_pdb,
        )  # fmt: skip
        if any(deprecated) and (given.extra_enabled or given.default_disabled):
            found.append("cannot use Deprecated fields alongside PodProtections.ExtraEnabled or PodProtections.DefaultDisabled")
        lists = (
            ("ExtraEnabled", given.extra_enabled, _EXTRA_PROTECTIONS),
            ("DefaultDisabled", given.default_disabled, _PROTECTIONS),
        )
        for name, names, known in lists:
            unknown = [one for one in names if one not in known]
            valid = " ".join(known)
            found += [f'invalid pod protection policy in {name}: "{one}". Valid options are: [{valid}]' for one in unknown]
        found += [
            f"PodProtections.{name} contains duplicate entries" for name, names, _ in lists[::-1] if len({*names}) < len(names)
        ]
        claims = given.config.pods_with_pvc if given.config is not None and "PodsWithPVC" in given.extra_enabled else None
        for at, one in enumerate(claims.protected_storage_classes if claims is not None else ()):
            if not one.name:
                found.append(f"PodProtections.Config.PodsWithPVC.ProtectedStorageClasses[{at}] name cannot be empty")
        try:
            duration_seconds(self.min_pod_age or "0s")
            parse_selector(self.node_selector)
        except (DurationError, SelectorError) as error:
            found.append(f"minPodAge or nodeSelector: {error}")
        return found


class RemoveDuplicatesArgs(DeschedulerPluginArgs, frozen=True):
    namespaces: NamespaceLists | None = None
    exclude_owner_kinds: tuple[str, ...] = ()


class RemovePodsViolatingNodeAffinityArgs(PodFilterArgs, frozen=True):
    node_affinity_type: tuple[str, ...] = ()

    def faults(self) -> list[str]:
        return [] if self.node_affinity_type else ["nodeAffinityType needs to be set"]


class RemovePodsViolatingNodeTaintsArgs(PodFilterArgs, frozen=True):
    include_prefer_no_schedule: bool = False
    excluded_taints: tuple[str, ...] = ()
    included_taints: tuple[str, ...] | None = None

    def faults(self) -> list[str]:
        both = self.excluded_taints and self.included_taints
        return ["either includedTaints or excludedTaints can be set, but not both"] if both else []


class RemovePodsViolatingTopologySpreadConstraintArgs(PodFilterArgs, frozen=True):
    constraints: tuple[str, ...] = ()
    topology_balance_node_fit: bool | None = None

    def faults(self) -> list[str]:
        known = ("DoNotSchedule", "ScheduleAnyway")
        return [f"constraint {one} is not one of {' '.join(known)}" for one in self.constraints if one not in known]


class RemovePodsHavingTooManyRestartsArgs(PodFilterArgs, frozen=True):
    pod_restart_threshold: int = 0
    including_init_containers: bool = False
    states: tuple[str, ...] = ()

    def faults(self) -> list[str]:
        found = [] if self.pod_restart_threshold >= 1 else ["invalid PodsHavingTooManyRestarts threshold"]
        allowed = {"CrashLoopBackOff", "Running"}
        return found if allowed.issuperset(self.states) else [*found, f"states must be one of {' '.join(sorted(allowed))}"]


class RemoveFailedPodsArgs(PodFilterArgs, frozen=True):
    exclude_owner_kinds: tuple[str, ...] = ()
    min_pod_lifetime_seconds: int | None = None
    reasons: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    including_init_containers: bool = False


class PodConditionFilter(_Strict, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    min_time_since_last_transition_seconds: int | None = None


class PodLifeTimeArgs(PodFilterArgs, frozen=True):
    owner_kinds: NamespaceLists | None = None
    max_pod_life_time_seconds: int | None = None
    states: tuple[str, ...] = ()
    conditions: tuple[PodConditionFilter, ...] = ()
    exit_codes: tuple[int, ...] = ()
    including_init_containers: bool = False
    including_ephemeral_containers: bool = False

    def faults(self) -> list[str]:
        found, kinds = [], self.owner_kinds
        if kinds is not None and kinds.include and kinds.exclude:
            found.append(_ONE_LIST % "ownerKinds")
        if not set(_STATES).issuperset(self.states):
            found.append(f"states must be one of {' '.join(_STATES)}")
        for at, one in enumerate(self.conditions):
            if one == PodConditionFilter():
                found.append(
                    f"conditions[{at}]: at least one of type, status, reason, or minTimeSinceLastTransitionSeconds must be set"
                )
        if self.max_pod_life_time_seconds is None and not (self.states or self.conditions or self.exit_codes):
            found.append(
                "at least one filtering criterion must be specified (maxPodLifeTimeSeconds, states, conditions, or exitCodes)"
            )
        return found


class Prometheus(_Strict, frozen=True):
    query: str = ""


class MetricsUtilization(_Strict, frozen=True):
    metrics_server: bool = False
    source: str = ""
    prometheus: Prometheus | None = None


class EvictionLimits(_Strict, frozen=True):
    node: int | None = None


class HighNodeUtilizationArgs(DeschedulerPluginArgs, frozen=True):
    thresholds: Mapping[str, float] = {}
    number_of_nodes: int = 0
    eviction_modes: tuple[str, ...] = ()
    evictable_namespaces: NamespaceLists | None = None

    def faults(self) -> list[str]:
        found = [*_no_inclusion(self.evictable_namespaces), *_threshold_faults(self.thresholds)]
        unknown = [one for one in self.eviction_modes if one != "OnlyThresholdingResources"]
        return [*found, *(f"invalid eviction mode {one}" for one in unknown)][:1]


class LowNodeUtilizationArgs(DeschedulerPluginArgs, frozen=True):
    use_deviation_thresholds: bool = False
    thresholds: Mapping[str, float] = {}
    target_thresholds: Mapping[str, float] = {}
    number_of_nodes: int = 0
    metrics_utilization: MetricsUtilization | None = None
    evictable_namespaces: NamespaceLists | None = None
    eviction_limits: EvictionLimits | None = None

    def faults(self) -> list[str]:
        found = _no_inclusion(self.evictable_namespaces)
        low, high = self.thresholds, self.target_thresholds
        found += [f"thresholds config is not valid: {one}" for one in _threshold_faults(low)]
        found += [f"targetThresholds config is not valid: {one}" for one in _threshold_faults(high)]
        if low.keys() != high.keys():
            found.append("thresholds and targetThresholds configured different resources")
        found += [
            f"thresholds' {name} percentage is greater than targetThresholds'" for name, value in low.items()
            if value > high.get(name, value) and not self.use_deviation_thresholds
        ]  # fmt: skip
        return [*found, *self._metrics_faults()][:1]

    def _metrics_faults(self) -> list[str]:
        metrics = self.metrics_utilization or MetricsUtilization(source="KubernetesMetrics")
        if metrics.source == "KubernetesMetrics" and metrics.metrics_server:
            return ['it is not allowed to set both "KubernetesMetrics" source and metricsServer']
        if metrics.source == "KubernetesMetrics" and metrics.prometheus is not None:
            return ['prometheus configuration is not allowed to set when source is set to "KubernetesMetrics"']
        if metrics.source == "Prometheus" and (metrics.prometheus is None or not metrics.prometheus.query):
            return ['prometheus query is required when metrics source is set to "Prometheus"']
        known = metrics.metrics_server or metrics.source in ("KubernetesMetrics", "Prometheus")
        return [] if known else ["metricsUtilization: source is neither KubernetesMetrics nor Prometheus"]


def _no_inclusion(given: NamespaceLists | None) -> list[str]:
    held = given is not None and given.include
    return ["only Exclude namespaces can be set, inclusion is not supported"] if held else []


def _threshold_faults(given: Mapping[str, float]) -> list[str]:
    if not given:
        return ["no resource threshold is configured"]
    return [f"{name} threshold not in [0, 100] range" for name, value in given.items() if not 0 <= value <= 100]


#: The default plugins by extension point, and the arguments of each.
DESCHEDULE: Final[Mapping[str, type[DeschedulerPluginArgs]]] = {
    "PodLifeTime": PodLifeTimeArgs, "RemoveFailedPods": RemoveFailedPodsArgs,
    "RemovePodsHavingTooManyRestarts": RemovePodsHavingTooManyRestartsArgs,
    "RemovePodsViolatingInterPodAntiAffinity": PodFilterArgs,
    "RemovePodsViolatingNodeAffinity": RemovePodsViolatingNodeAffinityArgs,
    "RemovePodsViolatingNodeTaints": RemovePodsViolatingNodeTaintsArgs,
}  # fmt: skip
BALANCE: Final[Mapping[str, type[DeschedulerPluginArgs]]] = {
    "HighNodeUtilization": HighNodeUtilizationArgs, "LowNodeUtilization": LowNodeUtilizationArgs,
    "RemoveDuplicates": RemoveDuplicatesArgs,
    "RemovePodsViolatingTopologySpreadConstraint": RemovePodsViolatingTopologySpreadConstraintArgs,
}  # fmt: skip
ARGS: Final[Mapping[str, type[DeschedulerPluginArgs]]] = {**DESCHEDULE, **BALANCE, "DefaultEvictor": DefaultEvictorArgs}


class DeschedulerPluginConfig(_Strict, frozen=True):
    name: str
    args: Mapping[str, Any] | None = None


class DeschedulerPluginSet(_Strict, frozen=True):
    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()


class DeschedulerPlugins(_Strict, frozen=True):
    presort: DeschedulerPluginSet = DeschedulerPluginSet()
    sort: DeschedulerPluginSet = DeschedulerPluginSet()
    deschedule: DeschedulerPluginSet = DeschedulerPluginSet()
    balance: DeschedulerPluginSet = DeschedulerPluginSet()
    filter: DeschedulerPluginSet = DeschedulerPluginSet()
    preevictionfilter: DeschedulerPluginSet = DeschedulerPluginSet()
    pre_eviction_filter: DeschedulerPluginSet = DeschedulerPluginSet()


class DeschedulerProfile(_Strict, frozen=True):
    name: str = ""
    plugin_config: tuple[DeschedulerPluginConfig, ...] = ()
    plugins: DeschedulerPlugins = DeschedulerPlugins()

    def args(self, name: str) -> DeschedulerPluginArgs:
        """Return the arguments of a plugin; the last ones if they are given twice."""
        given = next((one.args for one in self.plugin_config if one.name == name), None)
        return args_of(name, given or {})


class DeschedulerPolicy(_Strict, frozen=True):
    """A policy. Fields that only say where metrics come from, or which events are sent, are read and have no effect."""

    api_version: Literal["descheduler/v1alpha2"]
    kind: Literal["DeschedulerPolicy"]
    profiles: tuple[DeschedulerProfile, ...] = ()
    node_selector: str | None = None
    max_no_of_pods_to_evict_per_node: int | None = None
    max_no_of_pods_to_evict_per_namespace: int | None = None
    max_no_of_pods_to_evict_total: int | None = None
    eviction_failure_event_notification: bool | None = None
    metrics_collector: Mapping[str, Any] | None = None
    metrics_providers: tuple[Mapping[str, Any], ...] = ()
    grace_period_seconds: int | None = None


def args_of(name: str, given: Mapping[str, Any]) -> DeschedulerPluginArgs:
    """Return a plugin's arguments.

    Raises  InputError that names the field
    """
    try:
        return msgspec.json.decode(json.dumps(given), type=ARGS[name], strict=True)
    except msgspec.ValidationError as error:
        raise InputError(str(error)) from None


def faults_of(args: DeschedulerPluginArgs) -> list[str]:
    """Return what is wrong with arguments, in the descheduler's words where it has some."""
    found = []
    spaces = getattr(args, "namespaces", None)
    if spaces is not None and spaces.include and spaces.exclude:
        found.append(_ONE_LIST % "namespaces")
    for field in ("label_selector", "namespace_label_selector"):
        selector = getattr(args, field, None)
        try:
            compile_label_selector(selector)
        except SelectorError as error:
            found.append(f"failed to get label selectors from strategy's params: {error}")
    return [*found, *(args.faults() if hasattr(args, "faults") else ())]


def read_descheduler_policy(text: bytes, where: str) -> DeschedulerPolicy:
    """Read a policy, a YAML document. All faults of its plugins are reported at once.

    Raises  InputError that names the field
    """
    try:
        policy = msgspec.convert(read_first_yaml(text, where), DeschedulerPolicy)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}; expected a DeschedulerPolicy of descheduler/v1alpha2") from None
    found = []
    try:
        parse_selector(policy.node_selector or "")
    except SelectorError as error:
        found.append(f"nodeSelector: {error}")
    for at, profile in enumerate(policy.profiles):
        found += [f"profiles[{at}]{one}" for one in _profile_faults(profile)]
    if found:
        raise InputError("\n".join(f"{where}: {one}" for one in found))
    return policy


def _profile_faults(profile: DeschedulerProfile) -> list[str]:
    found, configured = [], {one.name for one in profile.plugin_config}
    for at, one in enumerate(profile.plugin_config):
        if one.name not in ARGS:
            found.append(f".pluginConfig[{at}]: plugin {one.name} is not one of the default plugins: {', '.join(sorted(ARGS))}")
            continue
        try:
            found += [f".pluginConfig[{at}].args: {fault}" for fault in faults_of(args_of(one.name, one.args or {}))]
        except InputError as error:
            found.append(f".pluginConfig[{at}].args: {error}")
    for point, known in (("deschedule", DESCHEDULE), ("balance", BALANCE)):
        for name in getattr(profile.plugins, point).enabled:
            if name not in known:
                found.append(f".plugins.{point}: {name} is none of {', '.join(known)}")
            elif name not in configured:
                found.append(f'.plugins.{point}: unable to find "{name}" plugin config')
    evictors = (*profile.plugins.filter.enabled, *profile.plugins.preevictionfilter.enabled)
    evictors += profile.plugins.pre_eviction_filter.enabled
    found += [f".plugins: {name} is no evictor; only DefaultEvictor is" for name in evictors if name != "DefaultEvictor"]
    return found
