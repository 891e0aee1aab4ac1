"""Validation of list and watch parameters.

Source  apimachinery, pkg/apis/meta/internalversion: validation/validation.go, defaults.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from moorage.apiserver.vocabulary.http_messages import HTTPRequest
from moorage.apiserver.vocabulary.statuses import invalid
from moorage.errors import Fault

__all__ = ["check_list", "requests_initial_list", "starts_with_list"]

_MATCH: Final = "resourceVersionMatch"
_INITIAL: Final = "sendInitialEvents"
_FORBIDDEN: Final = "Forbidden"


def check_list(request: HTTPRequest, *, is_watch: bool) -> None:
    """Validate the parameters of a list or a watch.

    Raises  ApiError 400 for invalid numbers, 422 with all other faults
    """
    request.number("limit")
    request.number("timeoutSeconds")
    if faults := list((_watch_faults if is_watch else _list_faults)(request.query)):
        raise invalid("ListOptions", "meta.k8s.io", "", faults)


def _list_faults(query: Mapping[str, str]) -> Iterator[Fault]:
    match, version = query.get(_MATCH, ""), query.get("resourceVersion", "")
    if match:
        if not version:
            yield Fault(_FORBIDDEN, _MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided")
        if query.get("continue"):
            yield Fault(_FORBIDDEN, _MATCH, f"{_MATCH} is forbidden when continue is provided")
        if match not in {"Exact", "NotOlderThan"}:
            yield Fault("Unsupported value", _MATCH, 'supported values: "Exact", "NotOlderThan", ""', match)
        if match == "Exact" and version == "0":
            yield Fault(_FORBIDDEN, _MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"')
    if _INITIAL in query:
        yield Fault(_FORBIDDEN, _INITIAL, f"{_INITIAL} is forbidden for list")


def _watch_faults(query: Mapping[str, str]) -> Iterator[Fault]:
    match = query.get(_MATCH, "")
    if _has_no_start(query) and query.get("continue"):
        yield Fault(_FORBIDDEN, _MATCH, f"{_MATCH} is forbidden when continue is provided")
    if _INITIAL in query and match != "NotOlderThan":
        yield Fault(_FORBIDDEN, _MATCH, f"{_INITIAL} requires setting {_MATCH} to NotOlderThan")
    if match:
        if _INITIAL not in query:
            yield Fault(_FORBIDDEN, _MATCH, f"{_MATCH} is forbidden for watch unless {_INITIAL} is provided")
        if match != "NotOlderThan":
            yield Fault("Unsupported value", _MATCH, 'supported values: "NotOlderThan"', match)
        if query.get("continue"):
            yield Fault(_FORBIDDEN, _MATCH, f"{_MATCH} is forbidden when continue is provided")


def requests_initial_list(request: HTTPRequest) -> bool:
    """Return True for a watch that explicitly requests the initial list."""
    return request.flag(_INITIAL)


def _has_no_start(query: Mapping[str, str]) -> bool:
    """Return True for a watch without a start, which defaults to the initial list."""
    return not any(query.get(name) for name in (_MATCH, _INITIAL, "resourceVersion"))


def starts_with_list(request: HTTPRequest) -> bool:
    """Return True for a watch that starts with the existing objects, by request or for lack of a version."""
    if _INITIAL in request.query:
        return requests_initial_list(request)
    return request.query.get("resourceVersion", "") in {"", "0"}
