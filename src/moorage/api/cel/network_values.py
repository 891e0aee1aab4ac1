"""The values of Kubernetes' types for CEL: URLs, addresses, networks and named formats."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

__all__ = ["CelAddress", "CelNetwork", "Format", "Url"]


@dataclass(frozen=True, slots=True)
class Url:
    """An absolute URL, taken apart. Two are equal if their texts are."""

    text: str
    scheme: str
    host: str
    hostname: str
    port: str
    path: str
    query: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class CelAddress:
    """An IP address."""

    ip: ipaddress.IPv4Address | ipaddress.IPv6Address

    def __str__(self) -> str:
        return str(self.ip)


@dataclass(frozen=True, slots=True)
class CelNetwork:
    """An address with the length of its network's prefix; bits after the prefix may be set."""

    ip: ipaddress.IPv4Address | ipaddress.IPv6Address
    bits: int

    @property
    def masked(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        """The network without the bits after its prefix."""
        return _masked(self.ip, self.bits)

    def __str__(self) -> str:
        return f"{self.ip}/{self.bits}"


@lru_cache(256)
def _masked(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, bits: int) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(f"{ip}/{bits}", strict=False)


@dataclass(frozen=True, slots=True)
class Format:
    """A named format. ``check`` returns what is wrong with a text; ``pattern_size`` is the size of its pattern, for costs."""

    name: str
    check: Callable[[str], list[str]] = field(compare=False)
    pattern_size: int
