"""Checks of kinds other than pods that tables of rules name: what compares fields, or reads texts with a syntax of their own.

Source  kubernetes, pkg/apis/*/validation/validation.go
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from moorage.api.documents.served_kinds import Document
from moorage.api.documents.statuses import go_word, syntax_fault
from moorage.api.names import (
    check_dns1123_label,
    check_dns1123_subdomain,
    check_label_value,
    check_qualified_name,
    is_native_resource,
)
from moorage.api.quantity import QuantityError, parse
from moorage.api.validation.faults import Faults, duplicate, in_range, invalid, named, one_of, required, too_long, unsupported
from moorage.api.validation.metadata import annotation_faults
from moorage.api.validation.pods import port_name_faults
from moorage.api.validation.resources import container_name_faults, standard_name_faults
from moorage.api.validation.rule_checks import check_path_segment, finalizer_faults
from moorage.api.validation.rule_tables import Holders, Seen, check
from moorage.errors import Bare, Fault
from moorage.rules.admission.pod_checks import RULES, config_key_faults

_T = TypeVar("_T")
_NOT_A_CIDR: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"

# -- config maps and secrets -------------------------------------------------------------------------------------------

_ACCOUNT: Final = "kubernetes.io/service-account.name"
#: The keys that a type of secret must have.
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_JSON_TYPES: Final = frozenset(["kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson"])
#: Bytes of the data of a config map or a secret.
_MAX_DATA: Final = 1 << 20


@check("config data")
def _config_map(_: str, config_map: Document) -> Faults:
    """Yield the faults of a config map: its keys, its size, and keys that it has twice."""
    yield from _data_faults(config_map, ("data", "binaryData"))
    for key in (config_map.get("data") or {}).keys() & (config_map.get("binaryData") or {}).keys():
        yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")


@check("secret data")
def _secret(_: str, secret: Document) -> Faults:
    """Yield the faults of a secret: its keys, its size, and the keys that its type demands."""
    yield from _data_faults(secret, ("data",), "data")
    yield from _secret_type_faults(secret)


def _data_faults(document: Document, parts: tuple[str, ...], at: str = "") -> Faults:
    size = 0
    for part in parts:
        for key, value in (document.get(part) or {}).items():
            size += _size(value) if part == "binaryData" or at else len(value.encode())
            yield from config_key_faults(f"{part}[{key}]", key)
    if size > _MAX_DATA:
        yield too_long(at, _MAX_DATA)


def _size(encoded: str) -> int:
    """Return the number of bytes that a text in base64 stands for."""
    text = encoded.replace("\n", "").replace("\r", "")
    return len(text) // 4 * 3 - (len(text) - len(text.rstrip("=")))


def _secret_type_faults(secret: Document) -> Faults:
    kind, data = secret.get("type") or "", secret.get("data") or {}
    if kind == "kubernetes.io/service-account-token" and not (secret["metadata"].get("annotations") or {}).get(_ACCOUNT):
        yield required(f"metadata.annotations[{_ACCOUNT}]")
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        yield from (required(f"data[{key}]") for key in ("username", "password"))
    for key in _KEYS.get(kind, ()):
        if key not in data or (kind == "kubernetes.io/ssh-auth" and not data[key]):
            yield required(f"data[{key}]")
        elif kind in _JSON_TYPES and (why := _json_fault(data[key])):
            yield invalid(f"data[{key}]", "<secret contents redacted>", why)


def _json_fault(text: str) -> str:
    """Return what is wrong with JSON that must be an object or null, or ""."""
    try:
        raw = base64.b64decode(text)
        found = json.loads(raw)
    except (binascii.Error, ValueError):
        return "unexpected end of JSON input" if not text else "invalid character in JSON"
    except RecursionError:
        return "exceeded max depth"
    if found is None or isinstance(found, dict):
        return ""
    names = {str: "string", list: "array", bool: "bool", int: "number", float: "number"}
    return f"json: cannot unmarshal {names[type(found)]} into Go value of type map[string]interface {{}}"


# -- nodes -------------------------------------------------------------------------------------------------------------


@check("pod networks")
def _pod_networks(path: str, texts: list[str]) -> Faults:
    networks, wrong = [], ""
    for i, text in enumerate(texts):
        try:
            if "/" not in text:
                raise ValueError(text)
            networks.append(ipaddress.ip_network(text))
        except ValueError:
            wrong = wrong or f"invalid CIDR[{i}]: <nil> (invalid CIDR address: {text})"
            yield invalid(f"{path}[{i}]", text, _NOT_A_CIDR)
    if len(texts) > 1 and wrong:
        yield Fault("Internal error", path, f"invalid PodCIDRs. failed to check with dual stack with error:{wrong}")
    if len(texts) > 1 and (len(texts) > 2 or len({one.version for one in networks}) < 2):
        yield invalid(path, texts, "may specify no more than one CIDR for each IP family")


_AVOID_PODS: Final = "scheduler.alpha.kubernetes.io/preferAvoidPods"


@check("avoided pods")
def _avoided_pods(_: str, node: Document) -> Faults:
    """Yield the faults of the controllers whose pods a node avoids, in JSON in an annotation."""
    text = (node["metadata"].get("annotations") or {}).get(_AVOID_PODS)
    if not text:
        return
    try:
        controllers = [*_avoided_controllers(text)]
    except ValueError as error:
        yield invalid("metadata.annotations.AvoidPods", _AVOID_PODS, str(error))
        return
    for i, controller in enumerate(controllers):
        at = f"metadata.annotations.{_AVOID_PODS}[{i}].PodSignature"
        if controller is None:
            yield required(at)
        elif not controller.get("controller"):
            yield invalid(f"{at}.PodController.Controller", False, "must point to a controller")


def _avoided_controllers(text: str) -> Iterator[Document | None]:
    """Yield the controllers in the annotation, None for an entry without one.

    Raises  ValueError with the text of Go's decoder
    """
    if fault := syntax_fault(text.encode()):
        raise ValueError(fault)
    path, held = "preferAvoidPods", _of_type(dict, json.loads(text), "value", "v1.AvoidPods").get("preferAvoidPods")
    place = f"struct field AvoidPods.{path}"
    for entry in _of_type(list, [] if held is None else held, place, "[]v1.PreferAvoidPodsEntry"):
        signature = _of_type(dict, entry or {}, place, "v1.PreferAvoidPodsEntry").get("podSignature") or {}
        at = f"{path}.podSignature"
        owner = _of_type(dict, signature, f"struct field PreferAvoidPodsEntry.{at}", "v1.PodSignature").get("podController")
        yield owner and _of_type(dict, owner, f"struct field PodSignature.{at}.podController", "v1.OwnerReference")


def _of_type(wanted: type[_T], value: Any, where: str, go: str) -> _T:
    if not isinstance(value, wanted):
        raise ValueError(f"json: cannot unmarshal {go_word(value)} into Go {where} of type {go}")
    return value


# -- limit ranges ------------------------------------------------------------------------------------------------------
# Standard types, the names of resources, and amounts that contradict each other.
#
# Source  kubernetes, pkg/apis/core/validation/validation.go, ValidateLimitRange

_TYPES: Final = frozenset(["Container", "PersistentVolumeClaim", "Pod"])
_OF_CONTAINERS: Final = frozenset(["Container", "Pod"])
_DEFAULTS: Final = ("default", "defaultRequest")
_PARTS: Final = ("max", "min", *_DEFAULTS, "maxLimitRequestRatio")
#: Pairs of fields of which the first must not exceed the second; the field that a fault names; and the names of both in its
#: text.
_ORDER: Final = (
    ("min", "max", "min", "min value", "max value"),
    ("min", "defaultRequest", "defaultRequest", "min value", "default request value"),
    ("defaultRequest", "max", "defaultRequest", "default request value", "max value"),
    ("defaultRequest", "default", "defaultRequest", "default request value", "default limit value"),
    ("min", "default", "default", "min value", "default value"),
    ("default", "max", "default", "default value", "max value"),
)
_ONE: Final = 10**9
#: Ratios from this value on are compared as whole numbers.
_MOST_MILLI: Final = (2**63 - 1) // 1000


@check("limits")
def _limits(path: str, limit: Document) -> Faults:
    kind = limit.get("type") or ""
    if not check_qualified_name(kind) and "/" not in kind and kind not in _TYPES:
        yield invalid(f"{path}.type", kind, "must be a standard limit type or fully qualified")
    amounts = {part: limit.get(part) or {} for part in _PARTS if not (kind == "Pod" and part in _DEFAULTS)}
    check = container_name_faults if kind in _OF_CONTAINERS else standard_name_faults
    for part, given in amounts.items():
        for name in given:
            yield from check(f"{path}.{part}[{name}]", name)
    if kind == "PersistentVolumeClaim" and "storage" not in amounts["min"] and "storage" not in amounts["max"]:
        yield required(f"{path}.limits", "either minimum or maximum storage value is required, but neither was provided")
    for name in dict.fromkeys(name for given in amounts.values() for name in given):
        yield from _amount_faults(path, name, {part: given[name] for part, given in amounts.items() if name in given})


def _amount_faults(path: str, name: str, amounts: Mapping[str, Any]) -> Faults:
    try:
        values = {part: parse(amount) for part, amount in amounts.items()}
    except QuantityError:
        return
    for low, high, at, low_words, high_words in _ORDER:
        if low in values and high in values and values[low] > values[high]:
            why = f"{low_words} {amounts[low]} is greater than {high_words} {amounts[high]}"
            yield invalid(f"{path}.{at}[{name}]", amounts[_shown(low, high, at)], why)
    yield from _ratio_faults(f"{path}.maxLimitRequestRatio[{name}]", amounts, values)
    asked, default = values.get("defaultRequest"), values.get("default")
    may_overcommit = is_native_resource(name) and not name.startswith("hugepages-")
    if not may_overcommit and asked is not None and default is not None and asked != default:
        why = f"default value {amounts['default']} must equal to defaultRequest value {amounts['defaultRequest']} in {name}"
        yield invalid(f"{path}.defaultRequest[{name}]", amounts["defaultRequest"], why)


def _shown(low: str, high: str, at: str) -> str:
    """Return the field whose amount the message shows. For a default this is the field that it contradicts."""
    if at == "default":
        return high if low == "default" else low
    return at


def _ratio_faults(path: str, amounts: Mapping[str, Any], values: Mapping[str, int]) -> Faults:
    ratio, low, high = (values.get(part) for part in ("maxLimitRequestRatio", "min", "max"))
    if ratio is None:
        return
    shown = amounts["maxLimitRequestRatio"]
    if ratio < _ONE:
        yield invalid(path, shown, f"ratio {shown} is less than 1")
    if low is None or high is None:
        return
    unit = _ONE // 1000 if max(ratio, low, high) < _MOST_MILLI * _ONE else _ONE
    low, high, scale = (-(-low // unit), -(-high // unit), 1000 if unit < _ONE else 1)
    most = high / low if low else float("inf") if high else float("nan")
    if -(-ratio // unit) / scale > most:
        yield invalid(path, shown, f"ratio {shown} is greater than max/min = {most:f}")


# -- other kinds of the core group -------------------------------------------------------------------------------------


@check("revision data")
def _revision(path: str, data: Any) -> Iterable[Fault]:
    return () if isinstance(data, dict) else (required(path, "data must be a valid JSON object"),)


check("label value")(partial(named, check=check_label_value))


@check("named finalizer")
def _finalizer(path: str, name: str) -> Faults:
    yield from named(path, name, check_qualified_name)
    yield from finalizer_faults(path, name)


@check("overhead")
def _overhead(path: str, amounts: Mapping[str, Any]) -> Faults:
    for name, amount in amounts.items():
        yield from container_name_faults(f"{path}[{name}]", name)
        with suppress(QuantityError):
            if parse(amount) < 0:
                yield invalid(f"{path}[{name}]", amount, "must be greater than or equal to 0")


@check("distinct address", of_holder=True)
def _distinct_address(path: str, one: Document, _: Document, __: Holders, seen: Seen) -> Iterable[Fault]:
    key, held = (one.get("type") or "", one.get("address") or ""), seen.setdefault(_distinct_address, set())
    if key in held:
        return (duplicate(path, {"Type": key[0], "Address": key[1]}),)
    held.add(key)
    return ()


@check("equal sources")
def _equal_sources(path: str, claim: Document) -> Iterable[Fault]:
    """Yield the fault of a claim that names two sources. kube-apiserver shows an empty object in the place of a value."""
    named = [claim.get(name) for name in ("dataSource", "dataSourceRef")]
    if (
        None in named
        or len({tuple((one or {}).get(name) or "" for name in ("apiGroup", "kind", "name")) for one in named}) == 1
    ):
        return ()
    return (invalid(path, {}, "must match dataSourceRef"),)


@check("claim size")
def _claim_size(path: str, amount: Any) -> Iterable[Fault]:
    return (invalid(path, Bare(amount), "must be a valid resource quantity"),) if parse(amount) < 0 else ()


@check("names of event")
def _names_of_event(path: str, metadata: Document) -> Faults:
    """Yield the faults of the names of an event of events.k8s.io, which are stricter than those of core/v1."""
    for name in ("generateName", "name"):
        given = metadata.get(name) or ""
        shown = f"{given[:-1]}a" if name == "generateName" and len(given) > 1 and given.endswith("-") else given
        yield from (invalid(f"{path}.{name}", given, why) for why in (check_dns1123_subdomain(shown) if given else ()))


#: Parsed quantities are in billionths.
_NANO: Final = 10**9
_RESIZES: Final = (
    "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible",
    "NodeResizePending",
)  # fmt: skip


@check("resizes of claim")
def _resizes(path: str, status: Document) -> Faults:
    """Yield the faults of how far claims are resized, and of what is allocated to them."""
    place = f"{path}.allocatedResourceStatuses"
    for name, state in sorted((status.get("allocatedResourceStatuses") or {}).items()):
        yield from _claim_resource(place, name)
        if state not in _RESIZES:
            yield unsupported(place, name, _RESIZES)
    place = f"{path}.allocatedResources"
    for name, amount in sorted((status.get("allocatedResources") or {}).items()):
        if faults := [*_claim_resource(place, name)]:
            yield from faults
        elif parse(amount) < 0:
            yield invalid(f"{place}[{name}]", -(-parse(amount) // _NANO), "must be a valid resource quantity")


def _claim_resource(path: str, name: str) -> Faults:
    if faults := check_qualified_name(name):
        yield from (invalid(path, name, why) for why in faults)
    elif is_native_resource(name) and name != "storage":
        yield unsupported(path, name, ["storage"])


@check("distinct toleration", of_holder=True)
def _distinct_toleration(path: str, one: Document, _: Document, __: Holders, seen: Seen) -> Iterable[Fault]:
    key = tuple(one.get(name) or "" for name in ("key", "operator", "value", "effect"))
    held = seen.setdefault(_distinct_toleration, set())
    if key in held:
        return (duplicate(path, one),)
    held.add(key)
    return ()


@check("event namespace", of_holder=True)
def _event_namespace(path: str, subject: str | None, event: Document, *_: Any) -> Iterable[Fault]:
    namespace, subject = event["metadata"].get("namespace") or "", subject or ""
    if event.get("eventTime"):
        is_elsewhere = not subject and namespace not in {"default", "kube-system"}
    else:
        is_elsewhere = namespace != subject and (bool(subject) or namespace != "default")
    return (invalid(path, subject, "does not match event.namespace"),) if is_elsewhere else ()


@check("event text")
def _event_text(path: str, value: str, most: int) -> Iterable[Fault]:
    return (invalid(path, "", f"can have at most {most} characters"),) if len(value.encode()) > most else ()


@check("positive amount")
def _positive_amount(path: str, amount: Any) -> Iterable[Fault]:
    try:
        return () if parse(str(amount)) > 0 else (invalid(path, str(amount), "must be positive"),)
    except QuantityError as error:
        return (invalid(path, str(amount), str(error)),)


# -- services and network policies -------------------------------------------------------------------------------------


@check("target port", of_holder=True)
def _target_port(path: str, target: int | str | None, port: Document, *_: Any) -> Faults:
    target = target or port.get("port") or 0
    if isinstance(target, str):
        yield from (invalid(path, target, why) for why in port_name_faults(target))
    else:
        yield from in_range(path, target, 1, 65535)


@check("distinct port", of_holder=True)
def _distinct_port(path: str, port: Document, _: Any, __: Holders, seen: Seen) -> Iterable[Fault]:
    protocol, number = port.get("protocol") or "", port.get("port") or 0
    held = seen.setdefault(_distinct_port, set())
    if (protocol, number) in held:
        # kube-apiserver shows the Go struct with all its fields.
        shown = {"Name": "", "Protocol": protocol, "AppProtocol": None, "Port": number, "TargetPort": 0, "NodePort": 0}
        return (duplicate(path, shown),)
    held.add((protocol, number))
    return ()


# -- autoscalers -------------------------------------------------------------------------------------------------------

#: Type of a metric → the field with its source, in the order in which they are checked.
_SOURCES: Final[Mapping[str, str]] = {
    "Object": "object", "External": "external", "Pods": "pods", "Resource": "resource",
    "ContainerResource": "containerResource",
}  # fmt: skip
#: Source → the fields of its target of which one must be set, and the text for none.
_TARGETS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "object": (("averageValue", "value"), "must set either a target value or averageValue"),
    "external": (("averageValue", "value"), "must set either a target value for metric or a per-pod target"),
    "pods": (("averageValue",), "must specify a positive target averageValue"),
    "resource": (("averageUtilization", "averageValue"), "must set either a target raw value or a target utilization"),
    "containerResource": (("averageUtilization", "averageValue"), "must set either a target raw value or a target utilization"),
}


@check("scaling to zero")
def _scaling_to_zero(path: str, spec: Document) -> Iterable[Fault]:
    if any(one.get("type") in {"External", "Object"} for one in spec.get("metrics") or ()):
        return ()
    why = "must specify at least one Object or External metric to support scaling to zero replicas"
    return (Fault("Forbidden", f"{path}.metrics", why),)


@check("metric")
def _metric(path: str, metric: Document) -> Faults:
    """Yield the faults of a metric: of its first source, of its type, and of sources that are not of the type."""
    kind = metric.get("type") or ""
    wanted, given = _SOURCES.get(kind), [name for name in _SOURCES.values() if metric.get(name) is not None]
    if not kind:
        yield required(f"{path}.type", "must specify a metric source type")
    unknown = [*one_of(f"{path}.type", kind, sorted(_SOURCES))]
    yield from unknown
    for name in given[:1]:
        yield from _source_faults(f"{path}.{name}", name, metric[name])
    if wanted is not None and wanted not in given:
        yield required(f"{path}.{wanted}", "must populate information for the given metric source")
    yield from unknown
    for name in given:
        if name != wanted and len(given) != 1:
            yield Fault("Forbidden", f"{path}.{name}", "must populate the given metric source only")


def _source_faults(path: str, name: str, source: Document) -> Faults:
    if name == "object":
        about = {**(source.get("describedObject") or {}), "@": "metric"}
        yield from RULES.faults("ScaleTarget", about, f"{path}.describedObject")
    if name in {"object", "external", "pods"}:
        metric = source.get("metric") or {}
        if not metric.get("name"):
            yield required(f"{path}.metric.name", "must specify a metric name")
        else:
            yield from named(f"{path}.metric.name", metric["name"], check_path_segment)
    elif not source.get("name"):
        yield required(f"{path}.name", "must specify a resource name")
    elif name == "containerResource":
        yield from container_name_faults(f"{path}.name", source["name"])
    if name == "containerResource" and not source.get("container"):
        yield required(f"{path}.container", "must specify a container")
    elif name == "containerResource":
        yield from named(f"{path}.container", source["container"], check_dns1123_label)
    target = source.get("target") or {}
    yield from _target_faults(f"{path}.target", target)
    names, none = _TARGETS[name]
    amounts = [one for one in names if target.get(one) is not None]
    if not amounts:
        yield required(f"{path}.target.{names[0]}", none)
    elif len(amounts) == 2 and "averageUtilization" in amounts:
        yield Fault("Forbidden", f"{path}.target.averageValue", "may not set both a target raw value and a target utilization")
    elif len(amounts) == 2 and name == "external":
        why = "may not set both a target value for metric and a per-pod target"
        yield Fault("Forbidden", f"{path}.target.value", why)


def _target_faults(path: str, target: Document) -> Faults:
    kind = target.get("type") or ""
    if not kind:
        yield required(f"{path}.type", "must specify a metric target type")
    if kind not in {"Utilization", "Value", "AverageValue"}:
        yield invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue")
    for name in ("value", "averageValue"):
        if target.get(name) is not None:
            yield from _positive_amount(f"{path}.{name}", target[name])
    if (share := target.get("averageUtilization")) is not None and share < 1:
        yield invalid(f"{path}.averageUtilization", share, "must be greater than 0")


@check("version of target", of_holder=True)
def _target_version(path: str, version: str | None, target: Document, *_: Any) -> Iterable[Fault]:
    text = version or ""
    if text.count("/") > 1:
        return (invalid(path, text, f"unexpected GroupVersion string: {text}"),)
    if "/" in text and not text.startswith("/"):
        return ()
    return () if "@" in target else (invalid(path, text, "apiVersion must specify API group"),)


@check("quantity of at least 0")
def _quantity_of_at_least_0(path: str, amount: Any) -> Faults:
    with suppress(QuantityError):
        if parse(amount) < 0:
            yield invalid(path, amount, "must be greater than or equal to 0")


# -- templates of claims -----------------------------------------------------------------------------------------------


@check("annotations")
def _annotations(path: str, given: Mapping[str, str]) -> Faults:
    return annotation_faults(path, given)


@check("claimed storage", of_holder=True)
def _claimed_storage(path: str, resources: Document | None, *_: Any) -> Faults:
    amount = ((resources or {}).get("requests") or {}).get("storage")
    if amount is None:
        yield required(f"{path}[storage]")
    else:
        with suppress(QuantityError):
            if parse(amount) <= 0:
                yield invalid(f"{path}[storage]", amount, "must be greater than zero")
