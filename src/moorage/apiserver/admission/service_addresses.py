"""Addresses of services and their ports on nodes: given out when a service needs one, kept while it does, taken back after.

Nothing listens on them. They are there because clients show them, hand them on, and count on no two services having
the same. What is given is drawn from the service's uid, so it is the same whenever the same is done. A service may ask
for any address, of this cluster's range or not: manifests and dumps bring those of the cluster they are from.

Source  kubernetes, pkg/registry/core/service/storage/{alloc,storage}.go; strategy.go, dropTypeDependentFields
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, ip_address
from typing import Any, Final

from moorage.apiserver.vocabulary.records import Document, Record
from moorage.errors import Fault

__all__ = ["drop_unneeded", "give_addresses", "keep_addresses"]

_FIRST: Final = int(IPv4Address("10.96.0.0"))
_COUNT: Final = 1 << 20
_PORTS: Final = range(30000, 32768)
_INSIDE: Final = frozenset(["ClusterIP", "LoadBalancer", "NodePort"])
_EXPOSED: Final = frozenset(["LoadBalancer", "NodePort"])
#: What a service has for its address, and what it has for being reached from outside.
_OF_ADDRESS: Final = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy")
_OF_EXPOSURE: Final = ("externalTrafficPolicy",)
_CHECK_PORT: Final = "healthCheckNodePort"
_NOT_AN_ADDRESS: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def keep_addresses(old: Document, new: Document) -> None:
    """Give the next version of a service, in place, what it had and was not sent: whoever replaces it need not know."""
    before, after = old["spec"], new.get("spec")
    if not isinstance(after, dict):
        return
    if _type(before) in _INSIDE and _type(after) in _INSIDE:
        if not after.get("clusterIP"):
            after.pop("clusterIPs", None)
        for name in ("clusterIP", "clusterIPs"):
            if not after.get(name) and before.get(name):
                after[name] = before[name]
    if _type(before) in _EXPOSED and _type(after) in _EXPOSED:
        _keep_ports(before.get("ports") or [], [one for one in after.get("ports") or () if isinstance(one, dict)])
    if _is_checked(before) and _is_checked(after) and not after.get(_CHECK_PORT) and before.get(_CHECK_PORT):
        after[_CHECK_PORT] = before[_CHECK_PORT]


def _keep_ports(before: list[Any], after: list[Document]) -> None:
    held = {one.get("name", ""): one.get("nodePort") for one in before}
    used = {one.get("nodePort") for one in after}
    for one in after:
        port = held.get(one.get("name", ""))
        if not one.get("nodePort") and port and port not in used:
            one["nodePort"] = port
            used.add(port)


def drop_unneeded(old: Document, new: Document) -> None:
    """Take from the next version of a service, in place, what its type has no use for any more, unless it was changed."""
    before, after = old["spec"], new.get("spec")
    if not isinstance(after, dict):
        return
    dropped: list[str] = []
    if _type(before) in _INSIDE and _type(after) not in _INSIDE:
        dropped += _OF_ADDRESS
    if _type(before) in _EXPOSED and _type(after) not in _EXPOSED:
        dropped += _OF_EXPOSURE
        if _node_ports(after) == _node_ports(before):
            for one in after.get("ports") or ():
                one.pop("nodePort", None)
    if _is_checked(before) and not _is_checked(after):
        dropped.append(_CHECK_PORT)
    if _type(before) == "LoadBalancer" != _type(after):
        dropped += ("allocateLoadBalancerNodePorts", "loadBalancerClass")
    for name in dropped:
        if name in after and after[name] == before.get(name):
            del after[name]


def give_addresses(old: Document | None, new: Document, others: Callable[[], Iterable[Record]]) -> Iterator[Fault]:
    """Give a service, in place, the address and the ports of nodes that it needs, and find what it may not have.

    ``old`` is its version before, None for a new one; ``others`` finds all services, itself included
    """
    spec, uid = new["spec"], str(new["metadata"].get("uid", ""))
    if _type(spec) in _INSIDE:
        yield from _give_address(old, new, others)
    elif spec.get("clusterIP") or spec.get("clusterIPs"):
        yield Fault("Forbidden", "spec.clusterIPs", "may not be set for ExternalName services")
    ports = [*enumerate(spec.get("ports") or ())]
    if _type(spec) not in _EXPOSED:
        for i, one in ports:
            if one.get("nodePort"):
                why = f"may not be used when `type` is '{_type(spec)}'"
                yield Fault("Forbidden", f"spec.ports[{i}].nodePort", why)
    elif old is None or _node_ports(old["spec"]) != _node_ports(spec) or not all(_node_ports(spec)):
        yield from _give_ports(spec, uid, set(_ports_of(others(), uid)))
    yield from _for_good({} if old is None else old["spec"], spec)
    if _is_checked(spec) and not spec.get(_CHECK_PORT):
        used = {number for number, _ in _ports_of(others(), uid)} | {*_node_ports(spec)}
        spec[_CHECK_PORT] = next(port for port in _drawn(f"{uid}/check", _PORTS[0], len(_PORTS)) if port not in used)


def _for_good(before: Document, after: Document) -> Iterator[Fault]:
    """Find what a service changes that it keeps as long as it is balanced, and its balancer checked."""
    name = after.get("loadBalancerClass")
    if _type(before) == _type(after) == "LoadBalancer" and before.get("loadBalancerClass") != name:
        yield Fault("Invalid value", "spec.loadBalancerClass", "may not change once set", name)
    if _is_checked(before) and _is_checked(after) and before.get(_CHECK_PORT) != after.get(_CHECK_PORT):
        yield Fault("Forbidden", f"spec.{_CHECK_PORT}", "field is immutable")


def _give_address(old: Document | None, new: Document, others: Callable[[], Iterable[Record]]) -> Iterator[Fault]:
    spec, uid = new["spec"], str(new["metadata"].get("uid", ""))
    held, asked = (old["spec"].get("clusterIP") or "") if old is not None else "", spec.get("clusterIP") or ""
    if held and asked != held and _type(old["spec"] if old is not None else {}) in _INSIDE:
        yield Fault("Invalid value", "spec.clusterIPs[0]", "may not change once set", [asked])
        return
    if not asked and spec.get("clusterIPs"):
        yield Fault("Invalid value", "spec.clusterIPs", "must be empty when `clusterIP` is not specified", spec["clusterIPs"])
        return
    if asked == "None" and _type(spec) != "ClusterIP":
        why = f"may not be set to 'None' for {_type(spec)} services"
        yield Fault("Invalid value", "spec.clusterIPs[0]", why, asked)
        return
    if asked != held or not asked:
        taken = {record.fields["spec.clusterIP"] for record in others()}
        if asked and asked != "None":
            yield from _address_faults(asked, taken)
        spec["clusterIP"] = asked or _free_address(uid, taken)
    _settle_families(spec)


def _address_faults(asked: str, taken: set[str]) -> Iterator[Fault]:
    try:
        ip_address(asked)
    except ValueError:
        yield Fault("Invalid value", "spec.clusterIPs[0]", _NOT_AN_ADDRESS, asked)
        return
    if asked in taken:
        why = f"failed to allocate IP {asked}: provided IP is already allocated"
        yield Fault("Invalid value", "spec.clusterIPs", why, [asked])


def _settle_families(spec: Document) -> None:
    address = spec["clusterIP"]
    if not spec.get("clusterIPs") or spec["clusterIPs"][0] != address:
        spec["clusterIPs"] = [address]
    if address == "None" and not spec.get("selector"):
        # Whoever fills in its endpoints knows their families.
        usual, policy = ["IPv4", "IPv6"], "RequireDualStack"
    else:
        usual, policy = ["IPv6" if ":" in address else "IPv4"], "SingleStack"
    if not spec.get("ipFamilies"):
        spec["ipFamilies"] = usual
    if not spec.get("ipFamilyPolicy"):
        spec["ipFamilyPolicy"] = policy


def _node_ports(spec: Document) -> list[int]:
    return [one.get("nodePort") or 0 for one in spec.get("ports") or ()]


def _ports_of(others: Iterable[Record], uid: str) -> Iterator[tuple[int, str]]:
    """Yield the ports of nodes that other services have, with their protocols."""
    for record in others:
        if record.fields["spec.type"] in _EXPOSED:
            other = record.document()
            if other["metadata"]["uid"] != uid:
                for one in other["spec"].get("ports") or ():
                    if one.get("nodePort"):
                        yield one["nodePort"], one.get("protocol", "TCP")
                if other["spec"].get(_CHECK_PORT):
                    yield other["spec"][_CHECK_PORT], "TCP"


def _give_ports(spec: Document, uid: str, used: set[tuple[int, str]]) -> Iterator[Fault]:
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
            number = next((port for port in _drawn(f"{uid}/{i}", _PORTS[0], len(_PORTS)) if port not in numbers), 0)
            if not number:
                yield Fault("Invalid value", f"spec.ports[{i}].nodePort", "range is full", number)
                return
            one["nodePort"] = number
            numbers.add(number)


def _free_address(uid: str, taken: set[str]) -> str:
    drawn = (str(IPv4Address(number)) for number in _drawn(uid, _FIRST + 2, _COUNT - 3))
    return next(address for address in drawn if address not in taken)


def _drawn(name: str, first: int, count: int) -> Iterator[int]:
    """Yield every number of a range once, beginning with one that belongs to the name."""
    start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % count
    return (first + (start + i) % count for i in range(count))


def _is_checked(spec: Mapping[str, Any]) -> bool:
    """Return True where a balancer asks each node whether a pod of the service is there."""
    return _type(spec) == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _type(spec: Mapping[str, Any]) -> str:
    return str(spec.get("type") or "ClusterIP")
