"""``DeschedulerPolicy`` v1alpha2 with the arguments of the default plugins, read and validated as the descheduler does.

The fields of arguments are in ``policy.toml``; what can be wrong with them is in ``_FAULTS``, in the descheduler's words.

Source  descheduler 0.36, pkg/api/v1alpha2, pkg/descheduler/policyconfig.go, pkg/framework/plugins/*/{types,validation}.go
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from moorage.api.durations import DurationError, duration_seconds
from moorage.api.meta import LabelSelector
from moorage.api.reading.manifests import read_first_yaml
from moorage.api.selectors import SelectorError, compile_label_selector, parse_selector
from moorage.basis import table_of
from moorage.errors import InputError

SYSTEM_CRITICAL: Final = 2_000_000_000
#: Arguments of a plugin: a struct with the fields of ``policy.toml``.
PluginArgs: TypeAlias = Any

# -- arguments ---------------------------------------------------------------------------------------------------------

_TABLE: Final = table_of("moorage.simulator.descheduler", "policy.toml")
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
#: The types of fields, with the defaults.
_TYPES: Final[dict[str, tuple[Any, Any]]] = {
    "text": (str, ""), "integer": (int, 0), "flag": (bool, False), "shares": (Mapping[str, float], {}),
    "labels": (LabelSelector, None),
}  # fmt: skip


def _field(json_name: str, kind: str) -> tuple[str, Any, Any]:
    given, default = _TYPES[kind.strip("[]?")]
    if kind.startswith("["):
        given, default = tuple[given, ...], ()  # type: ignore[valid-type]
    given, default = (given | None, None) if kind.endswith("?") else (given, default)
    return _WORD.sub("_", json_name).lower(), given, msgspec.field(default=default, name=json_name)


def _struct(name: str, fields: Mapping[str, str]) -> type[Struct]:
    made = msgspec.defstruct(
        name, [_field(*one) for one in fields.items()], frozen=True, kw_only=True, forbid_unknown_fields=True
    )
    _TYPES[name] = made, made()
    return made


_PARTS: Final = {name: _struct(name, fields) for name, fields in _TABLE["parts"].items()}
#: The default plugins by extension point, and the arguments of each. ``apiVersion`` and ``kind`` may be given, as for every
#: API object.
EVICTOR, DESCHEDULE, BALANCE = (
    {name: _struct(name, {"apiVersion": "text", "kind": "text", **fields}) for name, fields in _TABLE[point].items()}
    for point in ("evictor", "deschedule", "balance")
)
ARGS: Final[Mapping[str, type[Struct]]] = {**DESCHEDULE, **BALANCE, **EVICTOR}


def args_of(name: str, given: Mapping[str, Any]) -> PluginArgs:
    """Return a plugin's arguments.

    Raises  InputError that names the field
    """
    try:
        return msgspec.json.decode(json.dumps(given), type=ARGS[name], strict=True)
    except msgspec.ValidationError as error:
        raise InputError(str(error)) from None


_PROTECTIONS: Final = ("PodsWithLocalStorage", "SystemCriticalPods", "FailedBarePods", "DaemonSetPods")
_EXTRA_PROTECTIONS: Final = ("PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims")
#: Deprecated fields of DefaultEvictor, with the protection that each turns off, or on.
_OFF: Final = dict(zip(
    ("evict_local_storage_pods", "evict_system_critical_pods", "evict_failed_bare_pods", "evict_daemon_set_pods"), _PROTECTIONS,
    strict=True,
))  # fmt: skip
_ON: Final = {"ignore_pvc_pods": "PodsWithPVC", "ignore_pods_without_pdb": "PodsWithoutPDB"}


def protections(args: PluginArgs) -> frozenset[str]:
    """Return the protections of DefaultEvictor that are in force. ``podProtections`` replaces the deprecated fields."""
    given = args.pod_protections
    if given.default_disabled or given.extra_enabled:
        return frozenset(_PROTECTIONS) - set(given.default_disabled) | set(given.extra_enabled)
    kept = {name for field, name in _OFF.items() if not getattr(args, field)}
    return frozenset(kept | {name for field, name in _ON.items() if getattr(args, field)})


# -- faults ------------------------------------------------------------------------------------------------------------

#: What is wrong with arguments: True or False, or each of several things, which the text then names.
_Fault: TypeAlias = tuple[str, Callable[[PluginArgs], Any]]
_STATES: Final = tuple(sorted((
    "Running", "Pending", "Succeeded", "Failed", "Unknown", "NodeAffinity", "NodeLost", "Shutdown",
    "UnexpectedAdmissionError", "PodInitializing", "ContainerCreating", "ImagePullBackOff", "CrashLoopBackOff",
    "CreateContainerConfigError", "ErrImagePull", "CreateContainerError", "InvalidImageName", "OOMKilled", "Error",
    "Completed", "DeadlineExceeded", "Evicted", "ContainerCannotRun", "StartError",
)))  # fmt: skip
_RESTARTING: Final = ("CrashLoopBackOff", "Running")
_SPREADS: Final = ("DoNotSchedule", "ScheduleAnyway")
_METRICS: Final = "KubernetesMetrics"
_UNMET: Final = _PARTS["PodConditionFilter"]()


def _both(lists: Any) -> bool:
    return lists is not None and bool(lists.include and lists.exclude)


def _unreadable(args: PluginArgs, *fields: str) -> list[str]:
    """Return the errors of label selectors."""
    found = []
    for field in fields:
        try:
            compile_label_selector(getattr(args, field, None))
        except SelectorError as error:
            found.append(str(error))
    return found


def _unreadable_texts(args: PluginArgs) -> list[str]:
    try:
        duration_seconds(args.min_pod_age or "0s")
        parse_selector(args.node_selector)
    except (DurationError, SelectorError) as error:
        return [str(error)]
    return []


def _unnamed_classes(args: PluginArgs) -> list[int]:
    given = args.pod_protections
    if given.config is None or given.config.pods_with_pvc is None or "PodsWithPVC" not in given.extra_enabled:
        return []
    return [at for at, one in enumerate(given.config.pods_with_pvc.protected_storage_classes) if not one.name]


def _thresholds(field: str, prefix: str = "") -> tuple[_Fault, _Fault]:
    return (
        (f"{prefix}no resource threshold is configured", lambda args: not getattr(args, field)),
        (f"{prefix}{{}} threshold not in [0, 100] range",
         lambda args: [name for name, value in getattr(args, field).items() if not 0 <= value <= 100]),
    )  # fmt: skip


def _repeated(names: Iterable[str]) -> bool:
    held = list(names)
    return len({*held}) < len(held)


_EVERY: Final[tuple[_Fault, ...]] = (
    ("only one of Include/Exclude namespaces can be set", lambda args: _both(getattr(args, "namespaces", None))),
    ("failed to get label selectors from strategy's params: {}",
     lambda args: _unreadable(args, "label_selector", "namespace_label_selector")),
)  # fmt: skip
_EXCLUSION: Final[_Fault] = (
    "only Exclude namespaces can be set, inclusion is not supported",
    lambda args: args.evictable_namespaces is not None and args.evictable_namespaces.include,
)
_PROTECTION: Final = 'invalid pod protection policy in {0}: "{{}}". Valid options are: [{1}]'.format
_FAULTS: Final[Mapping[str, tuple[_Fault, ...]]] = {
    "DefaultEvictor": (
        ("priority threshold misconfigured, only one of priorityThreshold fields can be set",
         lambda args: (held := args.priority_threshold) is not None and held.value is not None and held.name),
        ('noEvictionPolicy accepts only ["Preferred" "Mandatory"] values',
         lambda args: args.no_eviction_policy not in ("", "Preferred", "Mandatory")),
        ("cannot use Deprecated fields alongside PodProtections.ExtraEnabled or PodProtections.DefaultDisabled",
         lambda args: any(getattr(args, field) for field in (*_OFF, *_ON))
         and (args.pod_protections.extra_enabled or args.pod_protections.default_disabled)),
        (_PROTECTION("ExtraEnabled", " ".join(_EXTRA_PROTECTIONS)),
         lambda args: [one for one in args.pod_protections.extra_enabled if one not in _EXTRA_PROTECTIONS]),
        (_PROTECTION("DefaultDisabled", " ".join(_PROTECTIONS)),
         lambda args: [one for one in args.pod_protections.default_disabled if one not in _PROTECTIONS]),
        ("PodProtections.DefaultDisabled contains duplicate entries",
         lambda args: _repeated(args.pod_protections.default_disabled)),
        ("PodProtections.ExtraEnabled contains duplicate entries", lambda args: _repeated(args.pod_protections.extra_enabled)),
        ("PodProtections.Config.PodsWithPVC.ProtectedStorageClasses[{}] name cannot be empty", _unnamed_classes),
        ("minPodAge or nodeSelector: {}", _unreadable_texts),
    ),
    "RemovePodsViolatingNodeAffinity": (("nodeAffinityType needs to be set", lambda args: not args.node_affinity_type),),
    "RemovePodsViolatingNodeTaints": (
        ("either includedTaints or excludedTaints can be set, but not both",
         lambda args: args.excluded_taints and args.included_taints),
    ),
    "RemovePodsViolatingTopologySpreadConstraint": (
        (f"constraint {{}} is not one of {' '.join(_SPREADS)}",
         lambda args: [one for one in args.constraints if one not in _SPREADS]),
    ),
    "RemovePodsHavingTooManyRestarts": (
        ("invalid PodsHavingTooManyRestarts threshold", lambda args: args.pod_restart_threshold < 1),
        (f"states must be one of {' '.join(_RESTARTING)}", lambda args: not {*args.states} <= {*_RESTARTING}),
    ),
    "PodLifeTime": (
        ("only one of Include/Exclude ownerKinds can be set", lambda args: _both(args.owner_kinds)),
        (f"states must be one of {' '.join(_STATES)}", lambda args: not {*args.states} <= {*_STATES}),
        ("conditions[{}]: at least one of type, status, reason, or minTimeSinceLastTransitionSeconds must be set",
         lambda args: [at for at, one in enumerate(args.conditions) if one == _UNMET]),
        ("at least one filtering criterion must be specified (maxPodLifeTimeSeconds, states, conditions, or exitCodes)",
         lambda args: args.max_pod_life_time_seconds is None and not (args.states or args.conditions or args.exit_codes)),
    ),
    "HighNodeUtilization": (
        _EXCLUSION, *_thresholds("thresholds"),
        ("invalid eviction mode {}", lambda args: [one for one in args.eviction_modes if one != "OnlyThresholdingResources"]),
    ),
    "LowNodeUtilization": (
        _EXCLUSION, *_thresholds("thresholds", "thresholds config is not valid: "),
        *_thresholds("target_thresholds", "targetThresholds config is not valid: "),
        ("thresholds and targetThresholds configured different resources",
         lambda args: args.thresholds.keys() != args.target_thresholds.keys()),
        ("thresholds' {} percentage is greater than targetThresholds'",
         lambda args: [name for name, low in args.thresholds.items()
                       if low > args.target_thresholds.get(name, low) and not args.use_deviation_thresholds]),
        (f'it is not allowed to set both "{_METRICS}" source and metricsServer',
         lambda args: (held := args.metrics_utilization) and held.source == _METRICS and held.metrics_server),
        (f'prometheus configuration is not allowed to set when source is set to "{_METRICS}"',
         lambda args: (held := args.metrics_utilization) and held.source == _METRICS and held.prometheus is not None),
        ('prometheus query is required when metrics source is set to "Prometheus"',
         lambda args: (held := args.metrics_utilization) and held.source == "Prometheus"
         and not (held.prometheus and held.prometheus.query)),
        (f"metricsUtilization: source is neither {_METRICS} nor Prometheus",
         lambda args: (held := args.metrics_utilization) and not held.metrics_server
         and held.source not in (_METRICS, "Prometheus")),
    ),
}  # fmt: skip
#: Plugins that report their first fault alone.
_FIRST_ALONE: Final = frozenset({"HighNodeUtilization", "LowNodeUtilization"})


def faults_of(args: PluginArgs) -> list[str]:
    """Return what is wrong with arguments, in the descheduler's words where it has some."""
    name = type(args).__name__
    own = list(_found(_FAULTS.get(name, ()), args))
    return [*_found(_EVERY, args), *(own[:1] if name in _FIRST_ALONE else own)]


def _found(rules: Iterable[_Fault], args: PluginArgs) -> Iterable[str]:
    for text, wrong in rules:
        found = wrong(args)
        yield from map(text.format, found) if isinstance(found, list) else [text] if found else []


# -- policies ----------------------------------------------------------------------------------------------------------


class _Strict(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


if TYPE_CHECKING:
    Plugins: TypeAlias = Any
else:
    Plugins = _PARTS["Plugins"]


class DeschedulerPluginConfig(_Strict, frozen=True):
    name: str
    args: Mapping[str, Any] | None = None


class DeschedulerProfile(_Strict, frozen=True):
    name: str = ""
    plugin_config: tuple[DeschedulerPluginConfig, ...] = ()
    plugins: Plugins = Plugins()

    def args(self, name: str) -> PluginArgs:
        """Return the arguments of a plugin; the first ones if they are given twice."""
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
