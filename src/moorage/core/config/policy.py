"""Policy: the old scheduler configuration, with predicates, priorities and extenders.

This module decodes and validates the document and reports every fault with its path; ``policy_plugins`` maps it to plugins.
Extenders are decoded leniently, as upstream does: case-insensitive fields, unknown ones ignored, timeouts in nanoseconds.

Source  kube-scheduler 1.21, kube-scheduler/config/v1/types.go; apis/config/validation/validation.go, ValidatePolicy;
        framework/plugins/legacy_registry.go, validatePredicate and validatePriority
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from moorage.api.meta import Value
from moorage.api.quantity import INT64_MAX
from moorage.basis import table_of
from moorage.core.config.configuration import Extender
from moorage.core.config.decoder import decode, fields_of
from moorage.core.config.document_reader import SchedulerText
from moorage.core.config.validation import extender_faults
from moorage.errors import Fault
from moorage.framework.args import Int32

# The names that a Policy may use, and the plugins they map to.
#
# Predicates always run in the order given here, not in the document's order; priorities are sorted by name. Two predicates are
# mandatory.
#
# Source  kube-scheduler 1.21, framework/plugins/legacy_registry.go

#: Gives every node the same score, so it is left out.
EQUAL_PRIORITY: Final = "EqualPriority"

_TABLE: Final = table_of("moorage.core.config", "release_plugins.toml")["policy"]
#: Predicate → (extension point, plugin) pairs. Both orders count.
PREDICATES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    name: tuple([(point, plugin) for point, plugin in map(str.split, added.split(", "))])
    for name, added in _TABLE["predicates"].items()
}
MANDATORY_PREDICATES: Final = tuple(_TABLE["default"]["mandatory"].split())
#: The predicates of a Policy that does not set them.
DEFAULT_PREDICATES: Final = tuple(_TABLE["default"]["predicates"].split())
#: Priority → the plugin that scores, and whether it also runs in PreScore.
PRIORITIES: Final[Mapping[str, tuple[str, bool]]] = {
    name: (scores.split()[0], scores.endswith("preScore")) for name, scores in _TABLE["priorities"].items()
}
#: The priorities of a Policy that does not set them, with their weights.
DEFAULT_PRIORITIES: Final[Mapping[str, int]] = _TABLE["default"]["priorities"]


def current_name(name: str) -> str:
    """Return the current name of a predicate or a priority."""
    renamed: str = _TABLE["renamed"].get(name, name)
    return renamed


#: Weights are multiplied by scores of up to 10, and must not overflow.
_MAX_WEIGHT: Final = INT64_MAX // 10


class PolicyServiceAffinity(Value):
    labels: tuple[str, ...] = ()


class LabelsPresence(Value):
    labels: tuple[str, ...] = ()
    presence: bool = False


class PredicateArgument(Value):
    service_affinity: PolicyServiceAffinity | None = None
    labels_presence: LabelsPresence | None = None


class Predicate(Value):
    name: str = ""
    argument: PredicateArgument | None = None


class ServiceAntiAffinity(Value):
    label: str = ""


class LabelPreference(Value):
    label: str = ""
    presence: bool = False


class UtilizationShapePoint(Value):
    utilization: Int32 = 0
    score: Int32 = 0


class PolicyResourceSpec(Value):
    name: str = ""
    weight: int = 0


class RequestedToCapacityRatioArguments(Value):
    shape: tuple[UtilizationShapePoint, ...] = ()
    resources: tuple[PolicyResourceSpec, ...] = ()


class PriorityArgument(Value):
    service_anti_affinity: ServiceAntiAffinity | None = None
    label_preference: LabelPreference | None = None
    requested_to_capacity_ratio_arguments: RequestedToCapacityRatioArguments | None = None


class Priority(Value):
    name: str = ""
    weight: int = 0
    argument: PriorityArgument | None = None


class Policy(Value):
    """A Policy. None for predicates or priorities means the defaults; an empty list means none."""

    predicates: tuple[Predicate, ...] | None = None
    priorities: tuple[Priority, ...] | None = None
    extenders: tuple[Extender, ...] = ()
    hard_pod_affinity_symmetric_weight: Int32 = 0
    always_check_all_predicates: bool = False


def read_policy(text: SchedulerText) -> tuple[Policy | None, list[Fault]]:
    """Return the policy of a document, and its faults; the policy is None if it cannot be decoded."""
    body = dict(text.body)
    if isinstance(body.get("extenders"), list):
        body["extenders"] = [_respelled(one) for one in body["extenders"]]
    policy, faults = decode(body, Policy, "", "Policy")
    faults = [*text.faults, *faults]
    if policy is not None:
        known = {fault.field for fault in faults}
        faults += [fault for fault in _faults(policy) if fault.field not in known]
    return policy, faults


def _respelled(extender: Any) -> Any:
    """Return an extender with its fields, matched without regard to case, under their v1 names; unknown ones are left out."""
    if not isinstance(extender, dict):
        return extender
    known = {name.lower(): name for name in fields_of(Extender)}
    found = {known[name.lower()]: value for name, value in extender.items() if name.lower() in known}
    timeout = found.get("httpTimeout")
    if isinstance(timeout, int) and not isinstance(timeout, bool):
        found["httpTimeout"] = f"{timeout}ns"
    return found


# -- faults -------------------------------------------------------------------------------------------------------------


def _faults(policy: Policy) -> Iterator[Fault]:
    for i, predicate in enumerate(policy.predicates or ()):
        yield from _predicate_faults(predicate, f"predicates[{i}]")
    yield from _priorities_faults(policy.priorities or ())
    yield from extender_faults(policy.extenders)
    weight = policy.hard_pod_affinity_symmetric_weight
    if not 0 <= weight <= 100:
        yield Fault("Invalid value", "hardPodAffinitySymmetricWeight", "not in valid range [0-100]", weight)


def _predicate_faults(predicate: Predicate, path: str) -> Iterator[Fault]:
    given = 0 if predicate.argument is None else _given(predicate.argument)
    if predicate.argument is not None and given != 1:
        text = f"exactly 1 predicate argument is required, numArgs: {given}, predicate {predicate.name}"
        yield Fault("Invalid value", f"{path}.argument", text, predicate.argument)
    elif not given and current_name(predicate.name) not in PREDICATES:
        text = f'predicate type not found for "{current_name(predicate.name)}"'
        yield Fault("Not found", f"{path}.name", text, predicate.name)


def _priorities_faults(priorities: tuple[Priority, ...]) -> Iterator[Fault]:
    first: dict[str, Priority] = {}
    for i, priority in enumerate(priorities):
        path = f"priorities[{i}]"
        if not 0 < priority.weight < _MAX_WEIGHT:
            text = f"priority {priority.name} should have a positive weight applied to it or it has overflown"
            yield Fault("Invalid value", f"{path}.weight", text, priority.weight)
        yield from _priority_faults(priority, path)
        yield from _custom_faults(first, priority, path)


def _priority_faults(priority: Priority, path: str) -> Iterator[Fault]:
    if priority.argument is not None:
        given = _given(priority.argument)
        if given == 0:
            text = f"no priority arguments set for priority {priority.name}"
            yield Fault("Invalid value", f"{path}.argument", text, priority.argument)
        elif given > 1:
            text = f"exactly 1 priority argument is required, numArgs: {given}, priority {priority.name}"
            yield Fault("Invalid value", f"{path}.argument", text, priority.argument)
    elif priority.name != EQUAL_PRIORITY and current_name(priority.name) not in PRIORITIES:
        text = f'priority type not found for "{current_name(priority.name)}"'
        yield Fault("Not found", f"{path}.name", text, priority.name)


def _custom_faults(first: dict[str, Priority], priority: Priority, path: str) -> Iterator[Fault]:
    """Yield faults of priorities that map to one plugin: their weights must agree, and a function can occur only once."""
    kind = _custom_kind(priority.argument)
    if kind is None:
        return
    before = first.setdefault(kind, priority)
    if before is priority:
        return
    if kind == "RequestedToCapacityRatio":
        text = f'priority "{priority.name}" redeclares custom priority "{kind}", from: "{before.name}"'
        yield Fault("Duplicate value", path, text, priority.name)
    elif before.weight != priority.weight:
        text = f'{kind} priority "{priority.name}" has a different weight with "{before.name}"'
        yield Fault("Invalid value", f"{path}.weight", text, priority.weight)


def _custom_kind(argument: PriorityArgument | None) -> str | None:
    if argument is None:
        return None
    if argument.label_preference is not None:
        return "LabelPreference"
    if argument.service_anti_affinity is not None:
        return "ServiceAntiAffinity"
    return "RequestedToCapacityRatio" if argument.requested_to_capacity_ratio_arguments is not None else None


def _given(argument: msgspec.Struct) -> int:
    """Return how many of its alternatives an argument sets."""
    values: Mapping[str, object] = msgspec.structs.asdict(argument)
    return sum(value is not None for value in values.values())
