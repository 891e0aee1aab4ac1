"""Parse resource versions from clients.

Source  apiserver, pkg/storage/api_object_versioner.go
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.documents.statuses import ApiError, bad_request, unknown


def is_version(text: str | None) -> bool:
    """Return whether a text is a resource version of an object, which is never 0."""
    return bool(text) and not _fault(text or "") and int(text or 0) > 0


def parse_version(version: str) -> int:
    """Return a version as a number, 0 for "".

    Raises  ApiError 400
    """
    return _parsed(version, lambda fault: bad_request(f"invalid resource version: {fault}"))


def parse_version_of_one(version: str) -> int:
    """Return the version at which an object is requested as a number, 0 for "".

    Raises  ApiError 500, as kube-apiserver does
    """
    return _parsed(version, unknown)


def check_sent_version(version: str) -> None:
    """Check the resource version in an object from a client.

    Raises  ApiError 500 if it is not a number
    """
    if fault := _fault(version):
        raise unknown(fault)


def _fault(version: str) -> str:
    if version and not (version.isascii() and version.isdigit()):
        return f'strconv.ParseUint: parsing "{version}": invalid syntax'
    if len(version) > 20 or int(version or 0) >= 2**64:
        return f'strconv.ParseUint: parsing "{version}": value out of range'
    return ""


def _parsed(version: str, make_error: Callable[[str], ApiError]) -> int:
    if fault := _fault(version):
        raise make_error(f'resourceVersion: Invalid value: "{version}": {fault}')
    return int(version or 0)
