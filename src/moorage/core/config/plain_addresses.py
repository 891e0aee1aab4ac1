"""The addresses at which kube-scheduler 1.19 to 1.22 serves health and metrics over plain HTTP, in v1beta1 or v1beta2.

An absent or invalid address is the default one; an absent host means all interfaces, and an absent port the default port.
The resulting address must be an IP address and a port.

Source  kube-scheduler 1.21, apis/config/v1beta1/defaults.go; apimachinery, pkg/util/validation, IsValidSocketAddr
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from moorage.core.config.configuration import Configuration
from moorage.errors import Fault

DEFAULT_HOST: Final = "0.0.0.0"  # noqa: S104 as upstream serves it
DEFAULT_PORT: Final = 10251
_MOST_PORT: Final = 65535


class Addresses(NamedTuple):
    """Host and port of health and of metrics; "" serves nothing."""

    healthz: str = f"{DEFAULT_HOST}:{DEFAULT_PORT}"
    metrics: str = f"{DEFAULT_HOST}:{DEFAULT_PORT}"


def plain_addresses(document: Mapping[str, Any]) -> Addresses:
    """Return the defaulted addresses of a valid document."""
    return Addresses(_completed(document.get("healthzBindAddress")), _completed(document.get("metricsBindAddress")))


def _completed(address: str | None) -> str:
    if address is None:
        return Addresses().healthz
    parts = split_host_port(address)
    if parts is not None:
        host, port = parts
        return join_host_port(host or DEFAULT_HOST, port)
    return join_host_port(address, str(DEFAULT_PORT)) if is_ip(address) else Addresses().healthz


def socket_faults(addresses: Addresses) -> Iterator[Fault]:
    """Yield the faults of defaulted addresses."""
    for field, address in zip(("healthzBindAddress", "metricsBindAddress"), addresses, strict=True):
        host, port = split_host_port(address) or ("", "")
        if not port.isdecimal() or not 0 < int(port) <= _MOST_PORT:
            yield Fault("Invalid value", field, "must be between 1 and 65535, inclusive", address)
        if not is_ip(host):
            yield Fault("Invalid value", field, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)", address)


def address_faults(given: Configuration, version: str, *, is_of_1_22: bool) -> list[Fault]:
    """Return a fault for each invalid address of a document; those of v1beta1 are defaulted first.

    ``is_of_1_22``: 1.22 reads it, which defaults the addresses of v1beta2 that it can read
    """
    addresses = {"healthzBindAddress": given.healthz_bind_address, "metricsBindAddress": given.metrics_bind_address}
    if version == "v1beta1":
        return list(socket_faults(plain_addresses(addresses)))
    faults = _address_faults(addresses)
    if version != "v1beta2" or not is_of_1_22:
        return faults
    known = {field: one for field, one in addresses.items() if one is not None and (split_host_port(one) or is_ip(one))}
    return [*(fault for fault in faults if fault.field not in known), *socket_faults(plain_addresses(known))]


def _address_faults(given: Mapping[str, str | None]) -> list[Fault]:
    text = "must be a valid socket address format, (e.g. 0.0.0.0:10254 or [::]:10254)"
    return [
        Fault("Invalid value", field, text, address)
        for field, address in given.items()
        if address is not None and not _is_address(address)
    ]


def _is_address(address: str) -> bool:
    """Return True for host and port, ``:port``, or an IP address."""
    host, colon, port = address.rpartition(":")
    if is_ip(address):
        return True
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    return bool(colon) and port.isdecimal() and 0 < int(port) < 2**16 and (not host or is_ip(host))


def split_host_port(address: str) -> tuple[str, str] | None:
    """Return host and port, either of which may be empty; None if there is no port or an IPv6 host lacks brackets."""
    host, colon, port = address.rpartition(":")
    if not colon:
        return None
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        return None if "[" in host or "]" in host else (host, port)
    return None if any(one in host for one in ":[]") or any(one in port for one in "[]") else (host, port)


def join_host_port(host: str, port: str) -> str:
    """Return an address, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_ip(text: str) -> bool:
    """Return True for an IPv4 or IPv6 address without brackets."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
