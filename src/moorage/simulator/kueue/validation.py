"""What Kueue's API refuses of its objects, with its texts: all faults at once, each with its place.

Source  Kueue, pkg/webhooks: clusterqueue_webhook.go, cohort_webhook.go, common.go; the validation of the CRDs
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from moorage.api.quantity import parse
from moorage.errors import InputError
from moorage.simulator.kueue.settings import NEGATIVE

__all__ = ["refuse_invalid"]

_MOST_FLAVORS: Final = 256
_MOST_PAIRS: Final = 512
_LEAST_WEIGHT_NANO: Final = 1
_NEVER: Final = "Never"
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_HOSTNAME: Final = "kubernetes.io/hostname"
_MOST_LEVELS: Final = 16
_Fault = tuple[str, str]

#: Fields that have one of a few values.
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "queueingStrategy": ("StrictFIFO", "BestEffortFIFO"),
    "stopPolicy": ("None", "Hold", "HoldAndDrain"),
    "preemption.reclaimWithinCohort": (_NEVER, "LowerPriority", "Any"),
    "preemption.withinClusterQueue": (_NEVER, "LowerPriority", "LowerOrNewerEqualPriority"),
    "preemption.borrowWithinCohort.policy": (_NEVER, "LowerPriority"),
    "flavorFungibility.whenCanBorrow": ("MayStopSearch", "TryNextFlavor", "Borrow"),
    "flavorFungibility.whenCanPreempt": ("MayStopSearch", "TryNextFlavor", "Preempt"),
    "flavorFungibility.preference": ("BorrowingOverPreemption", "PreemptionOverBorrowing"),
}


def refuse_invalid(documents: Iterable[Mapping[str, Any]]) -> None:
    """Check ClusterQueues, Cohorts, ResourceFlavors, Topologies and Workloads.

    Raises  InputError with all faults
    """
    faults = [
        f"Kueue: {one['kind']} {(one.get('metadata') or {}).get('name', '')}: {path}: {text}"
        for one in documents
        if (check := _CHECKS.get(str(one.get("kind")))) is not None
        for path, text in check(one.get("spec") or {})
    ]
    if faults:
        raise InputError("\n".join(faults))


def _flavor(spec: Mapping[str, Any]) -> Iterator[_Fault]:
    if spec.get("topologyName") and not spec.get("nodeLabels"):
        yield "spec", "Invalid value: at least one nodeLabel is required when topology is set"
    seen: set[tuple[Any, Any]] = set()
    for i, taint in enumerate(spec.get("nodeTaints") or ()):
        pair = (taint.get("key"), taint.get("effect"))
        if pair in seen:
            yield f"spec.nodeTaints[{i}]", "Duplicate value: taints must be unique by key and effect pair"
        seen.add(pair)
    taints, tolerations = spec.get("nodeTaints") or (), spec.get("tolerations") or ()
    if any(taint.get("effect") not in _EFFECTS for taint in taints):
        yield "spec.nodeTaints", f"Invalid value: supported taint effect values: {', '.join(map(repr, _EFFECTS))}"
    rules: tuple[tuple[str, Callable[[Mapping[str, Any]], bool]], ...] = (
        (
            "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
            lambda one: not one.get("key") and one.get("operator") != "Exists",
        ),
        (
            "effect must be 'NoExecute' when 'tolerationSeconds' is set",
            lambda one: one.get("tolerationSeconds") is not None and one.get("effect") != "NoExecute",
        ),
        (
            "supported toleration values: 'Equal'(default), 'Exists'",
            lambda one: one.get("operator", "Equal") not in {"Equal", "Exists"},
        ),
        (
            "a value must be empty when 'operator' is 'Exists'",
            lambda one: one.get("operator") == "Exists" and one.get("value") is not None,
        ),
        (
            f"supported taint effect values: {', '.join(map(repr, _EFFECTS))}",
            lambda one: bool(one.get("effect")) and one["effect"] not in _EFFECTS,
        ),
    )
    for text, is_wrong in rules:
        if any(is_wrong(one) for one in tolerations):
            yield "spec.tolerations", f"Invalid value: {text}"


def _topology(spec: Mapping[str, Any]) -> Iterator[_Fault]:
    levels = [str(one.get("nodeLabel")) for one in spec.get("levels") or ()]
    if not levels:
        yield "spec.levels", "Invalid value: 0: spec.levels in body should have at least 1 items"
    if len(levels) > _MOST_LEVELS:
        yield "spec.levels", f"Too many: {len(levels)}: must have at most {_MOST_LEVELS} items"
    if len(set(levels)) < len(levels):
        yield "spec.levels", "Invalid value: must be unique"
    if _HOSTNAME in levels[:-1]:
        yield "spec.levels", f"Invalid value: the {_HOSTNAME} label can only be used at the lowest level of topology"


def _workload(spec: Mapping[str, Any]) -> Iterator[_Fault]:
    sets = spec.get("podSets") or ()
    if (variable := sum(one.get("minCount") is not None for one in sets)) > 1:
        yield "spec.podSets", f"Invalid value: {variable}: at most one podSet can use minCount"
    for i, one in enumerate(sets):
        path, least = f"spec.podSets[{i}]", one.get("minCount")
        if least is not None and not 0 < least <= one.get("count", 1):
            yield path, "Invalid value: minCount should be positive and less or equal to count"
        template = (one.get("template") or {}).get("spec") or {}
        for kind in ("initContainers", "containers"):
            for j, container in enumerate(template.get(kind) or ()):
                yield from _requests(container.get("resources") or {}, f"{path}.template.spec.{kind}[{j}].resources")
        yield from _requests(template.get("resources") or {}, f"{path}.template.spec.resources")
        yield from _slices(one.get("topologyRequest") or {}, f"{path}.topologyRequest")


def _requests(resources: Mapping[str, Any], path: str) -> Iterator[_Fault]:
    for field in ("requests", "limits"):
        for name, value in sorted((resources.get(field) or {}).items()):
            if name == "pods":
                yield f"{path}.{field}[{name}]", 'Invalid value: "pods": the key is reserved for internal kueue use'
            try:
                negative = parse(value) < 0
            except InputError as error:
                yield f"{path}.{field}[{name}]", str(error)
                continue
            if negative:
                yield f"{path}.{field}[{name}]", f'Invalid value: "{value}": {NEGATIVE}'


def _slices(asked: Mapping[str, Any], path: str) -> Iterator[_Fault]:
    level, size, at = asked.get("podSetSliceRequiredTopology"), asked.get("podSetSliceSize"), f"{path}.podSetSliceSize"
    if level is None and size is not None:
        yield at, "Forbidden: may not be set when podSetSliceRequiredTopology is not specified"
    elif level is not None and size is None:
        yield at, "Required value: must be set when podSetSliceRequiredTopology is specified"
    elif size is not None and size <= 0:
        yield at, f"Invalid value: {size}: must be greater than 0"
    for i, layer in enumerate(asked.get("podsetSliceRequiredTopologyConstraints") or ()):
        if layer.get("size", 0) <= 0:
            where = f"{path}.podsetSliceRequiredTopologyConstraints[{i}].size"
            yield where, f"Invalid value: {layer.get('size')}: must be greater than 0"


def _faults(spec: Mapping[str, Any], *, is_cohort: bool) -> Iterator[_Fault]:
    above = ("parentName", "parent") if is_cohort else ("cohortName", "cohort")
    groups = spec.get("resourceGroups") or []
    yield from _groups(groups, has_parent=any(spec.get(name) for name in above), is_cohort=is_cohort)
    yield from _weight((spec.get("fairSharing") or {}).get("weight"))
    if is_cohort:
        return
    for path, allowed in _CHOICES.items():
        value: Any = spec
        for field in path.split("."):
            value = value.get(field) if isinstance(value, Mapping) else None
        if value is not None and value not in allowed:
            yield f"spec.{path}", f'Unsupported value: "{value}": supported values: {_quoted(allowed)}'
    rules = spec.get("preemption") or {}
    borrow = (rules.get("borrowWithinCohort") or {}).get("policy", _NEVER)
    if rules.get("reclaimWithinCohort", _NEVER) == _NEVER and borrow != _NEVER:
        yield "spec.preemption", "Invalid value: reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"
    fungibility = spec.get("flavorFungibility") or {}
    if (asked := fungibility.get("preference")) is not None and not (
        fungibility.get("whenCanBorrow") == fungibility.get("whenCanPreempt") == "TryNextFlavor"
    ):
        text = f'preference "{asked}" requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor'
        yield "spec.flavorFungibility.preference", f'Invalid value: "{asked}": {text}'
    flavors = [str(one.get("name")) for group in groups for one in group.get("flavors") or ()]
    resources = sum(len(group.get("coveredResources") or ()) for group in groups)
    for what, count in (("flavors", len(flavors)), ("covered resources", resources)):
        if count > _MOST_FLAVORS:
            text = f"total number of {what} across all resourceGroups must be ≤ {_MOST_FLAVORS}, got {count}"
            yield "spec.resourceGroups", f"Invalid value: {count}: {text}"
    for i, check in enumerate((spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()):
        for j, flavor in enumerate(check.get("onFlavors") or ()):
            if flavor not in flavors:
                text = f'Unsupported value: "{flavor}": supported values: {_quoted(flavors)}'
                yield f"spec.admissionChecksStrategy.admissionChecks[{i}].onFlavors[{j}]", text


def _groups(groups: Iterable[Mapping[str, Any]], *, has_parent: bool, is_cohort: bool) -> Iterator[_Fault]:
    seen: set[tuple[str, str]] = set()
    for i, group in enumerate(groups):
        at, covered = f"spec.resourceGroups[{i}]", [str(name) for name in group.get("coveredResources") or ()]
        places = [("resource", name, f"{at}.coveredResources[{j}]") for j, name in enumerate(covered)]
        places += [
            ("flavor", str(one.get("name")), f"{at}.flavors[{j}].name") for j, one in enumerate(group.get("flavors") or ())
        ]
        for kind, name, place in places:
            if (kind, name) in seen:
                yield place, f'Duplicate value: "{name}"'
            seen.add((kind, name))
        pairs = 0
        for j, flavor in enumerate(group.get("flavors") or ()):
            quotas = flavor.get("resources") or []
            pairs += len(quotas)
            if len(quotas) != len(covered):
                yield at, "Invalid value: flavors must have the same number of resources as the coveredResources"
            for k, quota in enumerate(quotas[: len(covered)]):
                where = f"{at}.flavors[{j}].resources[{k}]"
                if quota.get("name") != covered[k]:
                    yield f"{where}.name", f'Invalid value: "{quota.get("name")}": must match the name in coveredResources'
                yield from _quota(quota, where, has_parent=has_parent, is_cohort=is_cohort)
        if pairs > _MOST_PAIRS:
            text = f"number of flavor-resource combinations in a resourceGroup must be ≤ {_MOST_PAIRS}, got {pairs}"
            yield at, f"Invalid value: {pairs}: {text}"


def _quota(quota: Mapping[str, Any], where: str, *, has_parent: bool, is_cohort: bool) -> Iterator[_Fault]:
    amounts: dict[str, int] = {}
    for field in ("nominalQuota", "borrowingLimit", "lendingLimit"):
        value = quota.get(field)
        if value is None:
            continue
        try:
            amounts[field] = parse(value)
        except InputError as error:
            yield f"{where}.{field}", str(error)
            continue
        if amounts[field] < 0:
            yield f"{where}.{field}", f'Invalid value: "{value}": {NEGATIVE}'
        if field != "nominalQuota" and not has_parent:
            above = "parent" if is_cohort else "cohort"
            yield f"{where}.{field}", f'Invalid value: "{value}": must be nil when {above} is empty'
    if not is_cohort and "lendingLimit" in amounts and amounts["lendingLimit"] > amounts.get("nominalQuota", 0):
        text = f'Invalid value: "{quota["lendingLimit"]}": must be less than or equal to the nominalQuota'
        yield f"{where}.lendingLimit", text


def _weight(weight: Any) -> Iterator[_Fault]:
    if weight is None:
        return
    try:
        nano = parse(weight)
    except InputError as error:
        yield "spec.fairSharing.weight", str(error)
        return
    if nano < 0:
        yield "spec.fairSharing", f'Invalid value: "{weight}": {NEGATIVE}'
    elif 0 < nano <= _LEAST_WEIGHT_NANO:
        yield "spec.fairSharing", f'Invalid value: "{weight}": When not 0, weight must be > 10e-9'


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


_CHECKS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[_Fault]]]] = {
    "ClusterQueue": partial(_faults, is_cohort=False),
    "Cohort": partial(_faults, is_cohort=True),
    "ResourceFlavor": _flavor,
    "Topology": _topology,
    "Workload": _workload,
}
