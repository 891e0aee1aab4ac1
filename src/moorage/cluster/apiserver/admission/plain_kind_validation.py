"""Validation of endpoints, config maps, secrets, nodes, runtime classes, revisions and sets, beyond what scheduling reads.

Source  kubernetes, pkg/apis/core/validation/validation.go; pkg/apis/{apps,coordination,node}/validation
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from moorage.api.names import check_dns1123_label, check_dns1123_subdomain, check_qualified_name, is_native_resource
from moorage.api.quantity import QuantityError, parse
from moorage.api.validation.faults import (
    duplicate,
    forbidden,
    in_range,
    invalid,
    labels,
    named,
    nonnegative,
    one_of,
    required,
    too_long,
    unsupported,
)
from moorage.api.validation.resources import container_name_faults, standard_name_faults
from moorage.cluster.apiserver.admission.container_validation import config_key_faults
from moorage.cluster.apiserver.admission.string_formats import NON_STANDARD_IP, has_address
from moorage.cluster.apiserver.vocabulary.records import Document
from moorage.cluster.apiserver.vocabulary.statuses import go_word, syntax_fault
from moorage.errors import Fault

Faults = Iterator[Fault]
_T = TypeVar("_T")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")


# -- endpoints ----------------------------------------------------------------------------------------------------------


def endpoints_faults(endpoints: Document) -> Faults:
    """Yield the faults of Endpoints."""
    for i, subset in enumerate(endpoints.get("subsets") or ()):
        at, ports = f"subsets[{i}]", subset.get("ports") or ()
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield required(at, "must specify `addresses` or `notReadyAddresses`")
        for part in ("addresses", "notReadyAddresses"):
            for k, address in enumerate(subset.get(part) or ()):
                yield from _endpoint_faults(f"{at}.{part}[{k}]", address)
        for k, port in enumerate(ports):
            yield from _endpoint_port_faults(f"{at}.ports[{k}]", port, needs_name=len(ports) > 1)


def _endpoint_faults(path: str, address: Document) -> Faults:
    text = address.get("ip") or ""
    if not has_address(text):
        yield invalid(f"{path}.ip", text, NON_STANDARD_IP)
    if address.get("hostname"):
        yield from named(f"{path}.hostname", address["hostname"], check_dns1123_label)
    if address.get("nodeName") is not None:
        yield from named(f"{path}.nodeName", address["nodeName"], check_dns1123_subdomain)
    if not has_address(text):
        yield invalid(f"{path}.ip", text, "must be a valid IP address")
        return
    ip = ipaddress.ip_address(text)
    for is_bad, why in (
        (ip.is_unspecified, f"may not be unspecified ({text})"),
        (ip.is_loopback, "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (ip.is_link_local and not ip.is_multicast, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (_is_local_multicast(ip), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ):
        if is_bad:
            yield invalid(f"{path}.ip", text, why)


_LOCAL_MULTICAST: Final = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))


def _is_local_multicast(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return any(ip.version == network.version and ip in network for network in _LOCAL_MULTICAST)


def _endpoint_port_faults(path: str, port: Document, *, needs_name: bool) -> Faults:
    name, protocol = port.get("name") or "", port.get("protocol", "TCP")
    if needs_name and not name:
        yield required(f"{path}.name")
    elif name:
        yield from named(f"{path}.name", name, check_dns1123_label)
    yield from in_range(f"{path}.port", port.get("port") or 0, 1, 65535)
    if not protocol:
        yield required(f"{path}.protocol")
    elif protocol not in _PROTOCOLS:
        yield unsupported(f"{path}.protocol", protocol, _PROTOCOLS)
    if port.get("appProtocol") is not None:
        yield from named(f"{path}.appProtocol", port["appProtocol"], check_qualified_name)


# -- secrets ------------------------------------------------------------------------------------------------------------

_ACCOUNT: Final = "kubernetes.io/service-account.name"
#: The keys that a type of secret must have.
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_JSON_TYPES: Final = frozenset(["kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson"])
#: Bytes of the data of a config map.
_MAX_DATA: Final = 1 << 20


def config_map_faults(config_map: Document) -> Faults:
    """Yield the faults of a config map: its keys, its size, and keys that it has twice."""
    yield from _data_faults(config_map, ("data", "binaryData"), _MAX_DATA)
    for key in (config_map.get("data") or {}).keys() & (config_map.get("binaryData") or {}).keys():
        yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")


def secret_faults(secret: Document) -> Faults:
    """Yield the faults of a secret: its keys, its size, and the keys that its type demands."""
    yield from _data_faults(secret, ("data",), 2 * _MAX_DATA)
    yield from _secret_type_faults(secret)


def _data_faults(document: Document, parts: tuple[str, ...], most: int) -> Faults:
    size = 0
    for part in parts:
        for key, value in (document.get(part) or {}).items():
            size += len(value)
            yield from (invalid(f"{part}[{key}]", key, why) for why in config_key_faults(key))
    if size > most:
        yield too_long("", _MAX_DATA)


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


# -- nodes, revisions, sets -------------------------------------------------------------------------------------------


def node_faults(node: Document) -> Faults:
    """Yield the faults of a node's pod networks, and of the annotation that names pods to avoid."""
    yield from _avoided_pods_faults((node["metadata"].get("annotations") or {}).get(_AVOID_PODS))
    texts = (node.get("spec") or {}).get("podCIDRs") or []
    networks = []
    for i, text in enumerate(texts):
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError:
            yield invalid(f"spec.podCIDRs[{i}]", text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")
    if len(texts) > 1 and (len(texts) > 2 or len({one.version for one in networks}) < 2):
        yield invalid("spec.podCIDRs", texts, "may specify no more than one CIDR for each IP family")


_AVOID_PODS: Final = "scheduler.alpha.kubernetes.io/preferAvoidPods"


def _avoided_pods_faults(text: str | None) -> Faults:
    """Yield the faults of the controllers whose pods a node avoids, in JSON."""
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


def stateful_set_faults(found: Document) -> Faults:
    """Yield the faults of a StatefulSet's claims and service."""
    spec = found.get("spec") or {}
    for name in ("whenDeleted", "whenScaled"):
        kept = (spec.get("persistentVolumeClaimRetentionPolicy") or {}).get(name)
        yield from one_of(f"spec.persistentVolumeClaimRetentionPolicy.{name}", kept, ("Retain", "Delete"))
    if service := spec.get("serviceName"):
        yield from named("spec.serviceName", service, check_dns1123_label)
    for i, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        name = (claim.get("metadata") or {}).get("name") or ""
        yield from named(f"spec.template.spec.volumes[{i}].name", name, check_dns1123_label) if name else ()


def revision_faults(revision: Document) -> Faults:
    """Yield the faults of a ControllerRevision."""
    yield from nonnegative("revision", revision.get("revision"))
    data = revision.get("data")
    if data is None:
        yield required("data", "data is mandatory")
    elif not isinstance(data, dict):
        yield required("data", "data must be a valid JSON object")


def controller_faults(controller: Document) -> Faults:
    """Yield the faults of a ReplicationController."""
    spec = controller.get("spec") or {}
    yield from nonnegative("spec.minReadySeconds", spec.get("minReadySeconds"))
    if not spec.get("selector"):
        yield required("spec.selector")
    pod = (spec.get("template") or {}).get("spec") or {}
    if pod.get("activeDeadlineSeconds") is not None:
        why = "activeDeadlineSeconds in ReplicationController is not Supported"
        yield forbidden("spec.template.spec.activeDeadlineSeconds", why)


def runtime_class_faults(found: Document) -> Faults:
    """Yield the faults of a RuntimeClass."""
    handler = found.get("handler") or ""
    if not handler:
        yield required("handler")
    else:
        yield from named("handler", handler, check_dns1123_label)
    for name, amount in ((found.get("overhead") or {}).get("podFixed") or {}).items():
        at = f"overhead.limits[{name}]"
        yield from named(at, name, check_qualified_name)
        if _is_negative(amount):
            yield invalid(at, amount, "must be greater than or equal to 0")
    scheduling = found.get("scheduling") or {}
    yield from labels("scheduling.nodeSelector", scheduling.get("nodeSelector") or {})
    yield from _toleration_faults("scheduling.tolerations", scheduling.get("tolerations") or ())


def _toleration_faults(path: str, tolerations: Any) -> Faults:
    seen: set[tuple[Any, ...]] = set()
    for i, one in enumerate(tolerations):
        if one.get("key"):
            yield from named(f"{path}[{i}].key", one["key"], check_qualified_name)
        operator = one.get("operator") or "Equal"
        if operator not in _OPERATORS:
            yield unsupported(f"{path}[{i}].operator", operator, _OPERATORS)
        if operator == "Exists" and one.get("value"):
            yield invalid(f"{path}[{i}].operator", one["value"], "value must be empty when `operator` is 'Exists'")
        if one.get("effect") and one["effect"] not in _EFFECTS:
            yield unsupported(f"{path}[{i}].effect", one["effect"], _EFFECTS)
        key = tuple(one.get(name) or "" for name in ("key", "operator", "value", "effect"))
        if key in seen:
            yield duplicate(f"{path}[{i}]", one)
        seen.add(key)


_OPERATORS: Final = ("Equal", "Exists")
_EFFECTS: Final = ("NoExecute", "NoSchedule", "PreferNoSchedule")


def _is_negative(amount: Any) -> bool:
    try:
        return parse(amount) < 0
    except QuantityError:
        return False


# -- ingress validation ------------------------------------------------------------------------------------------------
# Validation of ingresses.
#
# No ingress controller runs here. Ingresses are served because manifests contain them next to workloads, and because
# ``kubectl apply --prune`` lists them.
#
# Source  kubernetes, pkg/apis/networking/validation/validation.go

_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")


def ingress_faults(ingress: Document) -> Iterator[Fault]:
    """Yield the faults of a defaulted ingress."""
    spec = ingress.get("spec") or {}
    rules, default = spec.get("rules") or [], spec.get("defaultBackend")
    if not rules and default is None:
        yield Fault("Invalid value", "spec", "either `defaultBackend` or `rules` must be specified")
    if default is not None:
        yield from _backend("spec.defaultBackend", default)
    for i, rule in enumerate(rules):
        yield from _rule(f"spec.rules[{i}]", rule)
    for i, tls in enumerate(spec.get("tls") or ()):
        for k, host in enumerate(tls.get("hosts") or ()):
            for why in check_dns1123_subdomain(host.removeprefix("*.")):
                yield Fault("Invalid value", f"spec.tls[{i}].hosts[{k}]", why, host)
    name = spec.get("ingressClassName")
    for why in check_dns1123_subdomain(name) if name is not None else ():
        yield Fault("Invalid value", "spec.ingressClassName", why, name)


def _rule(path: str, rule: Document) -> Iterator[Fault]:
    host, http = rule.get("host") or "", rule.get("http")
    if has_address(host):
        yield Fault("Invalid value", f"{path}.host", "must be a DNS name, not an IP address", host)
    # A host may be a wildcard.
    for why in check_dns1123_subdomain(host.removeprefix("*.")) if host else ():
        yield Fault("Invalid value", f"{path}.host", why, host)
    if http is None:
        return
    if not http.get("paths"):
        yield Fault("Required value", f"{path}.http.paths")
    for i, one in enumerate(http.get("paths") or ()):
        yield from _path(f"{path}.http.paths[{i}]", one)


def _path(path: str, one: Document) -> Iterator[Fault]:
    kind, text = one.get("pathType"), one.get("path") or ""
    if kind is None:
        yield Fault("Required value", f"{path}.pathType", "pathType must be specified")
        return
    if kind not in _PATH_TYPES:
        supported = ", ".join(f'"{name}"' for name in _PATH_TYPES)
        yield Fault("Unsupported value", f"{path}.pathType", f"supported values: {supported}", kind)
    elif not text.startswith("/") and (text or kind != "ImplementationSpecific"):
        yield Fault("Invalid value", f"{path}.path", "must be an absolute path", text)
    yield from _backend(f"{path}.backend", one.get("backend") or {})


def _backend(path: str, backend: Document) -> Iterator[Fault]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        yield Fault("Invalid value", path, "cannot set both resource and service backends")
    elif service is None and resource is None:
        yield Fault("Required value", path, "resource or service backend is required")
    if service is None or resource is not None:
        return
    name, port = service.get("name") or "", service.get("port") or {}
    if not name:
        yield Fault("Required value", f"{path}.service.name")
    for why in check_dns1123_label(name) if name else ():
        yield Fault("Invalid value", f"{path}.service.name", why, name)
    number = port.get("number") or 0
    if port.get("name") and number:
        yield Fault("Invalid value", path, "cannot set both port name & port number", "")
    elif not port.get("name") and not number:
        yield Fault("Required value", path, "port name or number is required")
    elif number and not 1 <= number <= 65535:
        yield Fault("Invalid value", f"{path}.service.port.number", "must be between 1 and 65535, inclusive", number)


# -- event validation --------------------------------------------------------------------------------------------------
# Validation of events. Once an event is created through ``events.k8s.io``, only its series may change.
#
# An event with an ``eventTime`` is validated by the rules of ``events.k8s.io`` in either API; an event created through that
# API must have one. Faults name the fields of the core type, as in kube-apiserver.
#
# Source  kubernetes, pkg/apis/core/validation/events.go

_MOST: Final = (("reportingInstance", 128), ("action", 128), ("reason", 128))
_MOST_NOTE: Final = 1024
_UNSET: Final = (
    ("deprecatedFirstTimestamp", "firstTimestamp"), ("deprecatedLastTimestamp", "lastTimestamp"), ("deprecatedCount", "count"),
    ("deprecatedSource", "source"),
)  # fmt: skip
#: Immutable fields, under their names in ``events.k8s.io`` and in the core API.
_FIXED: Final = (
    ("regarding", "involvedObject"), ("reason", "reason"), ("note", "message"), ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"), ("deprecatedLastTimestamp", "lastTimestamp"), ("deprecatedCount", "count"),
    ("type", "type"), ("eventTime", "eventTime"), ("action", "action"), ("related", "related"),
    ("reportingController", "reportingController"), ("reportingInstance", "reportingInstance"),
)  # fmt: skip


def _is_core(event: Document) -> bool:
    return "/" not in str(event.get("apiVersion", "v1"))


def event_faults(event: Document) -> Iterator[Fault]:
    """Yield the faults of an event of either API."""
    is_core = _is_core(event)
    subject: Any = event.get("involvedObject" if is_core else "regarding") or {}
    namespace, subject_namespace = event["metadata"].get("namespace") or "", subject.get("namespace") or ""
    elsewhere = Fault("Invalid value", "involvedObject.namespace", "does not match event.namespace", subject_namespace)
    if not event.get("eventTime"):
        if namespace != subject_namespace and (subject_namespace or namespace != "default"):
            yield elsewhere
        return
    if not subject_namespace and namespace not in {"default", "kube-system"}:
        yield elsewhere
    name = "reportingComponent" if is_core else "reportingController"
    reporter = event.get(name) or ""
    if not reporter:
        yield Fault("Required value", name)
    else:
        for why in check_qualified_name(reporter):
            yield Fault("Invalid value", name, why, reporter)
    for field, most in _MOST:
        if not event.get(field):
            yield Fault("Required value", field)
        yield from _too_long(field, event.get(field), most)
    yield from _too_long("message", event.get("message" if is_core else "note"), _MOST_NOTE)


def _too_long(field: str, value: str | None, most: int) -> Iterator[Fault]:
    if len((value or "").encode()) > most:
        yield Fault("Invalid value", field, f"can have at most {most} characters", "")


def new_event_faults(event: Document) -> Iterator[Fault]:
    """Yield the additional faults of a new event of ``events.k8s.io``."""
    if _is_core(event):
        return
    yield from _series_faults(event)
    if not event.get("eventTime"):
        yield Fault("Required value", "eventTime")
    if event.get("type") not in {"Normal", "Warning"}:
        yield Fault("Invalid value", "type", f"has invalid value: {event.get('type', '')}", "")
    for field, name in _UNSET:
        if event.get(field):
            yield Fault("Invalid value", name, "needs to be unset", "")


def _series_faults(event: Document) -> Iterator[Fault]:
    series = event.get("series")
    if series is None:
        return
    if series.get("count", 0) < 2:
        yield Fault("Invalid value", "series.count", "should be at least 2", "")
    if not series.get("lastObservedTime"):
        yield Fault("Required value", "series.lastObservedTime")


def event_change_faults(old: Document, new: Document) -> Iterator[Fault]:
    """Yield changes of immutable fields in an update through ``events.k8s.io``; the core API allows any change."""
    if _is_core(new):
        return
    if old.get("series") != new.get("series"):
        yield from _series_faults(new)
    for field, name in _FIXED:
        if (old.get(field) or None) != (new.get(field) or None):  # Go does not distinguish empty from absent
            yield Fault("Invalid value", name, "field is immutable", new.get(field))


# -- limit range validation --------------------------------------------------------------------------------------------
# Validation of LimitRanges: standard types, the names of resources, and amounts that contradict each other.
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


def limit_faults(found: Document) -> Faults:
    """Yield the faults of the limits of a LimitRange, beyond what admission reads."""
    for i, limit in enumerate((found.get("spec") or {}).get("limits") or ()):
        kind, path = limit.get("type") or "", f"spec.limits[{i}]"
        if not check_qualified_name(kind) and "/" not in kind and kind not in _TYPES:
            yield invalid(f"{path}.type", kind, "must be a standard limit type or fully qualified")
        yield from _limit_faults(path, kind, limit)


def _limit_faults(path: str, kind: str, limit: Document) -> Faults:
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
    if not _may_overcommit(name) and asked is not None and default is not None and asked != default:
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


def _may_overcommit(name: str) -> bool:
    return is_native_resource(name) and not name.startswith("hugepages-")
