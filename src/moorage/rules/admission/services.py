"""Services: warnings about fields without effect, and the allocation of cluster IPs and node ports.

Nothing listens on them. They exist because clients show them, pass them on, and rely on every service having its own. The
allocator derives them from the service's uid, so the same operations give the same addresses. A service may request any
address, inside the service range or not, as manifests and dumps contain addresses of other clusters.

Source  kubernetes, pkg/registry/core/service/storage/{alloc,storage}.go; strategy.go, dropTypeDependentFields
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network, ip_address
from typing import Any, Final

from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import Document
from moorage.api.validation.faults import duplicate, one_of
from moorage.api.validation.rule_checks import address_faults
from moorage.errors import Fault

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

#: The label of the IPAddress objects that belong to services, and its value.
MANAGED_BY: Final = "ipaddress.kubernetes.io/managed-by"
ALLOCATOR: Final = "ipallocator.k8s.io"
#: The range of service addresses.
ADDRESSES: Final = IPv4Network("10.96.0.0/12")
_FIRST: Final = int(ADDRESSES.network_address)
_COUNT: Final = ADDRESSES.num_addresses
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
        ports = [one for one in after.get("ports") or () if isinstance(one, dict)]
        held = {one.get("name", ""): one.get("nodePort") for one in before.get("ports") or ()}
        used = {one.get("nodePort") for one in ports}
        for one in ports:
            port = held.get(one.get("name", ""))
            if not one.get("nodePort") and port and port not in used:
                one["nodePort"] = port
                used.add(port)
    if _has_health_check(before) and _has_health_check(after) and not after.get(_CHECK_PORT) and before.get(_CHECK_PORT):
        after[_CHECK_PORT] = before[_CHECK_PORT]


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


_ALL_PORTS: Final = range(-(2**31), 2**31)
_FAMILIES: Final = ("IPv4", "IPv6")
_POLICIES: Final = ("PreferDualStack", "RequireDualStack", "SingleStack")


def requested_address_faults(old: Document | None, service: Document) -> Iterator[Fault]:
    """Yield the faults of the addresses and families that a client asks for, which are reported before all others.

    Source  kubernetes, pkg/registry/core/service/storage/alloc.go (initIPFamilyFields)
    """
    spec = service.get("spec")
    if not isinstance(spec, dict) or _type(spec) == "ExternalName":
        return
    first, every = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    if old is not None and first and every == old["spec"].get("clusterIPs") and first != old["spec"].get("clusterIP"):
        every = [first]  # a client that knows only of one address
    if first and every and every[0] != first:
        yield Fault("Invalid value", "spec.clusterIPs", "first value must match `clusterIP`", every)
    elif every and not first:
        yield Fault("Invalid value", "spec.clusterIPs", "must be empty when `clusterIP` is not specified", every)
    families = spec.get("ipFamilies") or []
    for i, family in enumerate(families):
        yield from one_of(f"spec.ipFamilies[{i}]", family, _FAMILIES)
        yield from (duplicate(f"spec.ipFamilies[{i}]", family),) if family in families[:i] else ()
    policy = spec.get("ipFamilyPolicy")
    yield from one_of("spec.ipFamilyPolicy", policy, _POLICIES)
    for i, one in enumerate(every or ([first] if first else [])):
        if not (one == "None" and i == 0):
            yield from address_faults(f"spec.clusterIPs[{i}]", one)
    if policy == "RequireDualStack" and not (first == "None" and not spec.get("selector")):
        yield Fault("Invalid value", "spec.ipFamilyPolicy", "this cluster is not configured for dual-stack services", policy)


def allocate_addresses(
    old: Document | None, new: Document, others: Callable[[], Iterable[Record]],
    addresses: Callable[[], Iterable[Record]] = tuple, *, dry_run: bool = False,
) -> Iterator[Fault]:  # fmt: skip
    """Allocate a service's cluster IP and node ports, in place, and yield the faults of requested ones.

    ``old`` is None for a new service; ``others`` returns all services, including this one, and ``addresses`` all objects that
    take an address (IPAddress). A dry run does not check the range of requested ports, as in kube-apiserver.
    """
    spec, uid = new["spec"], str(new["metadata"].get("uid", ""))
    if _type(spec) in _WITH_CLUSTER_IP:
        yield from _allocate_cluster_ip(old, new, others, addresses)
    elif spec.get("clusterIP") or spec.get("clusterIPs"):
        yield Fault("Forbidden", "spec.clusterIPs", "may not be set for ExternalName services")
    ports = [*enumerate(spec.get("ports") or ())]
    if _type(spec) not in _WITH_NODE_PORTS:
        for i, one in ports:
            if one.get("nodePort"):
                why = f"may not be used when `type` is '{_type(spec)}'"
                yield Fault("Forbidden", f"spec.ports[{i}].nodePort", why)
    elif old is None or _node_ports(old["spec"]) != _node_ports(spec) or not all(_node_ports(spec)):
        yield from _allocate_node_ports(spec, uid, set(_ports_of(others(), uid)), _ALL_PORTS if dry_run else _PORTS)
    before, name = {} if old is None else old["spec"], spec.get("loadBalancerClass")
    if _type(before) == _type(spec) == "LoadBalancer" and before.get("loadBalancerClass") != name:
        yield Fault("Invalid value", "spec.loadBalancerClass", "may not change once set", name)
    if _has_health_check(before) and _has_health_check(spec) and before.get(_CHECK_PORT) != spec.get(_CHECK_PORT):
        yield Fault("Forbidden", f"spec.{_CHECK_PORT}", "field is immutable")
    if _has_health_check(spec) and not spec.get(_CHECK_PORT):
        used = {number for number, _ in _ports_of(others(), uid)} | {*_node_ports(spec)}
        spec[_CHECK_PORT] = next(port for port in _candidates(f"{uid}/check", _PORTS[0], len(_PORTS)) if port not in used)


def _allocate_cluster_ip(
    old: Document | None, new: Document, others: Callable[[], Iterable[Record]], addresses: Callable[[], Iterable[Record]]
) -> Iterator[Fault]:
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
        taken = {record.fields["spec.clusterIP"] for record in others()} | {*_taken_by_others(new, addresses())}
        if requested and requested != "None":
            yield from _address_faults(requested, taken)
        free = (str(IPv4Address(number)) for number in _candidates(uid, _FIRST + 2, _COUNT - 3))
        spec["clusterIP"] = requested or next(address for address in free if address not in taken)
    _set_families(spec, old["spec"] if old is not None else {})


def _taken_by_others(service: Document, addresses: Iterable[Record]) -> Iterator[str]:
    """Yield the addresses that objects of clients take; those of services are known by the services."""
    metadata = service["metadata"]
    for record in addresses:
        if record.labels.get(MANAGED_BY) == ALLOCATOR:
            continue
        parent = record.document()["spec"].get("parentRef") or {}
        if (parent.get("namespace"), parent.get("name")) != (metadata.get("namespace"), metadata.get("name")):
            yield record.name


def _address_faults(requested: str, taken: set[str]) -> Iterator[Fault]:
    try:
        ip_address(requested)
    except ValueError:
        yield Fault("Invalid value", "spec.clusterIPs[0]", _NOT_AN_ADDRESS, requested)
        return
    if requested in taken:
        why = f"failed to allocate IP {requested}: provided IP is already allocated"
        yield Fault("Invalid value", "spec.clusterIPs", why, [requested])


def _set_families(spec: Document, old: Document) -> None:
    address = spec["clusterIP"]
    if not spec.get("clusterIPs") or spec["clusterIPs"][0] != address:
        spec["clusterIPs"] = [address]
    if address == "None" and not spec.get("selector"):
        # The controller that writes the endpoints of a service without a selector determines their families.
        families, policy = ["IPv4", "IPv6"], "RequireDualStack"
    else:
        families, policy = ["IPv6" if ":" in address else "IPv4"], "SingleStack"
    if not spec.get("ipFamilies"):
        spec["ipFamilies"] = old.get("ipFamilies") or families
    if not spec.get("ipFamilyPolicy"):
        spec["ipFamilyPolicy"] = old.get("ipFamilyPolicy") or policy


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


def _allocate_node_ports(spec: Document, uid: str, used: set[tuple[int, str]], allowed: range) -> Iterator[Fault]:
    for i, one in enumerate(spec.get("ports") or ()):
        number, protocol = one.get("nodePort") or 0, one.get("protocol", "TCP")
        if number and number not in allowed:
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


def _candidates(name: str, first: int, count: int) -> Iterator[int]:
    """Yield every number of a range once, starting at one derived from ``name``."""
    start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % count
    return (first + (start + i) % count for i in range(count))


def _has_health_check(spec: Mapping[str, Any]) -> bool:
    """Return True if load balancers use the service's health check node port."""
    return _type(spec) == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _type(spec: Mapping[str, Any]) -> str:
    return str(spec.get("type") or "ClusterIP")
