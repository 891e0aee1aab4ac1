"""Checks of workloads, jobs, storage and devices that tables of rules name: what compares fields, or has a syntax of its own.

Source  kubernetes, pkg/apis/{apps,batch,resource,storage}/validation/validation.go
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from moorage.api.cron import CronError, parse_schedule
from moorage.api.documents.served_kinds import Document
from moorage.api.meta import LabelSelector
from moorage.api.names import check_dns1123_label, check_qualified_name, is_extended_resource_name
from moorage.api.selectors import SelectorError, compile_label_selector
from moorage.api.validation import faults
from moorage.api.validation.rule_tables import Holders, Seen, check, field_of, number_of
from moorage.errors import Fault

_PERCENT: Final = re.compile("[0-9]+%")
_NOT_A_PERCENTAGE: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


@check("amount", of_holder=True)
def _amount(path: str, value: int | str | None, *_: Any) -> Iterable[Fault]:
    """Yield the fault of a value that is neither a number of pods nor a percentage."""
    if isinstance(value, str):
        return () if _PERCENT.fullmatch(value) else (faults.invalid(path, value, _NOT_A_PERCENTAGE),)
    return (faults.invalid(path, value, faults.NOT_NEGATIVE),) if (value or 0) < 0 else ()


@check("at most all")
def _at_most_all(path: str, value: int | str) -> Iterable[Fault]:
    is_more = isinstance(value, str) and number_of(value) > 100
    return (faults.invalid(path, value, "must not be greater than 100%"),) if is_more else ()


@check("strategy type", of_holder=True)
def _strategy(path: str, strategy: Document | None, *rest: Any) -> Iterable[Fault]:
    """Yield the fault of a strategy whose type is not supported; it shows the Go struct."""
    strategy, supported = strategy or {}, rest[3]
    if strategy.get("type") in supported:
        return ()
    rolling = strategy.get("rollingUpdate")
    held = None
    if rolling is not None:
        held = {"MaxUnavailable": rolling.get("maxUnavailable", 0), "MaxSurge": rolling.get("maxSurge", 0)}
    return (faults.unsupported(path, {"Type": strategy.get("type", ""), "RollingUpdate": held}, supported),)


@check("stateful strategy", of_holder=True)
def _stateful(path: str, strategy: Document | None, *_: Any) -> Iterable[Fault]:
    kind, rolling = (strategy or {}).get("type"), (strategy or {}).get("rollingUpdate")
    if kind == "OnDelete" and rolling is not None:
        shown = {"Partition": rolling.get("partition", 0), "MaxUnavailable": rolling.get("maxUnavailable")}
        return (faults.invalid(f"{path}.rollingUpdate", shown, "only allowed for updateStrategy 'RollingUpdate'"),)
    if kind not in {"OnDelete", "RollingUpdate"}:
        return (faults.invalid(path, {"Type": kind, "RollingUpdate": None}, "must be 'RollingUpdate' or 'OnDelete'"),)
    return ()


# -- jobs ---------------------------------------------------------------------------------------------------------------

#: The labels of a generated selector.
_GENERATED: Final = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_ZONE_PART: Final = re.compile(r"[-A-Za-z._0-9+]{1,14}")
_MOST_INDEXES: Final = 64 * 1024


@check("job name", of_holder=True)
def _job_name(path: str, name: str | None, job: Document, *_: Any) -> Iterable[Fault]:
    """Yield the fault of a job's name that is too long for the names of its pods."""
    spec = job["spec"]
    if spec.get("completionMode") == "Indexed" and spec.get("completions"):
        last = f"{name or ''}-{spec['completions'] - 1}"
        if check_dns1123_label(last):
            return (faults.invalid(path, name or "", f"will not able to create pod with invalid DNS label: {last}"),)
    return ()


@check("generated selector", of_holder=True)
def _generated_selector(path: str, selector: Document | None, job: Document, *_: Any) -> faults.Faults:
    """Yield the faults of the selector of a new job that is not its own, and of labels that its pods must have."""
    if selector is None or job["spec"].get("manualSelector"):
        return
    metadata, labels = job["metadata"], field_of(job, "spec.template.metadata.labels") or {}
    wanted = {name: metadata.get("uid" if "uid" in name else "name") or "" for name in _GENERATED}
    for name, value in wanted.items():
        at = f"spec.template.metadata.labels[{name}]"
        if name not in labels:
            yield faults.required(at, f"must be '{value}'")
        elif labels[name] != value:
            yield faults.invalid(at, labels, f"must be '{value}'")
    if not _selects(selector, wanted):
        yield faults.invalid(path, selector, "`selector` not auto-generated")


@check("selected template")
def _selected_template(_: str, spec: Document) -> Iterable[Fault]:
    """Yield the fault of a template without the labels that the selector asks for."""
    labels = field_of(spec, "template.metadata.labels")
    if _selects(spec.get("selector"), labels or {}):
        return ()
    return (faults.invalid("spec.template.metadata.labels", labels or None, "`selector` does not match template `labels`"),)


def _selects(selector: Document | None, labels: Document) -> bool:
    """Return whether a selector matches labels; True if it is none, which others report."""
    try:
        given = msgspec.convert(selector, LabelSelector) if selector is not None else None
        return compile_label_selector(given).matches(labels)
    except SelectorError:
        return True


@check("container of template", of_holder=True)
def _container(path: str, name: str | None, _: Document, up: Holders, seen: Seen) -> Iterable[Fault]:
    if name is None or up is None:
        return ()
    if _container not in seen:
        pod = field_of(up[1][1][0], "template.spec") or {}  # above the rule and the policy
        seen[_container] = {one.get("name") for part in ("containers", "initContainers") for one in pod.get(part) or ()}
    if name in seen[_container]:
        return ()
    return (faults.invalid(path, name, "must be one of the container or initContainer names in the pod template"),)


@check("success rule", of_holder=True)
def _success_rule(path: str, rule: Document, _: Any, up: Holders, __: Seen) -> faults.Faults:
    completions = (up[1][0].get("completions") if up is not None else 0) or 0
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        yield faults.required(path, "at least one of succeededCount or succeededIndexes must be specified")
    total = 0
    if indexes is not None:
        if len(indexes) > _MOST_INDEXES:
            yield faults.too_long(f"{path}.succeededIndexes", _MOST_INDEXES)
        total, why = _parsed_indexes(indexes, completions)
        if why:
            yield faults.invalid(f"{path}.succeededIndexes", indexes, f"error parsing succeededIndexes: {why}")
    if count is None:
        return
    at = f"{path}.succeededCount"
    yield from faults.nonnegative(at, count)
    if count > completions:
        yield faults.invalid(at, count, f"must be less than or equal to {completions} (the number of specified completions)")
    if indexes is not None and count > total:
        why = f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        yield faults.invalid(at, count, why)


def _parsed_indexes(text: str, completions: int) -> tuple[int, str]:
    """Return how many indexes a text such as ``1,3-5`` names, or 0 and what is wrong with it."""
    total, last = 0, -1
    for part in text.split(",") if text else ():
        ends = part.split("-")
        if len(ends) > 2:
            why = "violates the requirement that an index interval can have at most two parts separated by '-'"
            return 0, f'the fragment "{part}" {why}'
        for end in ends:
            if not _NUMBER.fullmatch(end):
                return 0, f'cannot convert string to integer for index: "{end}"'
            if int(end) >= completions:
                return 0, f'too large index: "{end}"'
        first, final = int(ends[0]), int(ends[-1])
        if len(ends) == 2 and first >= final:
            return 0, f"non-increasing order, previous: {first}, current: {final}"
        if first <= last:
            return 0, f"non-increasing order, previous: {last}, current: {first}"
        total += final - first + 1
        last = final
    return total, ""


@lru_cache(maxsize=256)
def _check_schedule(schedule: str) -> list[str]:
    """Return what is wrong with a schedule."""
    try:
        parse_schedule(schedule)
    except CronError as error:
        return [str(error)]
    return []


@lru_cache(maxsize=256)
def _check_zone(zone: str) -> list[str]:
    """Return what is wrong with the name of a time zone."""
    if not zone:
        return ["timeZone must be nil or non-empty string"]
    if zone.lower() == "local":
        return ["timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"]
    parts = zone.split("/")
    if all(part not in {".", ".."} and part[:1] != "-" and _ZONE_PART.fullmatch(part) for part in parts):
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
        else:
            return []
    return [f"unknown time zone {zone}"]


check("cron schedule")(partial(faults.named, check=_check_schedule))
check("time zone")(partial(faults.named, check=_check_zone))


@check("topologies")
def _topologies(path: str, topologies: list[Document]) -> faults.Faults:
    terms: list[dict[str, set[str]]] = [{}] * len(topologies)  # kube-apiserver compares with as many empty terms
    for i, term in enumerate(topologies):
        wanted = {one.get("key"): set(one.get("values") or ()) for one in term.get("matchLabelExpressions") or ()}
        yield from (faults.duplicate(f"{path}[{i}].matchLabelExpressions", "") for one in terms if one == wanted)
        terms.append(wanted)


# -- devices ------------------------------------------------------------------------------------------------------------


@check("extended resource")
def _extended_resource(path: str, name: str) -> faults.Faults:
    if is_extended_resource_name(name):
        return
    domain, slash, rest = name.partition("/")
    if not slash:
        yield faults.invalid(path, name, "a name must be a domain-prefixed path, such as 'example.com/my-prop'")
    for why in check_qualified_name(name):
        if name or why != "name part must be non-empty":  # nothing at all has no domain, which is the fault above
            yield faults.invalid(path, name, why)
    if slash and not check_qualified_name(name) and (domain.endswith("kubernetes.io") or not rest):
        yield faults.invalid(path, name, "must be a valid extended resource name")


@check("template metadata")
def _template_metadata(path: str, given: Document) -> faults.Faults:
    """Yield the faults of metadata of a template beyond labels and annotations."""
    extra = [name for name in sorted(given) if name not in {"annotations", "labels", "creationTimestamp"} and given[name]]
    yield from (faults.forbidden(f"{path}.{name}", "cannot be set") for name in extra)


@check("device parameters")
def _device_parameters(path: str, parameters: Any) -> Iterable[Fault]:
    is_object = isinstance(parameters, dict)
    return () if is_object else (faults.invalid(path, "<value omitted>", "must be a valid JSON object"),)


@check("binding conditions")
def _binding(path: str, device: Document) -> faults.Faults:
    needed = {name: device.get(name) or [] for name in ("bindingConditions", "bindingFailureConditions")}
    for i, condition in enumerate(needed["bindingFailureConditions"]):
        if condition in needed["bindingConditions"]:
            why = "bindingFailureConditions must not overlap with bindingConditions"
            yield faults.invalid(f"{path}.bindingFailureConditions[{i}]", condition, why)
    for one, other in (tuple(needed), tuple(needed)[::-1]):
        for i, condition in enumerate(needed[one]):
            if condition in needed[one][:i]:
                yield faults.duplicate(f"{path}.{one}[{i}]", condition)
            else:
                yield from faults.named(f"{path}.{one}[{i}]", condition, check_qualified_name)
        if needed[one] and not needed[other]:
            yield faults.invalid(f"{path}.{other}", None, f"{other} are required to use {one}")


@check("one attribute")
def _one_attribute(path: str, attribute: Document) -> Iterable[Fault]:
    given = [name for name in _VALUES if attribute.get(name) is not None]
    if len(given) == 1:
        return ()
    fields = ", ".join(f"`{name}`" for name in _VALUES)
    if not given:
        return (faults.invalid(path, "", f"must specify one of: {fields}"),)
    return (faults.invalid(path, f"{{{', '.join(sorted(given))}}}", f"must specify exactly one of: {fields}"),)


#: The fields of an attribute with its value.
_VALUES: Final = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")
