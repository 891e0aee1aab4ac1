"""What Kueue's API refuses of its objects, with its texts: all faults at once, each with its place.

The structure of the kinds, their defaults and the rules in CEL are those of Kueue's own definitions. ``schemas.json`` has a
schema for each kind and version, without descriptions. What its webhooks check beyond that stands here.

Source  Kueue, config/components/crd; pkg/webhooks: clusterqueue_webhook.go, cohort_webhook.go, workload_webhook.go, common.go
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from moorage.api.quantity import parse
from moorage.basis import text_of
from moorage.errors import InputError
from moorage.simulator.kueue.settings import NEGATIVE

if TYPE_CHECKING:
    from moorage.cluster.apiserver.vocabulary.served_kinds import CustomVersion

_MOST_FLAVORS: Final = 256
_MOST_PAIRS: Final = 512
_LEAST_WEIGHT_NANO: Final = 1
_Fault = tuple[str, str]


def refuse_invalid(documents: Iterable[Mapping[str, Any]]) -> None:
    """Check objects of Kueue's kinds. Other kinds are left alone.

    Raises  InputError with all faults
    """
    faults = [
        f"Kueue: {one['kind']} {(one.get('metadata') or {}).get('name', '')}: {fault}"
        for one in documents
        if (version := _version_of(one)) is not None
        for fault in _faults(one, version)
    ]
    if faults:
        raise InputError(*faults)


@cache
def _versions() -> dict[str, CustomVersion]:
    from moorage.cluster.apiserver.vocabulary.served_kinds import CustomVersion

    text = text_of("moorage.simulator.kueue", "schemas.json")
    return {name: CustomVersion(schema, name, f"{name}List") for name, schema in json.loads(text).items()}


def _version_of(document: Mapping[str, Any]) -> CustomVersion | None:
    kind, version = document.get("kind"), str(document.get("apiVersion", "")).rpartition("/")[2]
    found = _versions()
    return found.get(f"{kind}.{version}") or found.get(f"{kind}.v1beta2")


def _faults(document: Mapping[str, Any], version: CustomVersion) -> Iterator[str]:
    # Only those who have queues pay for the import.
    from moorage.cluster.apiserver.admission.custom_resource_strategy import version_faults
    from moorage.cluster.apiserver.schema.custom_kinds import apply_defaults

    made = msgspec.json.decode(msgspec.json.encode(document))
    apply_defaults(version.schema, made)
    found = [one for one in version_faults(version, made) if one.field != "<nil>"]  # that says that others hide faults of rules
    yield from map(str, found)
    # Fields of wrong types, and those that are missing, would lead the webhooks astray.
    if not any(one.kind == "Required value" or " must be of type " in one.detail for one in found):
        for path, text in check(made.get("spec") or {}) if (check := _CHECKS.get(str(document["kind"]))) is not None else ():
            yield f"{path}: {text}"


def _flavor(spec: Mapping[str, Any]) -> Iterator[_Fault]:
    seen: set[tuple[Any, Any]] = set()
    for i, taint in enumerate(spec.get("nodeTaints") or ()):
        pair = (taint.get("key"), taint.get("effect"))
        if pair in seen:
            yield f"spec.nodeTaints[{i}]", "Duplicate value: taints must be unique by key and effect pair"
        seen.add(pair)


def _workload(spec: Mapping[str, Any]) -> Iterator[_Fault]:
    sets = spec.get("podSets") or ()
    if (variable := sum(one.get("minCount") is not None for one in sets)) > 1:
        yield "spec.podSets", f"Invalid value: {variable}: at most one podSet can use minCount"
    for i, one in enumerate(sets):
        path = f"spec.podSets[{i}]"
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


def _queue(spec: Mapping[str, Any], *, is_cohort: bool) -> Iterator[_Fault]:
    above = ("parentName", "parent") if is_cohort else ("cohortName", "cohort")
    groups = spec.get("resourceGroups") or []
    yield from _groups(groups, has_parent=any(spec.get(name) for name in above), is_cohort=is_cohort)
    yield from _weight((spec.get("fairSharing") or {}).get("weight"))
    if is_cohort:
        return
    fungibility = spec.get("flavorFungibility") or {}
    if (asked := fungibility.get("preference")) is not None and not (
        fungibility.get("whenCanBorrow") == fungibility.get("whenCanPreempt") == "TryNextFlavor"
    ):
        text = f'preference "{asked}" requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor'
        yield "spec.flavorFungibility.preference", f'Invalid value: "{asked}": {text}'
    flavors = [str(one.get("name")) for group in groups for one in group.get("flavors") or ()]
    shown = ", ".join(f'"{name}"' for name in flavors)
    covered = sum(len(group.get("coveredResources") or ()) for group in groups)
    for what, count in (("flavors", len(flavors)), ("covered resources", covered)):
        if count > _MOST_FLAVORS:
            text = f"total number of {what} across all resourceGroups must be ≤ {_MOST_FLAVORS}, got {count}"
            yield "spec.resourceGroups", f"Invalid value: {count}: {text}"
    for i, check in enumerate((spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()):
        for j, flavor in enumerate(check.get("onFlavors") or ()):
            if flavor not in flavors:
                text = f'Unsupported value: "{flavor}": supported values: {shown}'
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


_CHECKS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterable[_Fault]]]] = {
    "ClusterQueue": partial(_queue, is_cohort=False),
    "Cohort": partial(_queue, is_cohort=True),
    "ResourceFlavor": _flavor,
    "Workload": _workload,
}
