"""``DeschedulerPolicy`` v1alpha2 with the arguments of the default plugins, read and validated as the descheduler does.

The fields of arguments are in ``policy.toml``, and what can be wrong with them, in the descheduler's words.

Source  descheduler 0.36, pkg/api/v1alpha2, pkg/descheduler/policyconfig.go, pkg/framework/plugins/*/{types,validation}.go
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from moorage.api.cel.program import Program, compile_expression
from moorage.api.cel.types import DYN
from moorage.api.cel.values import as_cel
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


_NAMES: Final[Mapping[str, list[str]]] = _TABLE["names"]
#: Deprecated fields of DefaultEvictor, with the protection that each turns off, or on.
_OFF: Final = {
    "evict_local_storage_pods": "PodsWithLocalStorage", "evict_system_critical_pods": "SystemCriticalPods",
    "evict_failed_bare_pods": "FailedBarePods", "evict_daemon_set_pods": "DaemonSetPods",
}  # fmt: skip
_ON: Final = {"ignore_pvc_pods": "PodsWithPVC", "ignore_pods_without_pdb": "PodsWithoutPDB"}


def protections(args: PluginArgs) -> frozenset[str]:
    """Return the protections of DefaultEvictor that are in force. ``podProtections`` replaces the deprecated fields."""
    given = args.pod_protections
    if given.default_disabled or given.extra_enabled:
        return frozenset(_NAMES["protections"]) - set(given.default_disabled) | set(given.extra_enabled)
    kept = {name for field, name in _OFF.items() if not getattr(args, field)}
    return frozenset(kept | {name for field, name in _ON.items() if getattr(args, field)})


# -- faults ------------------------------------------------------------------------------------------------------------

#: Plugins that report their first fault alone.
_FIRST_ALONE: Final = frozenset({"HighNodeUtilization", "LowNodeUtilization"})
_NUMBERS: Final = list(range(1000))


@cache
def _rules(plugin: str) -> list[tuple[str, Program]]:
    variables = dict.fromkeys(("args", "numbers", *_NAMES), DYN)
    return [(text, compile_expression(told, variables)) for text, told in _TABLE["faults"].get(plugin, {}).items()]


def faults_of(args: PluginArgs) -> list[str]:
    """Return what is wrong with arguments, in the descheduler's words where it has some."""
    name = type(args).__name__
    own = list(_broken(name, args))
    return [*_broken("any", args), *_unreadable(args), *(own[:1] if name in _FIRST_ALONE else own)]


def _broken(rules: str, args: PluginArgs) -> Iterator[str]:
    known = {"args": as_cel(msgspec.to_builtins(args)), "numbers": _NUMBERS, **_NAMES}
    lists = {name: " ".join(held) for name, held in _NAMES.items()}
    for text, rule in _rules(rules):
        found = rule.evaluate(known)
        for one in found if isinstance(found, list) else [""] if found else []:
            yield text.format(one, **lists)


def _unreadable(args: PluginArgs) -> Iterator[str]:
    for field in ("label_selector", "namespace_label_selector"):
        try:
            compile_label_selector(getattr(args, field, None))
        except SelectorError as error:
            yield f"failed to get label selectors from strategy's params: {error}"
    try:
        duration_seconds(getattr(args, "min_pod_age", None) or "0s")
        parse_selector(getattr(args, "node_selector", ""))
    except (DurationError, SelectorError) as error:
        yield f"minPodAge or nodeSelector: {error}"


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
