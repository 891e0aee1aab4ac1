"""What Kueue refuses of its objects, with its texts: all faults at once, each with its place.

The structure of the kinds, their defaults and the rules in CEL are those of Kueue's own definitions. ``schemas.json`` has a
schema for each kind and version, without descriptions; ``rules/webhooks.toml`` what the webhooks check beyond them.

Source  Kueue, config/components/crd; pkg/webhooks
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from moorage.api.core import PodTemplateSpec, Taint
from moorage.api.decode import decode
from moorage.api.durations import duration_seconds
from moorage.api.quantity import canonical, parse
from moorage.api.validation.faults import NOT_NEGATIVE, Faults, duplicate, invalid, one_of, quantity, unsupported
from moorage.api.validation.rule_tables import Holders, RuleBook, Seen, check
from moorage.api.validation.values import taint_faults
from moorage.basis import table_of, text_of
from moorage.errors import Bare, Fault, InputError

if TYPE_CHECKING:
    from moorage.api.documents.served_kinds import CustomVersion

#: The rules of Kueue's kinds, by kind.
RULES: Final = RuleBook("moorage.simulator.kueue")
_LEAST_WEIGHT_NANO: Final = 1
#: Faults after which an object has not the structure that the webhooks rely on.
_BROKEN: Final = (" must be of type ", "should match '^(\\+|-)?")


def with_defaults(documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Check objects of Kueue's kinds, and return them with the defaults of their fields. Other kinds are left out.

    Raises  InputError with all faults
    """
    # Only those who have queues pay for the import.
    from moorage.api.schema.custom_kinds import apply_defaults

    found, faults = [], []
    for one in documents:
        if (version := _version_of(one)) is not None:
            made = msgspec.json.decode(msgspec.json.encode(one))
            apply_defaults(version.schema, made)
            found.append(made)
            title = f"{made['kind']} {(made.get('metadata') or {}).get('name', '')}".rstrip()
            faults += [f"Kueue: {title}: {fault}" for fault in _faults(made, version)]
    if faults:
        raise InputError(*faults)
    return found


@cache
def _versions() -> dict[str, CustomVersion]:
    from moorage.api.documents.served_kinds import CustomVersion

    schemas = json.loads(text_of("moorage.simulator.kueue", "schemas.json"))
    schemas["Configuration.v1beta2"] = table_of("moorage.simulator.kueue", "configuration.toml")
    return {name: CustomVersion(schema, name, f"{name}List") for name, schema in schemas.items()}


def _version_of(document: Mapping[str, Any]) -> CustomVersion | None:
    kind, version = document.get("kind"), str(document.get("apiVersion", "")).rpartition("/")[2]
    found = _versions()
    return found.get(f"{kind}.{version}") or found.get(f"{kind}.v1beta2")


def _faults(document: dict[str, Any], version: CustomVersion) -> Faults:
    from moorage.rules.admission.custom_resource_strategy import version_faults

    # One that is about no field says that others hide faults.
    found = [one for one in version_faults(version, document) if one.field != "<nil>"]
    yield from found
    has_structure = not any(one.kind == "Required value" or any(text in one.detail for text in _BROKEN) for one in found)
    if has_structure and RULES.has(document["kind"]):
        yield from RULES.faults(document["kind"], document)


# -- what the rules name ------------------------------------------------------------------------------------------------


@check("once", of_holder=True)
def _once(path: str, name: str, _: Any, up: Holders, seen: Seen, what: str) -> Iterable[Fault]:
    """Yield the fault of a name that occurs before in the object."""
    held = seen.setdefault((_once, what), set())
    if name in held:
        return (duplicate(path, name),)
    held.add(name)
    return ()


@check("at most in all")
def _most(path: str, lists: Sequence[Mapping[str, Any]], most: int, what: str, field: str) -> Iterable[Fault]:
    total = sum(len(one.get(field) or ()) for one in lists)
    return (invalid(path, total, f"{what} must be ≤ {most}, got {total}"),) if total > most else ()


@check("covered", of_holder=True)
def _covered(path: str, name: str, _: Any, up: Any, seen: Seen) -> Iterable[Fault]:
    """Yield the fault of a resource that is not the one at the same place of those that the group covers."""
    at, covered = int(path.rpartition("[")[2].partition("]")[0]), up[1][0].get("coveredResources") or ()
    is_wrong = at < len(covered) and name != covered[at]
    return (invalid(path, name, "must match the name in coveredResources"),) if is_wrong else ()


@check("limit", of_holder=True)
def _limit(path: str, limit: Any, quota: Mapping[str, Any], up: Any, seen: Seen) -> Faults:
    """Yield the faults of a limit of what is borrowed from others or lent to them."""
    if limit is None:
        return
    document = up[1][1][0]
    is_queue, spec = document["kind"] == "ClusterQueue", document["spec"]
    above = "cohort" if is_queue else "parent"
    if not (spec.get(f"{above}Name") or spec.get(above)):
        yield invalid(path, canonical(limit), f"must be nil when {above} is empty")
    if is_queue and path.endswith("lendingLimit") and parse(limit) > parse(quota["nominalQuota"]):
        yield invalid(path, canonical(limit), "must be less than or equal to the nominalQuota")


@check("weight")
def _weight(path: str, weight: Any) -> Faults:
    yield from quantity(path, weight)
    if 0 < parse(weight) <= _LEAST_WEIGHT_NANO:
        yield invalid(path, canonical(weight), "When not 0, weight must be > 10e-9")


@check("flavor of the queue", of_holder=True)
def _flavor(path: str, name: str, _: Any, up: Any, seen: Seen) -> Faults:
    groups = up[1][0]["spec"].get("resourceGroups") or ()
    return one_of(path, name, [one["name"] for group in groups for one in group["flavors"]])


@check("node taints")
def _taints(path: str, taints: Sequence[Any]) -> Iterable[Fault]:
    """Yield the faults of the taints of a flavor; the schema knows the effects."""
    found = taint_faults(path, msgspec.convert(taints, tuple[Taint, ...]))
    return (one for one in found if not one.field.endswith(".effect"))


@check("template of pods")
def _template(path: str, template: Any) -> Iterable[Fault]:
    """Yield the fault of a pod template with values of wrong types, of which the schema says nothing."""
    try:
        decode(template, PodTemplateSpec, "template")
    except InputError as error:
        return (invalid(path, Bare(""), str(error)),)
    return ()


@check("one minimum")
def _one_minimum(path: str, pod_sets: Sequence[Mapping[str, Any]]) -> Iterable[Fault]:
    number = sum(one.get("minCount") is not None for one in pod_sets)
    return (invalid(path, number, "at most one podSet can use minCount"),) if number > 1 else ()


@check("amount of a resource")
def _amount(path: str, amount: Any) -> Faults:
    if path.endswith("[pods]"):
        yield invalid(path, "pods", "the key is reserved for internal kueue use")
    yield from quantity(path, amount)


@check("one of lists")
def _lists(path: str, given: list[str], *known: list[str]) -> Iterable[Fault]:
    return () if given in known else (unsupported(path, given, map(",".join, known)),)


@check("no negative time")
def _time(path: str, text: str, why: str = NOT_NEGATIVE) -> Iterable[Fault]:
    try:
        is_negative = duration_seconds(text) < 0
    except InputError as error:
        is_negative, why = True, str(error)
    return (invalid(path, text, why),) if is_negative else ()
