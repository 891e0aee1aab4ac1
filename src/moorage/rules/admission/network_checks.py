"""Checks of addresses, ports, ingresses and endpoint slices that tables of rules name.

Source  kubernetes, pkg/apis/{core,discovery,networking}/validation; apimachinery, pkg/util/validation
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from moorage.api.documents.served_kinds import Document
from moorage.api.names import check_dns1123_label, check_dns1123_subdomain
from moorage.api.validation.faults import Faults, invalid, required
from moorage.api.validation.pods import port_name_faults
from moorage.api.validation.rule_checks import NO_ADDRESS, domain_path_faults, endpoint_address_faults, parse_address
from moorage.api.validation.rule_tables import Holders, check
from moorage.errors import Fault

_NOT_A_RANGE: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"

# -- addresses and ranges ----------------------------------------------------------------------------------------------


@check("canonical address")
def canonical_address_faults(path: str, text: str) -> Iterable[Fault]:
    """Yield the fault of an address that is not written as RFC 5952 does."""
    address, why = parse_address(text)
    if address is None or why:
        return (invalid(path, text, why or NO_ADDRESS),)
    return () if str(address) == text else (invalid(path, text, f"must be in canonical form ({json.dumps(str(address))})"),)


_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _parse_range(text: str) -> tuple[_Network | None, str]:
    """Return a range of addresses, and why it is not accepted as such, or ""."""
    base, slash, length = text.partition("/")
    address, why = parse_address(base)
    if not slash or address is None or not length.isascii() or not length.isdigit() or int(length) > address.max_prefixlen:
        return None, _NOT_A_RANGE
    network = ipaddress.ip_network(f"{address}/{int(length)}", strict=False)
    if why == "must not have leading 0s" or str(int(length)) != length:
        return network, "must not have leading 0s in IP or prefix length"
    if why:
        return network, "must not have an IPv4-mapped IPv6 address"
    return network, "" if network.network_address == address else "must not have bits set beyond the prefix length"


@check("network range")
def _range(path: str, text: str) -> Iterable[Fault]:
    _, why = _parse_range(text)
    return (invalid(path, text, why),) if why else ()


def interface_address_faults(path: str, text: str) -> Iterable[Fault]:
    """Yield the fault of a text that is no address with the length of its network, in canonical form."""
    base, slash, length = text.partition("/")
    address, _ = parse_address(base)
    if not slash or address is None or not length.isdigit() or int(length) > address.max_prefixlen:
        return (invalid(path, text, "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"),)
    whole = f"{address}/{int(length)}"
    return () if whole == text else (invalid(path, text, f"must be in canonical form ({json.dumps(whole)})"),)


@check("canonical ranges")
def _ranges(path: str, texts: Sequence[str]) -> Faults:
    """Yield the faults of the ranges of a service network: at most one of each family, in canonical form."""
    if len(texts) > 2:
        yield invalid(path, {"CIDRs": texts}, "may only hold up to 2 values")
        return
    found = []
    for i, text in enumerate(texts):
        network, why = _parse_range(text)
        found.append(network)
        if why:
            yield invalid(f"{path}[{i}]", text, why)
        elif str(network) != text:
            yield invalid(f"{path}[{i}]", text, f"must be in canonical form ({json.dumps(str(network))})")
    if len(found) == 2 and found[0] and found[1] and found[0].version == found[1].version:
        why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        yield invalid(path, texts, why)


@check("excepted ranges")
def _excepted(path: str, block: Document) -> Faults:
    """Yield the faults of the ranges that are excepted from the range of an IP block."""
    whole, _ = _parse_range(block.get("cidr") or "")
    if whole is None:
        return
    for i, text in enumerate(block.get("except") or ()):
        network, why = _parse_range(text or "")
        if why:
            yield invalid(f"{path}.except[{i}]", text or "", why)
        if network is None:
            continue
        is_below = network.version == whole.version and network.network_address in whole
        if not is_below or whole.prefixlen >= network.prefixlen:
            yield invalid(f"{path}.except[{i}]", text, "must be a strict subset of `cidr`")


# -- endpoint slices ---------------------------------------------------------------------------------------------------


@check("slice address")
def _slice_address(path: str, text: str, kind: str) -> Faults:
    """Yield the faults of an endpoint's address in a slice of a type: IPv4, IPv6 or FQDN."""
    if kind == "FQDN":
        yield from _full_name_faults(path, text)
        return
    address, why = parse_address(text)
    if address is None or why:
        yield invalid(path, text, why or NO_ADDRESS)
        return
    if kind == "IPv6" and str(address) != text:
        yield invalid(path, text, f"must be in canonical form ({json.dumps(str(address))})")
        return
    if f"IPv{address.version}" != kind:
        yield invalid(path.rpartition("[")[0], text, f"must be an {kind} address")
    yield from endpoint_address_faults(path, text)


def _full_name_faults(path: str, text: str) -> Faults:
    name = text.removesuffix(".")
    if not text:
        yield required(path)
    elif faults := check_dns1123_subdomain(name):
        yield invalid(path, name, ",".join(faults))
    elif "." not in name:
        yield invalid(path, name, "should be a domain with at least two segments separated by dots")
    else:
        wrong = next((label for label in name.split(".") if check_dns1123_label(label)), None)
        if wrong is not None:
            yield invalid(path, wrong, ",".join(check_dns1123_label(wrong)))


# -- ingresses ---------------------------------------------------------------------------------------------------------

_WILDCARD: Final = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case "
    "alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for "
    r"validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@check("host name")
def _host_name(path: str, value: str) -> Faults:
    """Yield the faults of a host, which may be a wildcard."""
    if "*" not in value:
        yield from (invalid(path, value, why) for why in check_dns1123_subdomain(value))
    elif not value.startswith("*.") or check_dns1123_subdomain(value[2:]):
        yield invalid(path, value, _WILDCARD)


@check("exact path")
def _exact_path(path: str, value: str) -> Faults:
    for part in ("//", "/./", "/../", "%2f", "%2F"):
        if part in value:
            yield invalid(path, value, f"must not contain '{part}'")
    for part in ("/..", "/."):
        if value.endswith(part):
            yield invalid(path, value, f"cannot end with '{part}'")


@check("port name")
def _port_name(path: str, value: str) -> Faults:
    return (invalid(path, value, why) for why in port_name_faults(value))


@check("domain and path")
def _domain_and_path(path: str, value: str) -> Faults:

    if not value:
        yield required(path)
    else:
        yield from domain_path_faults(path, value)


@check("policy port")
def _policy_port(path: str, given: Document) -> Faults:
    port, end = given.get("port"), given.get("endPort")
    protocol = given.get("protocol")
    if protocol is not None and protocol not in {"TCP", "UDP", "SCTP"}:
        yield Fault("Unsupported value", f"{path}.protocol", 'supported values: "TCP", "UDP", "SCTP"', protocol)
    if isinstance(port, int):
        if not 1 <= port <= 65535:
            yield invalid(f"{path}.port", port, "must be between 1 and 65535, inclusive")
        if end is not None and end < port:
            yield invalid(f"{path}.endPort", end, "must be greater than or equal to `port`")
        if end is not None and not 1 <= end <= 65535:
            yield invalid(f"{path}.endPort", end, "must be between 1 and 65535, inclusive")
        return
    if end is not None:
        of = "not specified" if port is None else "non-numeric"
        yield invalid(f"{path}.endPort", end, f"may not be specified when `port` is {of}")
    if port is not None:
        yield from (invalid(f"{path}.port", port, why) for why in port_name_faults(port))


@check("policy types")
def _policy_types(path: str, types: Sequence[str]) -> Faults:
    if len(types) > 2:
        yield invalid(path, types, "may not specify more than two policyTypes")
        return
    for i, one in enumerate(types):
        if one not in {"Ingress", "Egress"}:
            yield Fault("Unsupported value", f"{path}[{i}]", 'supported values: "Ingress", "Egress"', one or "")


@check("class of ingress", of_holder=True)
def _ingress_class(_: str, name: Any, ingress: Document, __: Holders, *___: Any) -> Iterable[Fault]:
    annotation = "kubernetes.io/ingress.class"
    given = (ingress["metadata"].get("annotations") or {}).get(annotation)
    if given is None or name is None or given == name:
        return ()
    return (invalid(f"annotations.{annotation}", given, "must match `ingressClassName` when both are specified"),)
