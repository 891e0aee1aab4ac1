"""Checks of single fields that several kinds share: required texts, ranges, paths, modes, addresses and driver names.

Source  kubernetes, pkg/apis/core/validation/validation.go; apimachinery, pkg/util/validation
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any, Final

from moorage.api.names import check_dns1123_subdomain
from moorage.api.validation.faults import in_range, invalid, named, required, too_long
from moorage.cluster.apiserver.vocabulary.records import Document
from moorage.errors import Fault

__all__ = [
    "NON_STANDARD_IP", "address_faults", "backstep_faults", "descending_path_faults", "driver_name_faults", "has_address",
    "id_faults", "missing", "mode_faults", "volume_path_faults",
]  # fmt: skip

Faults = Iterator[Fault]
NON_STANDARD_IP: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_MOST_DRIVER: Final = 63
_MOST_ID: Final = 2**31 - 1
_MOST_MODE: Final = 0o777


def missing(path: str, holder: Document, *names: str) -> Faults:
    """Yield a fault for each of the named fields that is empty."""
    yield from (required(f"{path}.{name}") for name in names if not holder.get(name))


def id_faults(path: str, holder: Document, *names: str) -> Faults:
    """Yield the faults of user and group IDs."""
    for name in names:
        yield from in_range(f"{path}.{name}", holder.get(name), 0, _MOST_ID)


def mode_faults(path: str, holder: Document, name: str) -> Faults:
    """Yield the fault of the mode of a file."""
    why = "must be a number between 0 and 0777 (octal), both inclusive"
    yield from in_range(f"{path}.{name}", holder.get(name), 0, _MOST_MODE, why)


# -- paths --------------------------------------------------------------------------------------------------------------


def backstep_faults(path: str, value: str) -> Faults:
    """Yield the fault of a path with ``..``."""
    if ".." in value.split("/"):
        yield invalid(path, value, "must not contain '..'")


def descending_path_faults(path: str, value: str) -> Faults:
    """Yield the faults of a path that must stay below its directory."""
    if value.startswith("/"):
        yield invalid(path, value, "must be a relative path")
    yield from backstep_faults(path, value)


def volume_path_faults(path: str, value: str) -> Faults:
    """Yield the faults of a file's path in a volume, in which names that begin with ``..`` are reserved."""
    yield from descending_path_faults(path, value)
    if value.startswith("..") and not value.startswith("../"):
        yield invalid(path, value, "must not start with '..'")


# -- names and addresses ------------------------------------------------------------------------------------------------


def has_address(text: str) -> bool:
    """Return whether a text is an IP address in its usual form."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def address_faults(path: str, text: str) -> Faults:
    """Yield the fault of an invalid IP address."""
    if not has_address(text):
        yield invalid(path, text, NON_STANDARD_IP)


def driver_name_faults(path: str, name: Any) -> Faults:
    """Yield the faults of the name of a CSI driver."""
    if not name:
        yield required(path)
        return
    if len(name) > _MOST_DRIVER:
        yield too_long(path, _MOST_DRIVER)
    for fault in named(path, name.lower(), check_dns1123_subdomain):
        yield invalid(path, name, fault.detail)
