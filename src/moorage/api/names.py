"""Syntax of names: object names, label keys, label values, and the families of resource names.

The ``check_…`` functions return faults in the API server's words, an empty list if there are none. The ``is_…`` functions
return whether a resource name belongs to a family; the scheduler treats each family differently.

Source  apimachinery, pkg/api/validate/content; kubernetes, pkg/apis/core/v1/helper/helpers.go
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS1035_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_LABEL_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_LABEL_KEY})?"

# The same, but with possessive groups: matching never goes back, so a long text takes little time and no memory.
_ONE_WAY = "[a-z0-9]++(?:-++[a-z0-9]++)*+"
_is_dns_label = re.compile(_ONE_WAY).fullmatch
_is_dns1035_label = re.compile(f"(?=[a-z]){_ONE_WAY}").fullmatch
_is_dns_subdomain = re.compile(rf"{_ONE_WAY}(?:\.{_ONE_WAY})*+").fullmatch
_is_label_key = re.compile(_LABEL_KEY).fullmatch
_is_label_value = re.compile(_LABEL_VALUE).fullmatch

# kube-apiserver's own texts, kept word for word: people search for them.
_DNS_LABEL_FAULT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character "
    f"(e.g. 'my-name',  or '123-abc', regex used for validation is '{_DNS_LABEL}')"
)
_DNS1035_LABEL_FAULT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end "
    f"with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '{_DNS1035_LABEL}')"
)
_DNS_SUBDOMAIN_FAULT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character "
    f"(e.g. 'example.com', regex used for validation is '{_DNS_SUBDOMAIN}')"
)
_LABEL_KEY_FAULT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_LABEL_KEY}')"
)
_LABEL_VALUE_FAULT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_LABEL_VALUE}')"
)
_TOO_MANY_PARTS = (
    f"a valid label key {_LABEL_KEY_FAULT} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_EMPTY = "must be non-empty"


def _too_long(limit: int, unit: str = "bytes") -> str:
    """Return the fault of a text that is too long. The limit is in bytes, even if the message has another ``unit``."""
    return f"must be no more than {limit} {unit}"


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _faults(text: str, most: int, unit: str, fits: Callable[[str], object], fault: str) -> list[str]:
    too_long = [_too_long(most, unit)] if _size(text) > most else []
    return too_long if fits(text) else [*too_long, fault]


def check_dns1123_label(text: str) -> list[str]:
    """Return why a text is not a DNS label, such as a namespace or a container's name."""
    fault = "must not contain dots" if "." in text and _is_dns_subdomain(text) else _DNS_LABEL_FAULT
    return _faults(text, 63, "characters", _is_dns_label, fault)


def check_dns1035_label(text: str) -> list[str]:
    """Return why a text is not a DNS label that starts with a letter, such as a service's name."""
    return _faults(text, 63, "characters", _is_dns1035_label, _DNS1035_LABEL_FAULT)


def check_dns1123_subdomain(text: str) -> list[str]:
    """Return why a text is not a DNS subdomain, which most objects' names must be."""
    return _faults(text, 253, "characters", _is_dns_subdomain, _DNS_SUBDOMAIN_FAULT)


def check_qualified_name(text: str) -> list[str]:
    """Return why a text is not a label key: ``name`` or ``example.com/name``."""
    return list(_qualified_name_faults(text) if len(text) <= _CACHED_SIZE else _qualified_name_faults.__wrapped__(text))


def check_label_value(text: str) -> list[str]:
    """Return why a text is not a label value. The empty text is one."""
    return _faults(text, 63, "bytes", _is_label_value, _LABEL_VALUE_FAULT)


#: Longer texts are checked each time instead of cached.
_CACHED_SIZE = 512


@lru_cache(maxsize=4096)
def _qualified_name_faults(text: str) -> tuple[str, ...]:
    parts = text.split("/")
    if len(parts) > 2:
        return (_TOO_MANY_PARTS,)
    faults: list[str] = []
    if len(parts) == 2:
        prefix_faults = _faults(parts[0], 253, "bytes", _is_dns_subdomain, _DNS_SUBDOMAIN_FAULT) if parts[0] else [_EMPTY]
        faults += [f"prefix part {fault}" for fault in prefix_faults]
    name = parts[-1]
    if not name:
        faults.append(f"name part {_EMPTY}")
    elif _size(name) > 63:
        faults.append(f"name part {_too_long(63)}")
    if not _is_label_key(name):
        faults.append(f"name part {_LABEL_KEY_FAULT}")
    return tuple(faults)


# -- resource names -----------------------------------------------------------------------------------------------------

_REQUESTS_PREFIX = "requests."


def is_prefixed_native_resource(name: str) -> bool:
    """Return True for names in a ``kubernetes.io/`` namespace."""
    return "kubernetes.io/" in name


def is_native_resource(name: str) -> bool:
    """Return True for names without a prefix (``cpu``) and names in a ``kubernetes.io/`` namespace."""
    return "/" not in name or is_prefixed_native_resource(name)


def is_hugepage_resource(name: str) -> bool:
    """Return True for pre-allocated pages of one size, such as ``hugepages-2Mi``."""
    return name.startswith("hugepages-")


def is_attachable_volume_resource(name: str) -> bool:
    """Return True for the volume limits of in-tree drivers, such as ``attachable-volumes-aws-ebs``."""
    return name.startswith("attachable-volumes-")


def is_extended_resource_name(name: str) -> bool:
    """Return True for resources that a third party defines, such as ``nvidia.com/gpu``."""
    if is_native_resource(name) or name.startswith(_REQUESTS_PREFIX):
        return False
    return not check_qualified_name(_REQUESTS_PREFIX + name)


def is_scalar_resource_name(name: str) -> bool:
    """Return True for resources the scheduler counts in addition to CPU, memory, ephemeral storage and pods.

    Source  kubernetes, pkg/scheduler/util/utils.go, IsScalarResourceName
    """
    return (
        is_hugepage_resource(name)
        or is_prefixed_native_resource(name)
        or is_attachable_volume_resource(name)
        or is_extended_resource_name(name)
    )
