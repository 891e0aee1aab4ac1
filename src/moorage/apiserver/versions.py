"""Versions as clients write them.

Source  apiserver, pkg/storage/api_object_versioner.go
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.apiserver.statuses import ApiError, bad_request, unknown

__all__ = ["parse_version", "parse_version_of_one"]


def parse_version(version: str) -> int:
    """Return a version as a number, 0 for none.

    Raises  ApiError 400
    """
    return _parsed(version, lambda fault: bad_request(f"invalid resource version: {fault}"))


def parse_version_of_one(version: str) -> int:
    """Return the version that an object is asked for at as a number, 0 for none.

    Raises  ApiError 500, as kube-apiserver does not foresee the fault
    """
    return _parsed(version, unknown)


def _parsed(version: str, refusal: Callable[[str], ApiError]) -> int:
    fault = f'resourceVersion: Invalid value: "{version}": strconv.ParseUint: parsing "{version}"'
    if version and not (version.isascii() and version.isdigit()):
        raise refusal(f"{fault}: invalid syntax")
    if len(version) > 20 or int(version or 0) >= 2**64:
        raise refusal(f"{fault}: value out of range")
    return int(version or 0)
