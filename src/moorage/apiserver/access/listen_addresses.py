"""Where the server listens, and by which names it may be called.

Loopback needs no asking for. Who wants other machines to come names an address of this one; the server's certificate is then
good for that address, and requests may name it as their host. What else the server is called (behind a port that is
forwarded, or a name of its own) has to be said.

Source  kube-apiserver, --bind-address; k3s, --tls-san
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

from moorage.api.names import check_dns1123_subdomain
from moorage.errors import ConfigError

__all__ = ["LOOPBACK", "Address", "address_of", "is_loopback"]

#: Of the range for documentation: nothing is sent there, the kernel only says from where it would be.
_ELSEWHERE: Final = {4: "192.0.2.1", 6: "2001:db8::1"}


class Address(NamedTuple):
    """``listens`` takes connections; ``names`` are names and addresses the server answers to besides the local ones."""

    listens: str
    names: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Return True if other machines can come."""
        return not is_loopback(self.listens)

    @property
    def dialled(self) -> str:
        """The address at which clients on this machine find the server."""
        given = ip_address(self.listens)
        if given.is_unspecified:
            return "127.0.0.1" if given.version == 4 else "::1"
        return self.listens

    def url(self, port: int) -> str:
        """Return where clients on this machine find the server."""
        return f"https://{_in_url(self.dialled)}:{port}"

    @property
    def hosts(self) -> Iterable[str]:
        """The names as ``Host`` headers have them."""
        return map(_in_url, self.names)


def is_loopback(address: str) -> bool:
    """Return True for an address that only this machine can reach."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def address_of(bind: str, names: Sequence[str] = ()) -> Address:
    """Return where to listen, from the flags. All addresses (``0.0.0.0``) bring along what this machine is known to be called.

    Raises  ConfigError for what is no address, and for names that no certificate can have
    """
    try:
        listens = ip_address(bind)
    except ValueError:
        raise ConfigError(
            f"--bind-address: {bind!r} is no IP address; use 127.0.0.1, 0.0.0.0 for all, or one of this machine's"
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
    """Return this machine's host name, and the address it would come from elsewhere."""
    called = socket.gethostname().lower()
    found = [] if check_dns1123_subdomain(called) else [called]
    family = socket.AF_INET if listens.version == 4 else socket.AF_INET6
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((_ELSEWHERE[listens.version], 9))
        found.append(str(probe.getsockname()[0]))
    return found


def _in_url(name: str) -> str:
    return f"[{name}]" if ":" in name else name
