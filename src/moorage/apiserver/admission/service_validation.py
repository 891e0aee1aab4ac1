"""Validation of services, except their cluster IP and node ports: a manifest that passes here also passes kube-apiserver.

Source  kubernetes, pkg/apis/core/validation/validation.go, validateService
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from ipaddress import ip_address, ip_network
from typing import Any, Final

from moorage.api.names import (
    check_dns1123_label,
    check_dns1123_subdomain,
    check_label_value,
    check_qualified_name,
)
from moorage.api.validation.pods import port_name_faults
from moorage.apiserver.vocabulary.records import Document
from moorage.errors import Fault

__all__ = ["service_faults"]

_PORT_RANGE: Final = "must be between 1 and 65535, inclusive"
_LOAD_BALANCER_ONLY: Final = "may only be used when `type` is 'LoadBalancer'"
_LOCAL_LOAD_BALANCER_ONLY: Final = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
_MOST_SECONDS: Final = 86400
_POLICIES: Final = ("Cluster", "Local")
#: Fields with a fixed set of values, in the order in which faults are reported.
_CHOICES: Final = (
    ("sessionAffinity", ("ClientIP", "None")),
    ("ipFamilyPolicy", ("PreferDualStack", "RequireDualStack", "SingleStack")),
    ("type", ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")),
    ("internalTrafficPolicy", _POLICIES),
    ("trafficDistribution", ("PreferClose", "PreferSameZone", "PreferSameNode")),
)
_LOCAL_MULTICAST: Final = (ip_network("224.0.0.0/24"), ip_network("ff02::/16"))


def service_faults(service: Document) -> Iterator[Fault]:
    """Yield the faults of a defaulted service."""
    name, spec = service["metadata"].get("name") or "", service.get("spec") or {}
    for why in check_dns1123_label(name) if name else ():
        yield Fault("Invalid value", "metadata.name", why, name)
    ports = spec.get("ports") or []
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        yield Fault("Required value", "spec.ports")
    if spec.get("type") == "ExternalName":
        yield from _external_name(spec)
    names: set[str] = set()
    for i, port in enumerate(ports):
        yield from _port(f"spec.ports[{i}]", port, names, is_alone=len(ports) == 1)
    for key, value in (spec.get("selector") or {}).items():
        for why in check_qualified_name(key):
            yield Fault("Invalid value", "spec.selector", why, key)
        for why in check_label_value(value or ""):
            yield Fault("Invalid value", "spec.selector", why, value)
    yield from _affinity(spec)
    for i, family in enumerate(spec.get("ipFamilies") or ()):
        yield from _one_of(f"spec.ipFamilies[{i}]", family, ("IPv4", "IPv6"))
    for field, supported in _CHOICES:
        yield from _one_of(f"spec.{field}", spec.get(field), supported)
    for i, address in enumerate(spec.get("externalIPs") or ()):
        yield from _external_address(f"spec.externalIPs[{i}]", address)
    yield from _same_ports(ports)
    yield from _load_balancer(spec)
    yield from _external_traffic(spec)


def _external_name(spec: Document) -> Iterator[Fault]:
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        yield Fault("Required value", "spec.externalName")
    for why in check_dns1123_subdomain(name) if name else ():
        yield Fault("Invalid value", "spec.externalName", why, name)


def _port(path: str, port: Document, names: set[str], *, is_alone: bool) -> Iterator[Fault]:
    name, number = port.get("name") or "", port.get("port") or 0
    target: str | int = port.get("targetPort") or number
    if not name and not is_alone:
        yield Fault("Required value", f"{path}.name")
    for why in check_dns1123_label(name) if name else ():
        yield Fault("Invalid value", f"{path}.name", why, name)
    if name and name in names:
        yield Fault("Duplicate value", f"{path}.name", "", name)
    names.add(name)
    if not 1 <= number <= 65535:
        yield Fault("Invalid value", f"{path}.port", _PORT_RANGE, number)
    yield from _one_of(f"{path}.protocol", port.get("protocol"), ("SCTP", "TCP", "UDP"))
    wrong = port_name_faults(target) if isinstance(target, str) else () if 1 <= target <= 65535 else (_PORT_RANGE,)
    for why in wrong:
        yield Fault("Invalid value", f"{path}.targetPort", why, target)
    for why in check_qualified_name(port["appProtocol"]) if port.get("appProtocol") is not None else ():
        yield Fault("Invalid value", f"{path}.appProtocol", why, port["appProtocol"])


def _same_ports(ports: list[Document]) -> Iterator[Fault]:
    seen: set[tuple[str, int]] = set()
    for i, port in enumerate(ports):
        protocol, number = port.get("protocol") or "", port.get("port") or 0
        if (protocol, number) in seen:
            # kube-apiserver shows the Go struct with all its fields.
            shown = {"Name": "", "Protocol": protocol, "AppProtocol": None, "Port": number, "TargetPort": 0, "NodePort": 0}
            yield Fault("Duplicate value", f"spec.ports[{i}]", "", shown)
        seen.add((protocol, number))


def _affinity(spec: Document) -> Iterator[Fault]:
    if spec.get("sessionAffinity") != "ClientIP":
        return
    path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
    seconds = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
    if seconds is None:
        yield Fault("Required value", path, "when session affinity type is ClientIP")
    elif not 0 < seconds <= _MOST_SECONDS:
        yield Fault("Invalid value", path, f"must be greater than 0 and less than {_MOST_SECONDS}", seconds)


def _external_address(path: str, text: str) -> Iterator[Fault]:
    try:
        address = ip_address(text)
    except ValueError:
        yield Fault("Invalid value", path, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)", text)
        return
    for is_faulty, why in (
        (address.is_unspecified, f"may not be unspecified ({text})"),
        (address.is_loopback, "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (address.is_link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (
            any(address in one for one in _LOCAL_MULTICAST),
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    ):
        if is_faulty:
            yield Fault("Invalid value", path, why, text)


def _load_balancer(spec: Document) -> Iterator[Fault]:
    is_load_balancer = spec.get("type") == "LoadBalancer"
    ranges, at = spec.get("loadBalancerSourceRanges") or [], "spec.LoadBalancerSourceRanges"
    if ranges and not is_load_balancer:
        yield Fault("Forbidden", at, _LOAD_BALANCER_ONLY)
    for i, text in enumerate(ranges):
        if not _is_range(text.strip()):
            why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            yield Fault("Invalid value", f"{at}[{i}]", why, text.strip())
    if spec.get("allocateLoadBalancerNodePorts") is not None and not is_load_balancer:
        yield Fault("Forbidden", "spec.allocateLoadBalancerNodePorts", _LOAD_BALANCER_ONLY)
    name = spec.get("loadBalancerClass")
    if name is not None and not is_load_balancer:
        yield Fault("Forbidden", "spec.loadBalancerClass", _LOAD_BALANCER_ONLY)
    elif name is not None:
        for why in check_qualified_name(name):
            yield Fault("Invalid value", "spec.loadBalancerClass", why, name)


def _is_range(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _external_traffic(spec: Document) -> Iterator[Fault]:
    kind, policy, port = spec.get("type"), spec.get("externalTrafficPolicy"), spec.get("healthCheckNodePort") or 0
    is_reachable = kind in {"LoadBalancer", "NodePort"} or (kind == "ClusterIP" and spec.get("externalIPs"))
    if is_reachable:
        yield from _one_of("spec.externalTrafficPolicy", policy, _POLICIES)
    elif policy:
        yield Fault("Invalid value", "spec.externalTrafficPolicy", "may only be set for externally-accessible services", policy)
    if port and not (kind == "LoadBalancer" and policy == "Local"):
        yield Fault("Invalid value", "spec.healthCheckNodePort", _LOCAL_LOAD_BALANCER_ONLY, port)


def _one_of(path: str, value: Any, supported: Collection[str]) -> Iterator[Fault]:
    if value is not None and value not in supported:
        names = ", ".join(f'"{name}"' for name in supported)
        yield Fault("Unsupported value", path, f"supported values: {names}", value)
