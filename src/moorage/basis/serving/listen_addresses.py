"""The address that the server listens on, and the host names that it accepts.

The default is loopback. To admit clients on other machines, the user names an address of this one (``--bind-address``); the
server certificate then covers that address, and requests may name it in their Host header. Other names of the server
(behind a forwarded port, or a DNS name) are given explicitly (``--tls-san``).

Source  kube-apiserver, --bind-address; k3s, --tls-san
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

from moorage.api.names import check_dns1123_subdomain
from moorage.errors import ConfigError

#: Addresses reserved for documentation. Nothing is sent there; the kernel only selects the source address.
_DOCUMENTATION_ADDRESSES: Final = {4: "192.0.2.1", 6: "2001:db8::1"}


class Address(NamedTuple):
    """``listens`` is the listen address; ``names`` are names and addresses of the server in addition to the local ones."""

    listens: str
    names: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Return True if other machines can connect."""
        return not is_loopback(self.listens)

    @property
    def dial_address(self) -> str:
        """The address at which clients on this machine reach the server."""
        given = ip_address(self.listens)
        if given.is_unspecified:
            return "127.0.0.1" if given.version == 4 else "::1"
        return self.listens

    def url(self, port: int) -> str:
        """Return the URL at which clients on this machine reach the server."""
        return f"https://{_in_url(self.dial_address)}:{port}"

    @property
    def hosts(self) -> Iterable[str]:
        """The names in the form of ``Host`` headers."""
        return map(_in_url, self.names)


def cannot_listen(option: str, host: str, port: int, error: OSError) -> ConfigError:
    """Return the error for a port, given with an option, that the system does not let us listen on."""
    why = os.strerror(error.errno) if error.errno else str(error)
    return ConfigError(f"{option}: {host}:{port} cannot be listened on: {why}; 0 selects a free port")


def is_loopback(address: str) -> bool:
    """Return True for an address that only this machine can reach."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def address_of(bind: str, names: Sequence[str] = ()) -> Address:
    """Return the listen address from the flags. An unspecified address (``0.0.0.0``) adds this machine's host name and
    address.

    Raises  ConfigError for an invalid address, or for a name that a certificate cannot contain
    """
    try:
        listens = ip_address(bind)
    except ValueError:
        raise ConfigError(
            f"--bind-address: {bind!r} is not an IP address; use 127.0.0.1, 0.0.0.0 for all, or one of this machine's"
        ) from None
    found = [*(_this_machine(listens) if listens.is_unspecified else [str(listens)]), *map(_checked, names)]
    return Address(str(listens), tuple(dict.fromkeys(found)))


LOOPBACK: Final = Address("127.0.0.1")


def _checked(name: str) -> str:
    with suppress(ValueError):
        return str(ip_address(name.strip("[]")))
    if check_dns1123_subdomain(name.lower()):
        raise ConfigError(f"--tls-san: {name!r} is neither a DNS name nor an IP address")
    return name.lower()


def _this_machine(listens: IPv4Address | IPv6Address) -> list[str]:
    """Return this machine's host name and the source address of its outgoing connections."""
    hostname = socket.gethostname().lower()
    found = [] if check_dns1123_subdomain(hostname) else [hostname]
    family = socket.AF_INET if listens.version == 4 else socket.AF_INET6
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((_DOCUMENTATION_ADDRESSES[listens.version], 9))
        found.append(str(probe.getsockname()[0]))
    return found


def _in_url(name: str) -> str:
    return f"[{name}]" if ":" in name else name
