"""``DeschedulerPolicy`` v1alpha2, read and validated as the descheduler does, and which evictions it allows.

The fields of arguments are in ``policy.toml``, and what can be wrong with them, in the descheduler's words.

Source  descheduler 0.36, pkg/api/v1alpha2, pkg/descheduler/policyconfig.go, pkg/framework/plugins/*/{types,validation}.go
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from moorage.api.cel.program import Program, compile_expression
from moorage.api.cel.types import DYN
from moorage.api.cel.values import as_cel
from moorage.api.core import Node, Pod
from moorage.api.durations import DurationError, duration_seconds
from moorage.api.meta import LabelSelector
from moorage.api.reading.manifests import read_first_yaml
from moorage.api.selectors import SelectorError, compile_label_selector, parse_selector
from moorage.basis import table_of
from moorage.basis.inputs.components import files_of
from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.objects import FoundObject, find_objects
from moorage.errors import InputError
from moorage.simulator.descheduler.scene import NO_EVICTION, Scene
from moorage.simulator.owners import is_mirror, is_owned_by

_KIND: Final = "DeschedulerPolicy"
SYSTEM_CRITICAL: Final = 2_000_000_000
#: Arguments of a plugin: a struct with the fields of ``policy.toml``.
PluginArgs: TypeAlias = Any

# -- arguments ---------------------------------------------------------------------------------------------------------

_TABLE: Final = table_of("moorage.simulator.descheduler", "policy.toml")
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_Count = Annotated[int, msgspec.Meta(ge=0)]
#: The types of fields, with the defaults.
_TYPES: Final[dict[str, tuple[Any, Any]]] = {
    "text": (str, ""), "integer": (int, 0), "count": (_Count, 0), "flag": (bool, False), "shares": (Mapping[str, float], {}),
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
_Plugins: Final = _PARTS["Plugins"]
#: The default plugins by extension point, and the arguments of each. ``apiVersion`` and ``kind`` may be given, as for every
#: API object.
EVICTOR, DESCHEDULE, BALANCE = (
    {name: _struct(name, {"apiVersion": "text", "kind": "text", **fields}) for name, fields in _TABLE[point].items()}
    for point in ("evictor", "deschedule", "balance")
)
ARGS: Final[Mapping[str, type[Struct]]] = {**DESCHEDULE, **BALANCE, **EVICTOR}

_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = _TABLE["defaults"]


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


class _Strict(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class DeschedulerPluginConfig(_Strict, frozen=True):
    name: str
    args: Mapping[str, Any] | None = None


class DeschedulerProfile(_Strict, frozen=True):
    name: str = ""
    plugin_config: tuple[DeschedulerPluginConfig, ...] = ()
    plugins: _Plugins = _Plugins()  # type: ignore[valid-type]

    def enabled(self, point: str) -> tuple[str, ...]:
        """Return the plugins that are enabled at an extension point."""
        return tuple(getattr(self.plugins, point).enabled)

    def args(self, name: str) -> PluginArgs:
        """Return the arguments of a plugin, with its defaults; the first ones if they are given twice."""
        given = next((one.args for one in self.plugin_config if one.name == name), None) or {}
        missing = {field: value for field, value in _DEFAULTS.get(name, {}).items() if given.get(field) is None}
        return args_of(name, {**given, **missing})


class DeschedulerPolicy(_Strict, frozen=True):
    """A policy. Fields that only say where metrics come from, or which events are sent, are read and have no effect."""

    api_version: Literal["descheduler/v1alpha2"]
    kind: Literal["DeschedulerPolicy"]
    profiles: tuple[DeschedulerProfile, ...] = ()
    node_selector: str | None = None
    max_no_of_pods_to_evict_per_node: _Count | None = None
    max_no_of_pods_to_evict_per_namespace: _Count | None = None
    max_no_of_pods_to_evict_total: _Count | None = None
    eviction_failure_event_notification: bool | None = None
    metrics_collector: Mapping[str, Any] | None = None
    metrics_providers: tuple[Mapping[str, Any], ...] = ()
    grace_period_seconds: int | None = None


def read_descheduler_policy(text: bytes, where: str) -> DeschedulerPolicy:
    """Read a policy: a YAML document, or a file with a config map that holds it.

    All faults of its plugins are reported at once.
    Raises  InputError that names the field
    """
    if b"ConfigMap" in text:
        held = [one for found in find_objects(InputFile(where, text)) for one in files_of(found) if one.kind == _KIND]
        if len(held) > 1:
            raise InputError(f"{where}: config maps hold {len(held)} of {_KIND}; expected one")
        if held:
            return policy_of(held[0].payload, held[0].where)
    return policy_of(read_first_yaml(text, where), where)


def policy_of(tree: Any, where: str) -> DeschedulerPolicy:
    """Return the policy that plain data describes.

    Raises  InputError that names the field
    """
    try:
        policy = msgspec.convert(tree, DeschedulerPolicy)
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
        for name in profile.enabled(point):
            if name not in known:
                found.append(f".plugins.{point}: {name} is none of {', '.join(known)}")
            elif name not in configured:
                found.append(f'.plugins.{point}: unable to find "{name}" plugin config')
    points = "filter", "preevictionfilter", "pre_eviction_filter"
    evictors = (name for point in points for name in profile.enabled(point))
    found += [f".plugins: {name} is no evictor; only DefaultEvictor is" for name in evictors if name != "DefaultEvictor"]
    return found


def policy_in(documents: Iterable[Mapping[str, Any]]) -> DeschedulerPolicy:
    """Return the policy in the config maps of a cluster. ``documents``: its config maps, as they are.

    Raises  InputError unless there is exactly one, or that names the field
    """
    found = [
        one
        for document in documents
        if document.get("kind") == "ConfigMap"
        for one in files_of(FoundObject("v1", "ConfigMap", dict(document), _place(document)))
        if one.kind == _KIND
    ]
    if not found:
        raise InputError(f"no config map of the input holds a {_KIND}: give it with --policy FILE")
    if len(found) > 1:
        places = ", ".join(sorted(one.where for one in found))
        raise InputError(f"config maps of the input hold {len(found)} of {_KIND}: {places}; give one with --policy FILE")
    return policy_of(found[0].payload, found[0].where)


def _place(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata") or {}
    return f"namespace {metadata.get('namespace') or 'default'}"


# -- evictor -----------------------------------------------------------------------------------------------------------
# DefaultEvictor and the limits of a policy: which pods may be evicted, why others may not, and how many in one cycle.
#
# Source  descheduler 0.36, pkg/framework/plugins/defaultevictor/defaultevictor.go, constraints.go, pkg/descheduler/evictions

_EVICT: Final = "descheduler.alpha.kubernetes.io/evict"
_SOURCE: Final = "kubernetes.io/config.source"
#: When a pod terminates that this cycle has evicted; no rule reads it.
_GOING: Final = "1970-01-01T00:00:00Z"
#: ``limited``: the node's or the cycle's limit is reached; a namespace's limit is a failure of this pod alone.
EvictionOutcome: TypeAlias = Literal["evicted", "failed", "limited"]
#: What is said at the limits of a cycle, a node and a namespace.
_FULL: Final = [f"maximum number of evicted pods per {what} reached" for what in ("a descheduling cycle", "node", "namespace")]


class AskedEviction(Struct, frozen=True):
    """An eviction that a plugin wanted. ``why``: the error's text, if a limit of the policy or the API server refused it."""

    pod: Pod
    profile: str
    plugin: str
    why: str = ""


class ClassifiedNode(NamedTuple):
    """A node as a plugin sees it: what its pods use in percent, and as what that counts."""

    plugin: str
    node: str
    category: str
    shares: Mapping[str, float]


class Evictor:
    """The evictions of one cycle. ``ask`` asks the API server: it returns "" if it allows the eviction, or its error.

    ``total``, ``per_node``, ``per_namespace``  the limits of the policy; None: no limit
    """

    def __init__(
        self, ask: Callable[[Pod], str], total: int | None = None, per_node: int | None = None, per_namespace: int | None = None
    ) -> None:
        self._ask, self._limits = ask, (total, per_node, per_namespace)
        self._counts = Counter[str]()
        self.evicted: list[AskedEviction] = []
        self.refused: list[AskedEviction] = []
        #: The UIDs of the pods that are evicted.
        self.going: set[str] = set()
        #: The classes that plugins put nodes into, and why a plugin then does nothing.
        self.classes: list[ClassifiedNode] = []
        self.idle: list[str] = []

    def evict(self, pod: Pod, profile: str, plugin: str) -> EvictionOutcome:
        keys = "cycle", f"node {pod.spec.node_name}", f"namespace {pod.namespace}"
        limits = zip(self._limits, keys, _FULL, strict=True)
        full = next((text for most, key, text in limits if most is not None and self._counts[key] >= most), "")
        asked = AskedEviction(pod, profile, plugin, full or self._ask(pod))
        if asked.why:
            self.refused.append(asked)
            return "limited" if full in _FULL[:2] else "failed"
        self._counts.update(keys)
        self.evicted.append(asked)
        self.going.add(pod.metadata.uid)
        return "evicted"


class DefaultEvictor:
    """The plugin DefaultEvictor of one profile, for one scene."""

    def __init__(self, args: PluginArgs, scene: Scene) -> None:
        self._args, self._scene = args, scene
        self._protects = protections(args)
        self._labels = compile_label_selector(args.label_selector) if args.label_selector is not None else None
        spaces = args.namespace_label_selector
        self._spaces = compile_label_selector(spaces) if spaces is not None else None
        self._threshold = _threshold(args, scene.priority_classes)
        pvc = args.pod_protections.config.pods_with_pvc if args.pod_protections.config is not None else None
        self._classes = frozenset(one.name for one in pvc.protected_storage_classes) if pvc is not None else frozenset()

    def filter(self, pod: Pod) -> bool:
        return not self.why_not(pod)

    def pre_eviction_filter(self, pod: Pod) -> bool:
        """Return False for a pod that fits on no other node (nodeFit), or whose namespace is not selected."""
        if self._args.node_fit and not self._scene.fits_elsewhere(pod, self._nodes):
            return False
        if self._spaces is None or self._spaces.is_empty:
            return True
        labels = self._scene.namespaces.get(pod.namespace)
        return labels is not None and self._spaces.matches(labels)

    def is_evictable(self, pod: Pod) -> bool:
        return self.filter(pod) and self.pre_eviction_filter(pod)

    @cached_property
    def _nodes(self) -> list[Node]:
        return self._scene.ready_nodes(self._args.node_selector)

    def why_not(self, pod: Pod) -> str:
        """Return the first reason why a pod is protected, in the descheduler's words; "" if it may be evicted."""
        if _EVICT in pod.metadata.annotations:
            return ""
        return next(chain(self._state(pod), self._protections(pod), self._arguments(pod)), "")

    def _state(self, pod: Pod) -> Iterator[str]:
        annotations = pod.metadata.annotations
        if self._args.no_eviction_policy == "Mandatory" and NO_EVICTION in annotations:
            yield f"pod has the annotation {NO_EVICTION}"
        if is_mirror(pod):
            yield "pod is a mirror pod"
        if annotations.get(_SOURCE, "api") != "api":
            yield "pod is a static pod"
        if pod.metadata.deletion_timestamp is not None:
            yield "pod is terminating"

    def _protections(self, pod: Pod) -> Iterator[str]:
        owners, volumes = pod.metadata.owner_references, pod.spec.volumes
        if "SystemCriticalPods" in self._protects and pod.priority >= SYSTEM_CRITICAL:
            yield "pod has system critical priority and is protected against eviction"
        if "SystemCriticalPods" in self._protects and pod.spec.priority is not None and pod.spec.priority >= self._threshold:
            yield "pod has higher priority than specified priority class threshold"
        if not owners and "FailedBarePods" in self._protects:
            yield "pod does not have any ownerRefs"
        elif not owners and pod.status.phase != "Failed":
            yield "pod does not have any ownerRefs and is not in failed phase"
        if "PodsWithLocalStorage" in self._protects and any(
            one.empty_dir is not None or one.host_path is not None for one in volumes
        ):
            yield "pod has local storage and is protected against eviction"
        if "DaemonSetPods" in self._protects and is_owned_by(pod, "DaemonSet"):
            yield "daemonset pods are protected against eviction"
        if "PodsWithPVC" in self._protects:
            yield from self._claims(pod)
        if "PodsWithoutPDB" in self._protects and not self._scene.is_covered(pod):
            yield "pod does not have a PodDisruptionBudget and is protected against eviction"
        if "PodsWithResourceClaims" in self._protects and pod.spec.resource_claims:
            yield "pod has ResourceClaims and descheduler is configured to protect ResourceClaims pods"

    def _arguments(self, pod: Pod) -> Iterator[str]:
        owners = pod.metadata.owner_references
        if self._labels is not None and not self._labels.matches(pod.metadata.labels):
            yield "pod labels do not match the labelSelector filter in the policy parameter"
        least, there = self._args.min_replicas, self._scene.replicas.get(owners[0].uid, 0) if owners else 0
        if least > 1 and len(owners) == 1 and there < least:
            yield f"owner has {there} replicas which is less than minReplicas of {least}"
        if self._args.min_pod_age is not None:
            age = self._scene.age_s(pod, pod.status.start_time)
            if age is None or age < duration_seconds(self._args.min_pod_age):
                yield f"pod age is not older than MinPodAge: {self._args.min_pod_age} seconds"

    def _claims(self, pod: Pod) -> Iterator[str]:
        for volume in pod.spec.volumes:
            claim = volume.persistent_volume_claim
            if claim is None:
                continue
            if not self._classes:
                yield "pod with PVC is protected against eviction"
                return
            name = self._scene.storage_class(pod.namespace, claim.claim_name)
            if not name:
                yield f'failed to resolve storage class for pod "{pod.namespace}/{claim.claim_name}"'
            elif name in self._classes:
                yield f'pod using protected storage class "{name}"'


def _threshold(args: PluginArgs, classes: Mapping[str, int]) -> int:
    given = args.priority_threshold
    if given is None or (given.value is None and not given.name):
        return SYSTEM_CRITICAL
    if given.value is None and given.name not in classes:
        raise InputError(f'DefaultEvictor: priorityThreshold.name: the input has no PriorityClass "{given.name}"')
    found = int(classes[given.name] if given.value is None else given.value)
    if found > SYSTEM_CRITICAL:
        raise InputError(f"DefaultEvictor: priority threshold can't be greater than {SYSTEM_CRITICAL}")
    return found


@dataclass
class PluginRun:
    """One plugin's view of a cycle."""

    scene: Scene
    judge: DefaultEvictor
    evictor: Evictor
    plugin: str
    profile: str = ""

    def evict(self, pod: Pod) -> EvictionOutcome:
        return self.evictor.evict(pod, self.profile, self.plugin)

    def is_evictable(self, pod: Pod) -> bool:
        """Return whether a pod that is listed now may be evicted: one that the cycle has evicted is terminating."""
        if pod.metadata.uid in self.evictor.going:
            pod = pod.replace(metadata=pod.metadata.replace(deletion_timestamp=_GOING))
        return self.judge.is_evictable(pod)
