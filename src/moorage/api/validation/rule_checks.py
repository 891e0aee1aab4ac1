"""The checks that tables of rules name: of names, numbers, lists, paths and addresses.

Source  kubernetes, pkg/apis/core/validation/validation.go; apimachinery, pkg/util/validation
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec

from moorage.api.meta import LabelSelector
from moorage.api.names import check_dns1123_label, check_dns1123_subdomain, check_label_value, check_qualified_name
from moorage.api.quantity import QuantityError, parse
from moorage.api.validation import faults
from moorage.api.validation.pods import port_name_faults
from moorage.api.validation.rule_tables import VALUES, Holders, Seen, check, field_of
from moorage.errors import Fault

_PORTS: Final = range(1, 65536)
_IN_PORTS: Final = "must be between 1 and 65535, inclusive"


def check_path_segment(name: str) -> list[str]:
    """Return why a name is not a valid path segment; names of roles and budgets have no other rules."""
    if name in {".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{mark}'" for mark in "/%" if mark in name]


# -- names --------------------------------------------------------------------------------------------------------------

for _name, _check in (
    ("label", check_dns1123_label), ("subdomain", check_dns1123_subdomain), ("qualified", check_qualified_name),
    ("path segment", check_path_segment), ("label value", check_label_value),
):  # fmt: skip
    check(_name)(lambda path, value, names=_check: faults.named(path, value, names))


@check("qualified, in lower case")
def _lower(path: str, value: str) -> faults.Faults:
    return faults.named(path, value.lower(), check_qualified_name)


@check("label value, all faults as one")
def _label_value(path: str, value: str) -> Iterable[Fault]:
    return (faults.invalid(path, value, ";".join(why)),) if (why := check_label_value(value)) else ()


@check("external name")
def _external_name(path: str, value: str) -> faults.Faults:
    name = value.removesuffix(".")
    yield from faults.named(path, name, check_dns1123_subdomain) if name else (faults.required(path),)


@check("driver name")
def driver_name_faults(path: str, name: Any) -> faults.Faults:
    """Yield the faults of the name of a CSI driver."""
    if not name:
        yield faults.required(path)
        return
    if not isinstance(name, str):
        yield faults.invalid(path, name, "must be a string")
        return
    if len(name) > 63:
        yield faults.too_long(path, 63)
    for fault in faults.named(path, name.lower(), check_dns1123_subdomain):
        yield faults.invalid(path, name, fault.detail)


@check("manager name")
def _manager(path: str, manager: str) -> faults.Faults:
    yield from domain_path_faults(path, manager)
    if len(manager) > 63:
        yield faults.too_long(path, 63)


def domain_path_faults(path: str, value: str) -> faults.Faults:
    """Yield the faults of a text that must be a domain, a slash and a path."""
    domain, slash, name = value.partition("/")
    if not slash or not domain or not name:
        yield faults.invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        yield from (faults.invalid(path, domain, why) for why in check_dns1123_subdomain(domain))
        if not _MANAGER.fullmatch(name):
            yield faults.invalid(path, name, f"Invalid path (regex used for validation is '{_MANAGER.pattern}')")


_MANAGER: Final = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


@check("labels")
def _labels(path: str, given: dict[str, str]) -> faults.Faults:
    return faults.labels(path, {key: value or "" for key, value in given.items()})


@check("label selector")
def _selector(path: str, given: Any) -> faults.Faults:
    return VALUES.faults("LabelSelector", msgspec.convert(given, LabelSelector), path) if given else iter(())


@check("finalizer")
def finalizer_faults(path: str, name: str) -> Iterable[Fault]:
    """Yield the fault of a finalizer that is neither standard nor has a domain."""
    if "/" in name or name in STANDARD_FINALIZERS:
        return ()
    return (faults.invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified"),)


STANDARD_FINALIZERS: Final = frozenset(["foregroundDeletion", "kubernetes", "orphan"])

# -- numbers and lists ----------------------------------------------------------------------------------------------------

check("range")(faults.in_range)
check("nonnegative")(faults.nonnegative)
check("mode")(
    partial(faults.in_range, least=0, most=0o777, shown="must be a number between 0 and 0777 (octal), both inclusive")
)


@check("port number", of_holder=True)
def _port_number(path: str, value: int | None, *_: Any) -> Iterable[Fault]:
    return () if value in _PORTS else (faults.invalid(path, value or 0, _IN_PORTS),)


@check("port", of_holder=True)
def _port(path: str, port: int | str | None, *_: Any) -> faults.Faults:
    if isinstance(port, str) and port:
        yield from (faults.invalid(path, port, why) for why in port_name_faults(port))
    elif port not in _PORTS:
        yield faults.invalid(path, port or 0, _IN_PORTS)


@check("one of", of_holder=True)
def _one_of(path: str, value: Any, *rest: Any) -> faults.Faults:
    return faults.one_of(path, value, rest[3])


@check("one of or empty")
def _one_of_or_empty(path: str, value: Any, supported: list[str]) -> Iterable[Fault]:
    return () if value in supported else (faults.unsupported(path, value, supported),)


@check("one of!", of_holder=True)
def _exactly_one_of(path: str, value: Any, *rest: Any) -> faults.Faults:
    return faults.one_of(path, value or "", rest[3])


@check("not in", of_holder=True)
def _not_in(path: str, value: Any, holder: Any, up: Holders, seen: Seen, items: str, field: str, why: str) -> Iterable[Fault]:
    """Yield the fault of a text that the items of another list of the holder have in a field."""
    held = up[0] if up is not None else {}
    mark = (_not_in, id(held), items, field)
    if mark not in seen:
        seen[mark] = {one.get(field) or "" for one in field_of(held, items) or ()}
    return (faults.invalid(path, value or "", why),) if (value or "") in seen[mark] else ()


_MOST_PARAMETER_BYTES: Final = 256 * 1024


@check("parameters")
def _parameters(path: str, parameters: dict[str, str]) -> faults.Faults:
    if "" in parameters:
        yield faults.invalid(path, "", "field can not be empty.")
    if sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items()) > _MOST_PARAMETER_BYTES:
        yield faults.too_long(path, _MOST_PARAMETER_BYTES)


# -- paths --------------------------------------------------------------------------------------------------------------


NO_BACKSTEPS: Final = "must not contain '..'"


def _steps_back(path: str) -> bool:
    return ".." in path.split("/")


@check("descending path")
def descending_path_faults(path: str, value: str) -> faults.Faults:
    """Yield the faults of a path that must stay below its directory."""
    if value.startswith("/"):
        yield faults.invalid(path, value, "must be a relative path")
    if _steps_back(value):
        yield faults.invalid(path, value, NO_BACKSTEPS)


@check("volume path")
def volume_path_faults(path: str, value: str) -> faults.Faults:
    """Yield the faults of a file's path in a volume, in which names that begin with ``..`` are reserved."""
    yield from descending_path_faults(path, value)
    if value.startswith("..") and not value.startswith("../"):
        yield faults.invalid(path, value, "must not start with '..'")


# -- addresses ----------------------------------------------------------------------------------------------------------

_LOCAL_MULTICAST: Final = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))
NO_ADDRESS: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


_PADDED: Final = re.compile(r"0+(?=[0-9])")


def parse_address(text: str) -> tuple[_Address | None, str]:
    """Return an IP address, None if the text is none, and why it is not accepted as one in a field, or ""."""
    is_padded = ":" not in text and any(_PADDED.match(part) for part in text.split("."))
    try:
        address = ipaddress.ip_address(".".join(_PADDED.sub("", part) for part in text.split(".")) if is_padded else text)
    except ValueError:
        return None, NO_ADDRESS
    if "%" in text:
        return None, NO_ADDRESS
    if is_padded:
        return address, "must not have leading 0s"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address, "must not be an IPv4-mapped IPv6 address"
    return address, ""


def has_address(text: str) -> bool:
    """Return whether a text is an IP address."""
    return parse_address(text)[0] is not None


@check("address")
def address_faults(path: str, text: str) -> Iterable[Fault]:
    """Yield the fault of an invalid IP address."""
    why = parse_address(text)[1]
    return (faults.invalid(path, text, why),) if why else ()


@check("endpoint address")
def endpoint_address_faults(path: str, text: str) -> Iterable[Fault]:
    """Yield the faults of an address that cannot be that of an endpoint."""
    address, _ = parse_address(text)
    if address is None:
        return (faults.invalid(path, text, "must be a valid IP address"),)
    return _of_no_host(path, text, address, lambda one: one.is_link_local and not one.is_multicast)


@check("external address")
def _external_address(path: str, text: str) -> Iterable[Fault]:
    address, why = parse_address(text)
    if address is None or why:
        return (faults.invalid(path, text, why),)
    return _of_no_host(path, text, address, lambda one: one.is_link_local)


def _of_no_host(path: str, text: str, address: _Address, is_link_local: Callable[[_Address], bool]) -> faults.Faults:
    """Yield the faults of an address that is not one of a host that others can reach."""
    for is_faulty, why in (
        (address.is_unspecified, f"may not be unspecified ({text})"),
        (address.is_loopback, "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (is_link_local(address), "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (
            any(address.version == network.version and address in network for network in _LOCAL_MULTICAST),
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    ):
        if is_faulty:
            yield faults.invalid(path, text, why)


@check("source range")
def _source_range(path: str, text: str) -> Iterable[Fault]:
    try:
        ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        is_range = False
    else:
        is_range = "/" in text
    why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
    return () if is_range else (faults.invalid(path, text.strip(), why),)


@check("size limit")
def _size_limit(path: str, limit: Any) -> Iterable[Fault]:
    try:
        is_negative = parse(limit) < 0
    except QuantityError:
        is_negative = True
    return (Fault("Forbidden", path, "SizeLimit field must be a valid resource quantity"),) if is_negative else ()


# -- checks of one condition ----------------------------------------------------------------------------------------------

for _name, _is_wrong, _why in (
    ("not negative", lambda value: value < 0, faults.NOT_NEGATIVE),
    ("above zero", lambda value: value <= 0, faults.POSITIVE),
    ("ordered", lambda value: value != sorted(value), "must be ordered"),
    ("no backsteps", _steps_back, NO_BACKSTEPS),
    ("no address", has_address, "must be a DNS name, not an IP address"),
):
    check(_name)(
        lambda path, value, is_wrong=_is_wrong, why=_why: [faults.invalid(path, value, why)] if is_wrong(value) else []
    )

for _name, _size, _fault in (
    ("most", len, lambda path, value, most, why: faults.invalid(path, value, why)),
    ("bytes", lambda value: len(value.encode()), lambda path, value, most, why: faults.invalid(path, value, why)),
    ("too many", len, lambda path, value, most: faults.too_many(path, len(value), most)),
    ("too long", len, lambda path, value, most: faults.too_long(path, most)),
    ("too many bytes", lambda value: len(value.encode()), lambda path, value, most: faults.too_long(path, most)),
):
    check(_name)(
        lambda path, value, most, *why, size=_size, fault=_fault: [fault(path, value, most, *why)] if size(value) > most else []
    )
