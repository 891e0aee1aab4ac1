"""Versions as clients write them.

Source  apiserver, pkg/storage/api_object_versioner.go
"""

from __future__ import annotations

from moorage.apiserver.statuses import bad_request

__all__ = ["parse_version"]


def parse_version(version: str) -> int:
    """Return a version as a number, 0 for none.

    Raises  ApiError 400
    """
    if version and not (version.isascii() and version.isdigit()):
        why = f'strconv.ParseUint: parsing "{version}": invalid syntax'
        raise bad_request(f'invalid resource version: resourceVersion: Invalid value: "{version}": {why}')
    if len(version) > 20 or int(version or 0) >= 2**64:
        why = f'strconv.ParseUint: parsing "{version}": value out of range'
        raise bad_request(f'invalid resource version: resourceVersion: Invalid value: "{version}": {why}')
    return int(version or 0)
