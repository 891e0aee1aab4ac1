"""Checks of claims for devices, their status, and slices that tables of rules name.

Source  kubernetes, pkg/apis/resource/validation/validation.go
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final

from moorage.api.documents.served_kinds import Document
from moorage.api.names import check_dns1123_label, check_dns1123_subdomain
from moorage.api.quantity import QuantityError, canonical, parse
from moorage.api.validation.faults import Faults, duplicate, forbidden, invalid, named, required, too_long, too_many
from moorage.api.validation.rule_checks import driver_name_faults
from moorage.api.validation.rule_tables import Holders, Seen, check
from moorage.errors import Fault

_IDENTIFIER: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_NO_IDENTIFIER: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' "
    "(e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)


def _identifier_faults(path: str, text: str) -> Faults:
    if len(text) > 32:
        yield too_long(path, 32)
    if not _IDENTIFIER.fullmatch(text):
        yield invalid(path, text, _NO_IDENTIFIER)


def _name_faults(path: str, name: str) -> Faults:
    """Yield the faults of the name of an attribute or a capacity, which may have a domain."""
    parts = name.split("/")
    if len(parts) == 1:
        yield from _identifier_faults(path, name)
    elif len(parts) == 2:
        yield from driver_name_faults(path, parts[0]) if parts[0] else (invalid(path, "", "the domain must not be empty"),)
        yield from _identifier_faults(path, parts[1]) if parts[1] else (invalid(path, "", "the name must not be empty"),)


_ANY_CASE: Final = (
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'Example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@check("driver name in any case")
def _driver(path: str, name: Any) -> Faults:
    if not name:
        yield required(path)
        return
    if not isinstance(name, str):
        yield invalid(path, name, "must be a string")
        return
    if len(name) > 63:
        yield too_long(path, 63)
    if check_dns1123_subdomain(name.lower()):
        yield invalid(path, name, _ANY_CASE)


@check("attribute names")
def _names(path: str, held: Mapping[str, Any]) -> Faults:
    return (fault for name in held for fault in _name_faults(path, name))


@check("full attribute name")
def _full_name(path: str, name: str) -> Faults:
    yield from _name_faults(path, name)
    if "/" not in name:
        yield invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")


@check("pool name")
def _pool_name(path: str, name: str) -> Faults:
    if not name:
        yield required(path)
        return
    if len(name) > 253:
        yield too_long(path, 253)
    for part in name.split("/"):
        yield from named(path, part, check_dns1123_subdomain)


def request_names(spec: Document) -> Mapping[str, Collection[str]]:
    """Return the names of the requests of a claim's spec, each with those of its alternatives."""
    requests = (spec.get("devices") or {}).get("requests") or ()
    return {
        one.get("name") or "": [inner.get("name") or "" for inner in one.get("firstAvailable") or ()]
        for one in requests
    }  # fmt: skip


def reference_faults(path: str, name: str, names: Mapping[str, Collection[str]]) -> Faults:
    """Yield the faults of a reference to one of the requests of a claim, or to an alternative of one."""
    why = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
    segments = name.split("/")
    if len(segments) > 2:
        yield invalid(path, name, why)
        return
    for segment in segments:
        yield from named(path, segment, check_dns1123_label)
    if segments[0] not in names or (len(segments) == 2 and segments[1] not in names[segments[0]]):
        yield invalid(path, name, why)


@check("unique by", of_holder=True)
def _unique_by(path: str, one: Document, _: Any, up: Holders, seen: Seen, name: str) -> Iterable[Fault]:
    """Yield the fault of an item of a list with the same key as one before it."""
    held = seen.setdefault((_unique_by, path.rpartition("[")[0]), set())
    key = (one or {}).get(name) or ""
    if key in held:
        return (duplicate(path, {name: key}),)
    held.add(key)
    return ()


# -- slices ------------------------------------------------------------------------------------------------------------


@check("number of devices")
def _number_of_devices(path: str, spec: Document) -> Iterable[Fault]:
    devices = spec.get("devices") or ()
    lists = ("bools", "ints", "strings", "versions")
    is_advanced = any(
        one.get("taints") or one.get("consumesCounters")
        or any(value.get(name) is not None for value in (one.get("attributes") or {}).values() for name in lists)
        for one in devices
    )  # fmt: skip
    most = 64 if is_advanced else 128
    return (too_many(f"{path}.devices", len(devices), most),) if len(devices) > most else ()


@check("counters")
def _counters(path: str, counters: Mapping[str, Any]) -> Faults:
    if len(counters) > 32:
        yield too_many(path, len(counters), 32)
        return
    for name in counters:
        yield from named(path, name, check_dns1123_label)


@check("size of device")
def _size_of_device(path: str, device: Document) -> Iterable[Fault]:
    count = len(device.get("attributes") or ()) + len(device.get("capacity") or ())
    why = "the total number of attributes and capacities must not exceed 32"
    return (invalid(path, count, why),) if count > 32 else ()


@check("capacity policies")
def _policies(path: str, device: Document) -> Faults:
    for name, capacity in (device.get("capacity") or {}).items():
        policy, at = capacity.get("requestPolicy"), f"{path}.capacity[{name}].requestPolicy"
        if policy is None:
            continue
        if not device.get("allowMultipleAllocations"):
            yield forbidden(at, "allowMultipleAllocations must be true")
        elif policy.get("validValues") and policy.get("validRange") is not None:
            why = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
            yield forbidden(at, why)
        else:
            with suppress(QuantityError):
                yield from _policy_faults(at, capacity.get("value") or "0", policy)


def _policy_faults(path: str, most: Any, policy: Document) -> Faults:
    values, bounds, default = policy.get("validValues") or [], policy.get("validRange"), policy.get("default")
    name = "validValues" if values else "validRange"
    if not values and bounds is None:
        return
    if default is None:
        yield required(f"{path}.default", f"required when {name} is defined")
    elif values:
        yield from _value_faults(f"{path}.validValues", most, values, default)
    elif bounds is not None:
        yield from _range_faults(f"{path}.validRange", most, bounds, default)


def _value_faults(path: str, most: Any, values: Sequence[Any], default: Any) -> Faults:
    for i, (one, other) in enumerate(pairwise(values)):
        if parse(one) > parse(other):
            yield invalid(f"{path}[{i + 1}]", canonical(other), "values must be sorted in ascending order")
    if len(values) > 10:
        yield too_many(path, len(values), 10)
        return
    seen: set[int] = set()
    for i, one in enumerate(values):
        if parse(one) > parse(most):
            yield invalid(f"{path}[{i}]", canonical(one), f"option is larger than capacity value: {canonical(most)}")
    for i, one in enumerate(values):
        if (whole := -(-parse(one) // 10**9)) in seen:
            yield duplicate(f"{path}[{i}]", str(whole))
        seen.add(whole)
    if parse(default) not in map(parse, values):
        yield invalid(path, canonical(default), "default value is not valid according to the requestPolicy")


def _range_faults(path: str, most: Any, bounds: Document, default: Any) -> Faults:
    least, top, step = (bounds.get(name) for name in ("min", "max", "step"))
    if least is None:
        yield required(f"{path}.min", "required when validRange is defined")
        return
    for is_wrong, name, shown, why in (
        (parse(least) > parse(most), "min", least, f"min is larger than capacity value: {canonical(most)}"),
        (parse(default) < parse(least), "default", default, f"default is less than min: {canonical(least)}"),
    ):
        if is_wrong:
            yield invalid(f"{path}.{name}", canonical(shown), why)
    if top is not None:
        for is_wrong, name, shown, why in (
            (parse(least) > parse(top), "max", least, f"min is larger than max: {canonical(top)}"),
            (parse(top) > parse(most), "max", top, f"max is larger than capacity value: {canonical(most)}"),
            (parse(default) > parse(top), "default", default, f"default is more than max: {canonical(top)}"),
        ):
            if is_wrong:
                yield invalid(f"{path}.{name}", canonical(shown), why)
    if step is not None:
        yield from _step_faults(f"{path}.step", most, (least, top, step), default)


def _step_faults(path: str, most: Any, bounds: tuple[Any, Any, Any], default: Any) -> Faults:
    least, top, step = bounds
    if parse(step) <= 0:
        yield invalid(path, canonical(step), "must be greater than zero")
        return
    if parse(least) + parse(step) > parse(most):
        added = canonical(f"{parse(least) + parse(step)}n")
        yield invalid(path, canonical(step), f"one step {added} is larger than capacity value: {canonical(most)}")
    for value in (default, top):
        if value is not None and (parse(value) - parse(least)) % parse(step):
            why = f"value is not a multiple of a given step ({canonical(step)}) from ({canonical(least)})"
            yield invalid(path, canonical(value), why)
