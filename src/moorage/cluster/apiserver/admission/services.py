"""Services: their validation, warnings about fields without effect, and the allocation of cluster IPs and node ports.

Nothing listens on them. They exist because clients show them, pass them on, and rely on every service having its own. The
allocator derives them from the service's uid, so the same operations give the same addresses. A service may request any
address, inside the service range or not, as manifests and dumps contain addresses of other clusters.

Source  kubernetes, pkg/registry/core/service/storage/{alloc,storage}.go; strategy.go, dropTypeDependentFields
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any, Final

from moorage.api.names import check_dns1123_label, check_dns1123_subdomain, check_label_value, check_qualified_name
from moorage.api.validation.pods import port_name_faults
from moorage.cluster.apiserver.vocabulary.records import Document, Record
from moorage.errors import Fault

# -- service validation ------------------------------------------------------------------------------------------------
# Validation of services, except their cluster IP and node ports: a manifest that passes here also passes kube-apiserver.
#
# Source  kubernetes, pkg/apis/core/validation/validation.go, validateService

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


# -- service warnings --------------------------------------------------------------------------------------------------
# Warnings about fields of a service that have no effect.
#
# Source  kubernetes, pkg/api/service/warnings.go


def service_warnings(service: Document) -> Iterator[str]:
    """Yield the warnings about a valid service."""
    spec = service.get("spec") or {}
    kind, is_headless = spec.get("type", "ClusterIP"), spec.get("clusterIP") == "None"
    if kind == "ClusterIP" and is_headless:
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if spec.get("externalIPs"):
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity", "None") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    elif spec.get("externalIPs") and kind != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if kind == "ExternalName" and spec.get("externalIPs"):
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if kind != "ExternalName" and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


# -- service addresses -------------------------------------------------------------------------------------------------

_FIRST: Final = int(IPv4Address("10.96.0.0"))
_COUNT: Final = 1 << 20
_PORTS: Final = range(30000, 32768)
_WITH_CLUSTER_IP: Final = frozenset(["ClusterIP", "LoadBalancer", "NodePort"])
_WITH_NODE_PORTS: Final = frozenset(["LoadBalancer", "NodePort"])
#: Fields of services with a cluster IP, and fields of services with node ports.
_CLUSTER_IP_FIELDS: Final = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy")
_NODE_PORT_FIELDS: Final = ("externalTrafficPolicy",)
_CHECK_PORT: Final = "healthCheckNodePort"
_NOT_AN_ADDRESS: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def keep_addresses(old: Document, new: Document) -> None:
    """Copy allocated addresses and ports from the old version of a service, if the new one lacks them, in place."""
    before, after = old["spec"], new.get("spec")
    if not isinstance(after, dict):
        return
    if _type(before) in _WITH_CLUSTER_IP and _type(after) in _WITH_CLUSTER_IP:
        if not after.get("clusterIP"):
            after.pop("clusterIPs", None)
        for name in ("clusterIP", "clusterIPs"):
            if not after.get(name) and before.get(name):
                after[name] = before[name]
    if _type(before) in _WITH_NODE_PORTS and _type(after) in _WITH_NODE_PORTS:
        _keep_ports(before.get("ports") or [], [one for one in after.get("ports") or () if isinstance(one, dict)])
    if _has_health_check(before) and _has_health_check(after) and not after.get(_CHECK_PORT) and before.get(_CHECK_PORT):
        after[_CHECK_PORT] = before[_CHECK_PORT]


def _keep_ports(before: list[Any], after: list[Document]) -> None:
    held = {one.get("name", ""): one.get("nodePort") for one in before}
    used = {one.get("nodePort") for one in after}
    for one in after:
        port = held.get(one.get("name", ""))
        if not one.get("nodePort") and port and port not in used:
            one["nodePort"] = port
            used.add(port)


def drop_unused_fields(old: Document, new: Document) -> None:
    """Drop fields that the new type of a service does not use, in place, unless the client changed them."""
    before, after = old["spec"], new.get("spec")
    if not isinstance(after, dict):
        return
    dropped: list[str] = []
    if _type(before) in _WITH_CLUSTER_IP and _type(after) not in _WITH_CLUSTER_IP:
        dropped += _CLUSTER_IP_FIELDS
    if _type(before) in _WITH_NODE_PORTS and _type(after) not in _WITH_NODE_PORTS:
        dropped += _NODE_PORT_FIELDS
        if _node_ports(after) == _node_ports(before):
            for one in after.get("ports") or ():
                one.pop("nodePort", None)
    if _has_health_check(before) and not _has_health_check(after):
        dropped.append(_CHECK_PORT)
    if _type(before) == "LoadBalancer" != _type(after):
        dropped += ("allocateLoadBalancerNodePorts", "loadBalancerClass")
    for name in dropped:
        if name in after and after[name] == before.get(name):
            del after[name]


def allocate_addresses(old: Document | None, new: Document, others: Callable[[], Iterable[Record]]) -> Iterator[Fault]:
    """Allocate a service's cluster IP and node ports, in place, and yield the faults of requested ones.

    ``old`` is None for a new service; ``others`` returns all services, including this one
    """
    spec, uid = new["spec"], str(new["metadata"].get("uid", ""))
    if _type(spec) in _WITH_CLUSTER_IP:
        yield from _allocate_cluster_ip(old, new, others)
    elif spec.get("clusterIP") or spec.get("clusterIPs"):
        yield Fault("Forbidden", "spec.clusterIPs", "may not be set for ExternalName services")
    ports = [*enumerate(spec.get("ports") or ())]
    if _type(spec) not in _WITH_NODE_PORTS:
        for i, one in ports:
            if one.get("nodePort"):
                why = f"may not be used when `type` is '{_type(spec)}'"
                yield Fault("Forbidden", f"spec.ports[{i}].nodePort", why)
    elif old is None or _node_ports(old["spec"]) != _node_ports(spec) or not all(_node_ports(spec)):
        yield from _allocate_node_ports(spec, uid, set(_ports_of(others(), uid)))
    yield from _immutable_faults({} if old is None else old["spec"], spec)
    if _has_health_check(spec) and not spec.get(_CHECK_PORT):
        used = {number for number, _ in _ports_of(others(), uid)} | {*_node_ports(spec)}
        spec[_CHECK_PORT] = next(port for port in _candidates(f"{uid}/check", _PORTS[0], len(_PORTS)) if port not in used)


def _immutable_faults(before: Document, after: Document) -> Iterator[Fault]:
    """Yield changes of a load balancer's class, and of the health check port of a service that keeps one."""
    name = after.get("loadBalancerClass")
    if _type(before) == _type(after) == "LoadBalancer" and before.get("loadBalancerClass") != name:
        yield Fault("Invalid value", "spec.loadBalancerClass", "may not change once set", name)
    if _has_health_check(before) and _has_health_check(after) and before.get(_CHECK_PORT) != after.get(_CHECK_PORT):
        yield Fault("Forbidden", f"spec.{_CHECK_PORT}", "field is immutable")


def _allocate_cluster_ip(old: Document | None, new: Document, others: Callable[[], Iterable[Record]]) -> Iterator[Fault]:
    spec, uid = new["spec"], str(new["metadata"].get("uid", ""))
    held, requested = (old["spec"].get("clusterIP") or "") if old is not None else "", spec.get("clusterIP") or ""
    if held and requested != held and _type(old["spec"] if old is not None else {}) in _WITH_CLUSTER_IP:
        yield Fault("Invalid value", "spec.clusterIPs[0]", "may not change once set", [requested])
        return
    if not requested and spec.get("clusterIPs"):
        yield Fault("Invalid value", "spec.clusterIPs", "must be empty when `clusterIP` is not specified", spec["clusterIPs"])
        return
    if requested == "None" and _type(spec) != "ClusterIP":
        why = f"may not be set to 'None' for {_type(spec)} services"
        yield Fault("Invalid value", "spec.clusterIPs[0]", why, requested)
        return
    if requested != held or not requested:
        taken = {record.fields["spec.clusterIP"] for record in others()}
        if requested and requested != "None":
            yield from _address_faults(requested, taken)
        spec["clusterIP"] = requested or _free_address(uid, taken)
    _set_families(spec)


def _address_faults(requested: str, taken: set[str]) -> Iterator[Fault]:
    try:
        ip_address(requested)
    except ValueError:
        yield Fault("Invalid value", "spec.clusterIPs[0]", _NOT_AN_ADDRESS, requested)
        return
    if requested in taken:
        why = f"failed to allocate IP {requested}: provided IP is already allocated"
        yield Fault("Invalid value", "spec.clusterIPs", why, [requested])


def _set_families(spec: Document) -> None:
    address = spec["clusterIP"]
    if not spec.get("clusterIPs") or spec["clusterIPs"][0] != address:
        spec["clusterIPs"] = [address]
    if address == "None" and not spec.get("selector"):
        # The controller that writes the endpoints of a service without a selector determines their families.
        families, policy = ["IPv4", "IPv6"], "RequireDualStack"
    else:
        families, policy = ["IPv6" if ":" in address else "IPv4"], "SingleStack"
    if not spec.get("ipFamilies"):
        spec["ipFamilies"] = families
    if not spec.get("ipFamilyPolicy"):
        spec["ipFamilyPolicy"] = policy


def _node_ports(spec: Document) -> list[int]:
    return [one.get("nodePort") or 0 for one in spec.get("ports") or ()]


def _ports_of(others: Iterable[Record], uid: str) -> Iterator[tuple[int, str]]:
    """Yield the node ports and protocols of other services."""
    for record in others:
        if record.fields["spec.type"] in _WITH_NODE_PORTS:
            other = record.document()
            if other["metadata"]["uid"] != uid:
                for one in other["spec"].get("ports") or ():
                    if one.get("nodePort"):
                        yield one["nodePort"], one.get("protocol", "TCP")
                if other["spec"].get(_CHECK_PORT):
                    yield other["spec"][_CHECK_PORT], "TCP"


def _allocate_node_ports(spec: Document, uid: str, used: set[tuple[int, str]]) -> Iterator[Fault]:
    for i, one in enumerate(spec.get("ports") or ()):
        number, protocol = one.get("nodePort") or 0, one.get("protocol", "TCP")
        if number and number not in _PORTS:
            why = f"provided port is not in the valid range. The range of valid ports is {_PORTS[0]}-{_PORTS[-1]}"
            yield Fault("Invalid value", f"spec.ports[{i}].nodePort", why, number)
        elif number and (number, protocol) in used:
            yield Fault("Invalid value", f"spec.ports[{i}].nodePort", "provided port is already allocated", number)
        used.add((number, protocol))
    if spec.get("allocateLoadBalancerNodePorts") is False:
        return
    numbers = {number for number, _ in used}
    for i, one in enumerate(spec.get("ports") or ()):
        if not one.get("nodePort"):
            number = next((port for port in _candidates(f"{uid}/{i}", _PORTS[0], len(_PORTS)) if port not in numbers), 0)
            if not number:
                yield Fault("Invalid value", f"spec.ports[{i}].nodePort", "range is full", number)
                return
            one["nodePort"] = number
            numbers.add(number)


def _free_address(uid: str, taken: set[str]) -> str:
    candidates = (str(IPv4Address(number)) for number in _candidates(uid, _FIRST + 2, _COUNT - 3))
    return next(address for address in candidates if address not in taken)


def _candidates(name: str, first: int, count: int) -> Iterator[int]:
    """Yield every number of a range once, starting at one derived from ``name``."""
    start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % count
    return (first + (start + i) % count for i in range(count))


def _has_health_check(spec: Mapping[str, Any]) -> bool:
    """Return True if load balancers use the service's health check node port."""
    return _type(spec) == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _type(spec: Mapping[str, Any]) -> str:
    return str(spec.get("type") or "ClusterIP")
