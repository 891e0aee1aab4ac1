"""Validation of endpoints, secrets, nodes, runtime classes, revisions and sets, beyond what scheduling reads.

Source  kubernetes, pkg/apis/core/validation/validation.go; pkg/apis/{apps,coordination,node}/validation
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from moorage.api.names import check_dns1123_label, check_dns1123_subdomain, check_qualified_name
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
    unsupported,
)
from moorage.apiserver.admission.field_checks import NON_STANDARD_IP, has_address
from moorage.apiserver.vocabulary.go_messages import go_word, syntax_fault
from moorage.apiserver.vocabulary.records import Document
from moorage.errors import Fault

__all__ = [
    "controller_faults", "endpoints_faults", "node_faults", "revision_faults", "runtime_class_faults",
    "secret_type_faults", "stateful_set_faults",
]  # fmt: skip

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


def secret_type_faults(secret: Document) -> Faults:
    """Yield the faults of a secret whose type demands certain keys."""
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
