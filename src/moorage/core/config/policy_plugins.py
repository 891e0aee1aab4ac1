"""Map a Policy to plugins: the plugins of each extension point, with weights and arguments.

All predicates and priorities with the same kind of argument map to one plugin, which gets all their arguments. If two
priorities map to the same plugin, the weight of the one whose name sorts first counts.

Source  kube-scheduler 1.21, factory.go, createFromConfig; framework/plugins/legacy_registry.go
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from moorage.api.feature_gates import FeatureGates
from moorage.core.config.configuration import PluginConfig, PluginRef, Plugins, PluginSet
from moorage.core.config.policy import (
    DEFAULT_PREDICATES,
    DEFAULT_PRIORITIES,
    EQUAL_PRIORITY,
    MANDATORY_PREDICATES,
    PREDICATES,
    PRIORITIES,
    Policy,
    Predicate,
    Priority,
    current_name,
)
from moorage.errors import Fault
from moorage.framework.registry import Registry

#: The plugins of points that a Policy does not configure.
_ALWAYS = (("queueSort", "PrioritySort"), ("postFilter", "DefaultPreemption"), ("bind", "DefaultBinder"))
#: The path of a fault in a weight.
_WEIGHT = re.compile(r"profiles\[0\]\.plugins\.score\.enabled\[(\d+)\]\.weight")


def policy_plugins(policy: Policy, gates: FeatureGates) -> Plugins:
    """Return the plugins of each extension point, in the order they run."""
    sets: dict[str, dict[str, int | None]] = {point: {name: None} for point, name in _ALWAYS}
    keys = {*_predicate_keys(policy), *MANDATORY_PREDICATES}
    for key, places in PREDICATES.items():
        for point, name in places if key in keys else ():
            sets.setdefault(point, {}).setdefault(name)
    weights = _priority_weights(policy)
    for key in sorted(weights):
        name, pre_scores = _scorer(key, gates)
        if pre_scores:
            sets.setdefault("preScore", {}).setdefault(name)
        sets.setdefault("score", {}).setdefault(name, _int32(weights[key] * _times(key, policy)))
    return Plugins.of({point: _as_set(names) for point, names in sets.items()})


def _as_set(names: Mapping[str, int | None]) -> PluginSet:
    return PluginSet(enabled=tuple(PluginRef(name=name, weight=weight) for name, weight in names.items()))


def _int32(weight: int) -> int:
    """Wrap a weight to 32 bits, as upstream's conversion does."""
    return (weight + 2**31) % 2**32 - 2**31


def _scorer(priority: str, gates: FeatureGates) -> tuple[str, bool]:
    if priority == "SelectorSpreadPriority" and gates["DefaultPodTopologySpread"]:
        return "PodTopologySpread", True
    return PRIORITIES[priority]


# -- predicates and priorities by plugin --------------------------------------------------------------------------------


def _predicate_keys(policy: Policy) -> Iterable[str]:
    if policy.predicates is None:
        return DEFAULT_PREDICATES
    return [_predicate_key(predicate) for predicate in policy.predicates]


def _predicate_key(predicate: Predicate) -> str:
    name = current_name(predicate.name)
    if name in PREDICATES or predicate.argument is None:
        return name
    return "CheckServiceAffinity" if predicate.argument.service_affinity is not None else "CheckNodeLabelPresence"


def _priority_weights(policy: Policy) -> Mapping[str, int]:
    if policy.priorities is None:
        return DEFAULT_PRIORITIES
    return {_priority_key(one): one.weight for one in policy.priorities if one.name != EQUAL_PRIORITY}


def _priority_key(priority: Priority) -> str:
    name, argument = current_name(priority.name), priority.argument
    if name in PRIORITIES or argument is None:
        return name
    if argument.service_anti_affinity is not None:
        return "ServiceAffinity"
    return "NodeLabel" if argument.label_preference is not None else "RequestedToCapacityRatio"


def _times(priority: str, policy: Policy) -> int:
    """Return how many times a priority's weight counts: once for each of its labels, once if it takes none."""
    kind = {"NodeLabel": "label_preference", "ServiceAffinity": "service_anti_affinity"}.get(priority)
    return 1 if kind is None else len(list(_arguments(policy.priorities, kind)))


# -- arguments ----------------------------------------------------------------------------------------------------------


def policy_configs(policy: Policy, registry: Registry, gates: FeatureGates) -> tuple[PluginConfig, ...]:
    """Return the arguments of the plugins that the policy configures, without defaults."""
    configs = {
        "InterPodAffinity": _affinity_args(policy),
        "NodeLabel": _label_args(policy),
        "PodTopologySpread": _spread_args(policy, gates),
        "RequestedToCapacityRatio": _ratio_args(policy),
        "ServiceAffinity": _service_args(policy),
    }
    return tuple(
        PluginConfig(name=name, args=msgspec.convert(data, args_type))
        for name, data in configs.items()
        if data is not None and (args_type := registry.args_type(name)) is not None
    )


def _affinity_args(policy: Policy) -> dict[str, Any] | None:
    weight = policy.hard_pod_affinity_symmetric_weight
    if not weight or "InterPodAffinityPriority" not in _priority_weights(policy):
        return None
    return {"hardPodAffinityWeight": weight}


def _spread_args(policy: Policy, gates: FeatureGates) -> dict[str, Any] | None:
    if not gates["DefaultPodTopologySpread"]:
        return None
    weights = _priority_weights(policy)
    if "SelectorSpreadPriority" in weights:
        return {"defaultingType": "System"}
    return {"defaultingType": "List"} if "EvenPodsSpreadPriority" in weights else None


def _label_args(policy: Policy) -> dict[str, Any] | None:
    args = {name: [label for label, _ in labels] for name, labels in _placed_labels(policy).items()}
    return args if any(args.values()) else None


def _placed_labels(policy: Policy) -> dict[str, list[tuple[str, str]]]:
    """Return NodeLabel's arguments, each label with its path in the policy."""
    kinds = ("presentLabels", "absentLabels", "presentLabelsPreference", "absentLabelsPreference")
    placed: dict[str, list[tuple[str, str]]] = {kind: [] for kind in kinds}
    for i, one in _arguments(policy.predicates, "labels_presence"):
        path = f"predicates[{i}].argument.labelsPresence.labels"
        placed[kinds[not one.presence]] += [(label, f"{path}[{j}]") for j, label in enumerate(one.labels)]
    for i, one in _arguments(policy.priorities, "label_preference"):
        placed[kinds[2 + (not one.presence)]].append((one.label, f"priorities[{i}].argument.labelPreference.label"))
    return placed


def _service_args(policy: Policy) -> dict[str, Any] | None:
    shared = [one.labels for _, one in _arguments(policy.predicates, "service_affinity")]
    spread = [one.label for _, one in _arguments(policy.priorities, "service_anti_affinity")]
    if not spread and not shared:
        return None
    return {"affinityLabels": [label for labels in shared for label in labels], "antiAffinityLabelsPreference": spread}


def _ratio_args(policy: Policy) -> dict[str, Any] | None:
    for _, one in _arguments(policy.priorities, "requested_to_capacity_ratio_arguments"):
        return {"resources": [], **msgspec.to_builtins(one)}
    return None


def _arguments(given: Iterable[Predicate | Priority] | None, kind: str) -> Iterator[tuple[int, Any]]:
    """Yield an argument of each predicate or priority without a built-in name, with its index; those of others are ignored."""
    for i, one in enumerate(given or ()):
        argument = getattr(one.argument, kind, None)
        built_in = PREDICATES if isinstance(one, Predicate) else {*PRIORITIES, EQUAL_PRIORITY}
        if argument is not None and current_name(one.name) not in built_in:
            yield i, argument


# -- faults -------------------------------------------------------------------------------------------------------------


def policy_faults(policy: Policy, configs: Iterable[PluginConfig], gates: FeatureGates) -> list[Fault]:
    """Return the faults in the plugin arguments of a policy, with their paths in the policy."""
    faults: list[Fault] = []
    for config in configs:
        if config.name == "NodeLabel":
            faults += _label_faults(policy)
        elif hasattr(config.args, "faults"):
            faults += config.args.faults(_place(policy, config.name), gates)
    labels = {"NodeLabel": "labelPreference", "ServiceAffinity": "serviceAntiAffinity"}
    for i, priority in enumerate(policy.priorities or ()):
        if priority.name in labels and not _times(priority.name, policy):
            text = f"priority {priority.name} needs the argument {labels[priority.name]} and a custom name"
            faults.append(Fault("Required value", f"priorities[{i}].argument", text))
    return faults


def _label_faults(policy: Policy) -> Iterator[Fault]:
    """Yield a fault for each label that is listed as both present and absent."""
    args = _placed_labels(policy)
    for kind in ("Labels", "LabelsPreference"):
        wanted = dict(args[f"present{kind}"])
        for label, path in args[f"absent{kind}"]:
            if label in wanted:
                yield Fault("Invalid value", wanted[label], f"conflict with {path}", label)


def _place(policy: Policy, plugin: str) -> str:
    """Return the policy path of a plugin's arguments, or the plugin's name if they have no single path."""
    for i, priority in enumerate(policy.priorities or ()):
        given = priority.argument and priority.argument.requested_to_capacity_ratio_arguments
        if given is not None and plugin == "RequestedToCapacityRatio":
            return f"priorities[{i}].argument.requestedToCapacityRatioArguments"
    return plugin


def in_policy(fault: Fault, policy: Policy, plugins: Plugins, gates: FeatureGates) -> Fault:
    """Return a fault about a resolved weight with the path and value of the weight in the policy; other faults unchanged."""
    found = _WEIGHT.fullmatch(fault.field)
    if found is None:
        return fault
    plugin = plugins.score.enabled[int(found[1])].name
    for i, priority in enumerate(policy.priorities or ()):
        if priority.name != EQUAL_PRIORITY and _scorer(_priority_key(priority), gates)[0] == plugin:
            text = f"{fault.detail}; this weight is not after it is cut to 32 bits"
            return Fault(fault.kind, f"priorities[{i}].weight", text, priority.weight)
    return fault
