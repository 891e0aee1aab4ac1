"""The Kubernetes extensions of CEL for URLs, IP addresses and networks, and named formats.

Source  apiserver/pkg/cel/library/urls.go, ip.go, cidr.go, format.go; Go's net/netip and net/url
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote

from moorage.api.cel.bounds import MAX_PARSED, EvalError, check_parsed
from moorage.api.cel.declarations import Cost, converts, reading
from moorage.api.cel.functions.times import timestamp_of
from moorage.api.cel.values import NONE, CelAddress, CelNetwork, Format, Map, Optional, Url, Value
from moorage.api.names import (
    check_dns1035_label,
    check_dns1123_label,
    check_dns1123_subdomain,
    check_label_value,
    check_qualified_name,
)

#: How much of a text that is far too long an error quotes.
_SHOWN: Final = 100

_Ip: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


# -- URLs --------------------------------------------------------------------------------------------------------------

_URL: Final = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?P<rest>//(?P<authority>[^/?#]*))?(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?", re.DOTALL,
)  # fmt: skip
_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.%A-Za-z-]*\]|[^\[\]:<>\"\\^`{|} ]*)(?::(?P<port>\d*))?")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
#: What Go leaves as it is in a path.
_IN_PATHS: Final = "$&+,/:;=@-_.~!'()*[]%"


class _UrlError(ValueError):
    """A text is no absolute URL."""


def _parsed(text: str) -> Url:
    if not text:
        raise _UrlError('parse "": empty url')
    check_parsed(text)
    shown = f'parse "{text}": '
    if any(ord(char) < 0x20 or char == "\x7f" for char in text):
        raise _UrlError(f"{shown}net/url: invalid control character in URL")
    found = _URL.fullmatch(text)
    assert found is not None
    scheme, authority, path = found["scheme"] or "", found["authority"] or "", found["path"]
    if not scheme and not text.startswith("/"):
        raise _UrlError(f"{shown}invalid URI for request")
    if scheme and not found["rest"] and not path.startswith("/"):
        raise _UrlError(f"{shown}invalid URI for request")
    bad = _BAD_ESCAPE.search(path)
    if bad is not None:
        raise _UrlError(f'{shown}invalid URL escape "{path[bad.start() : bad.start() + 3]}"')
    host = _HOST.fullmatch(authority.rpartition("@")[2])
    if host is None:
        raise _UrlError(f"{shown}invalid character in host name")
    port = host["port"] or ""
    return Url(text, scheme.lower(), authority.rpartition("@")[2], host["name"].strip("[]"), port, path, found["query"] or "")


def _url(text: str) -> Url:
    try:
        return _parsed(text)
    except _UrlError as error:
        raise EvalError(f"URL parse error during conversion from string: {error}") from None


@lru_cache(64)
def _escaped_path(url: Url) -> str:
    return quote(url.path, safe=_IN_PATHS)


@lru_cache(64)
def _query(url: Url) -> Map:
    found: dict[str, list[str]] = {}
    for key, value in parse_qsl(url.query, keep_blank_values=True):
        found.setdefault(key, []).append(value)
    return Map(list(found.items()))


# -- addresses ---------------------------------------------------------------------------------------------------------


def _address(text: str) -> CelAddress:
    found = _parsed_ip(text)
    if isinstance(found, str):
        raise EvalError(found)
    return CelAddress(found)


def _parsed_ip(text: str) -> _Ip | str:
    """Return an address, or what is wrong with it."""
    if len(text) > MAX_PARSED:  # Python would copy it into its own error
        return f"IP Address {_quoted(text[:_SHOWN])}… parse error during conversion from string: unable to parse IP"
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return f"IP Address {_quoted(text)} parse error during conversion from string: ParseAddr({_quoted(text)}): {_why(text)}"
    if isinstance(found, ipaddress.IPv6Address) and found.scope_id is not None:
        return f"IP address {_quoted(text)} with zone value is not allowed"
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return f"IPv4-mapped IPv6 address {_quoted(text)} is not allowed"
    return found


def _why(text: str) -> str:
    if ":" in text:
        return "unexpected character"
    if "." in text:
        return "IPv4 address too short" if text.count(".") < 3 else "IPv4 field has invalid value"
    return "unable to parse IP"


def _quoted(text: str) -> str:
    return f'"{text}"'


def _network(text: str) -> CelNetwork:
    address, slash, bits = text.partition("/")
    why = ""
    found = _parsed_ip(address)
    if not slash:
        why = f"netip.ParsePrefix({_quoted(text)}): no '/'"
    elif isinstance(found, str):
        why = (
            found
            if "not allowed" in found
            else f"netip.ParsePrefix({_quoted(text)}): ParseAddr({_quoted(address)}): {_why(address)}"
        )
    elif not re.fullmatch(r"0|[1-9]\d{0,2}", bits, re.ASCII):
        why = f"netip.ParsePrefix({_quoted(text)}): bad bits after slash: {_quoted(bits)}"
    elif int(bits) > found.max_prefixlen:
        why = f"netip.ParsePrefix({_quoted(text)}): prefix length out of range"
    if why or isinstance(found, str):
        again = "" if why.endswith("not allowed") else "network address parse error during conversion from string: "
        raise EvalError(f"network address parse error during conversion from string: {again}{why}")
    return CelNetwork(found, int(bits))


def _contains(network: CelNetwork, address: CelAddress) -> bool:
    return address.ip.version == network.ip.version and address.ip in network.masked


def _contains_network(network: CelNetwork, other: CelNetwork) -> bool:
    return other.ip.version == network.ip.version and network.bits <= other.bits and other.ip in network.masked


def _is_global(address: CelAddress) -> bool:
    ip = address.ip
    if ip.is_unspecified or ip.is_loopback or ip.is_multicast or ip.is_link_local:
        return False
    return str(ip) != "255.255.255.255"


def _is_link_local_multicast(address: CelAddress) -> bool:
    if address.ip.version == 6:
        return int(address.ip) >> 112 & 0xFF0F == 0xFF02
    return address.ip in ipaddress.ip_network("224.0.0.0/24")


# -- formats -----------------------------------------------------------------------------------------------------------


def _prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return a variant of ``check`` for prefixes of names, which may end with a dash."""
    return lambda text: check(f"{text[:-1]}a" if text.endswith("-") else text)


def _date_faults(text: str) -> list[str]:
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) and date.fromisoformat(text):
            return []
    except ValueError:
        pass
    return ["invalid date"]


def _uri_faults(text: str) -> list[str]:
    try:
        _parsed(text)
    except _UrlError as error:
        return [str(error)]
    return []


def _pattern(pattern: str, fault: str, flags: re.RegexFlag = re.ASCII) -> Callable[[str], list[str]]:
    compiled = re.compile(pattern, flags)
    return lambda text: [] if compiled.fullmatch(text) else [fault]


_is_datetime: Final = converts(timestamp_of)
_HEX: Final = "[0-9a-f]"
_UUID: Final = f"{_HEX}{{8}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}}"
_BASE64: Final = r"(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
_FORMATS: Final[dict[str, Format]] = {
    "dns1123Label": Format("DNS1123Label", check_dns1123_label, 30),
    "dns1123Subdomain": Format("DNS1123Subdomain", check_dns1123_subdomain, 60),
    "dns1035Label": Format("DNS1035Label", check_dns1035_label, 30),
    "qualifiedName": Format("QualifiedName", check_qualified_name, 60),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", _prefix(check_dns1123_label), 30),
    "dns1123SubdomainPrefix": Format("DNS1123SubdomainPrefix", _prefix(check_dns1123_subdomain), 60),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", _prefix(check_dns1035_label), 30),
    "labelValue": Format("LabelValue", check_label_value, 40),
    "uri": Format("URI", _uri_faults, 1000),
    "uuid": Format("uuid", _pattern(_UUID, "does not match the UUID format", re.ASCII | re.IGNORECASE), 100),
    "byte": Format("byte", _pattern(_BASE64, "invalid base64"), 100),
    "date": Format("date", _date_faults, 150),
    "datetime": Format("datetime", lambda text: [] if _is_datetime(text.upper()) else ["invalid datetime"], 150),
}


def _named(name: str) -> Optional:
    found = _FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _validate(of: Format, text: str) -> Optional:
    faults = of.check(text)
    return Optional(faults) if faults else NONE


def _validate_cost(args: list[Value], result: Value) -> int:
    return math.ceil((len(args[1]) + 1) * 0.1) * math.ceil(int(args[0].pattern_size) * 0.25)


def _constant(of: Format) -> Callable[[], Format]:
    return lambda: of


FUNCTIONS: Final[list[tuple[str, str, Any, Cost | None]]] = [
    ("url", "string -> url", _url, reading),
    ("isURL", "string -> bool", converts(_url), reading),
    ("getScheme", "url . -> string", lambda url: url.scheme, None),
    ("getHost", "url . -> string", lambda url: url.host, None),
    ("getHostname", "url . -> string", lambda url: url.hostname, None),
    ("getPort", "url . -> string", lambda url: url.port, None),
    ("getEscapedPath", "url . -> string", _escaped_path, None),
    ("getQuery", "url . -> map<string, list<string>>", _query, None),
    ("ip", "string -> ip", _address, reading),
    ("isIP", "string -> bool", converts(_address), reading),
    ("ip.isCanonical", "string -> bool", lambda text: str(_address(text)) == text, reading),
    ("family", "ip . -> int", lambda one: one.ip.version, None),
    ("isUnspecified", "ip . -> bool", lambda one: one.ip.is_unspecified, None),
    ("isLoopback", "ip . -> bool", lambda one: one.ip.is_loopback, None),
    ("isLinkLocalMulticast", "ip . -> bool", _is_link_local_multicast, None),
    ("isLinkLocalUnicast", "ip . -> bool", lambda one: one.ip.is_link_local, None),
    ("isGlobalUnicast", "ip . -> bool", _is_global, None),
    ("string", "ip -> string", str, None),
    ("cidr", "string -> cidr", _network, reading),
    ("isCIDR", "string -> bool", converts(_network), reading),
    ("containsIP", "cidr . ip -> bool", _contains, None),
    ("containsIP", "cidr . string -> bool", lambda one, text: _contains(one, _address(text)), None),
    ("containsCIDR", "cidr . cidr -> bool", _contains_network, None),
    ("containsCIDR", "cidr . string -> bool", lambda one, text: _contains_network(one, _network(text)), None),
    ("ip", "cidr . -> ip", lambda one: CelAddress(one.ip), None),
    ("prefixLength", "cidr . -> int", lambda one: one.bits, None),
    ("masked", "cidr . -> cidr", lambda one: CelNetwork(one.masked.network_address, one.bits), None),
    ("string", "cidr -> string", str, None),
    *((f"format.{name}", "-> format", _constant(of), None) for name, of in _FORMATS.items()),
    ("format.named", "string -> optional<format>", _named, None),
    ("validate", "format . string -> optional<list<string>>", _validate, _validate_cost),
]
