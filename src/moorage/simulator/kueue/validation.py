"""What Kueue's API refuses of its objects, with its texts: all faults at once, each with its place.

Source  Kueue, pkg/webhooks: clusterqueue_webhook.go, cohort_webhook.go, common.go; the validation of the CRDs
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from moorage.api.quantity import parse
from moorage.errors import InputError

__all__ = ["refuse_invalid"]

_NEGATIVE: Final = "must be greater than or equal to 0"
_MOST_FLAVORS: Final = 256
_MOST_PAIRS: Final = 512
_LEAST_WEIGHT_NANO: Final = 1
_NEVER: Final = "Never"
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
    """Check ClusterQueues and Cohorts.

    Raises  InputError with all faults
    """
    faults = [
        f"Kueue: {one['kind']} {(one.get('metadata') or {}).get('name', '')}: {path}: {text}"
        for one in documents
        if one.get("kind") in {"ClusterQueue", "Cohort"}
        for path, text in _faults(one.get("spec") or {}, is_cohort=one["kind"] == "Cohort")
    ]
    if faults:
        raise InputError("\n".join(faults))


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
            yield f"{where}.{field}", f'Invalid value: "{value}": {_NEGATIVE}'
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
        yield "spec.fairSharing", f'Invalid value: "{weight}": {_NEGATIVE}'
    elif 0 < nano <= _LEAST_WEIGHT_NANO:
        yield "spec.fairSharing", f'Invalid value: "{weight}": When not 0, weight must be > 10e-9'


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
