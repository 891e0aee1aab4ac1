"""Refusals as the API server words them: an HTTP code, a reason that clients test for, and a message that people search for.

Every refusal is an ``ApiError``; ``status()`` is the ``Status`` object that goes over the wire.

Source  apimachinery, pkg/api/errors/errors.go; apiserver, pkg/endpoints/handlers/responsewriters/status.go
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from moorage.apiserver.vocabulary.go_messages import go_quoted
from moorage.errors import Fault, MoorageError

__all__ = [
    "ApiError", "Cause", "PlainError", "already_exists", "bad_request", "bounded", "conflict", "expired", "forbidden",
    "forbidden_path", "internal", "invalid", "no_such_page", "not_acceptable", "not_acceptable_at_all",
    "not_acceptable_form", "not_allowed", "not_found", "not_found_path", "quoted", "success", "timeout", "too_large",
    "too_many", "unauthorized", "unknown", "unsupported_media", "unsupported_patch",
]  # fmt: skip

_F = TypeVar("_F")

quoted = go_quoted


@dataclass(frozen=True, slots=True)
class Cause:
    reason: str
    message: str
    field: str = ""

    def document(self) -> dict[str, Any]:
        shown = {"reason": self.reason, "message": self.message, "field": self.field}
        return {key: value for key, value in shown.items() if value}


class ApiError(MoorageError):
    """A request that was refused.

    ``group``, ``kind`` and ``name`` say what it was about; the API puts a resource's plural or a kind into ``kind``.
    ``routed`` is False for a request that came to nobody who knows what it is about: it has details that say nothing.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        group: str = "",
        kind: str = "",
        name: str = "",
        causes: Sequence[Cause] = (),
        retry_after_s: int = 0,
        routed: bool = True,
    ) -> None:
        Exception.__init__(self, message)  # it goes to the client as it is
        self.code = code
        self.reason = reason
        self.message = message
        self.group = group
        self.kind = kind
        self.name = name
        self.causes = tuple(causes)
        self.retry_after_s = retry_after_s
        self.routed = routed
        #: What was amiss besides, and told of all the same.
        self.warnings: tuple[str, ...] = ()

    def status(self) -> dict[str, Any]:
        """Return the ``Status`` object of this refusal."""
        details: dict[str, Any] = {"name": self.name, "group": self.group, "kind": self.kind}
        details["causes"] = [cause.document() for cause in self.causes]
        details["retryAfterSeconds"] = self.retry_after_s
        details = {key: value for key, value in details.items() if value}
        status: dict[str, Any] = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
            "reason": self.reason, "details": details, "code": self.code,
        }  # fmt: skip
        # The reason of an error that has none is left out, and so are details that say nothing.
        kept = {"metadata"} if self.routed else {"metadata", "details"}
        return {key: value for key, value in status.items() if value or key in kept}


def success(group: str = "", kind: str = "", name: str = "", uid: str = "", code: int = 0) -> dict[str, Any]:
    """Return the ``Status`` object of a request that was carried out and has no object to show."""
    details = {key: value for key, value in {"name": name, "group": group, "kind": kind, "uid": uid}.items() if value}
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = details
    if code:
        status["code"] = code
    return status


def _qualified(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


# -- about an object ----------------------------------------------------------------------------------------------------


def not_found(resource: str, group: str, name: str) -> ApiError:
    """Return the refusal for an object that is not there."""
    message = f"{_qualified(resource, group)} {quoted(name)} not found"
    return ApiError(404, "NotFound", message, group=group, kind=resource, name=name)


def already_exists(resource: str, group: str, name: str) -> ApiError:
    """Return the refusal for an object whose name is taken."""
    message = f"{_qualified(resource, group)} {quoted(name)} already exists"
    return ApiError(409, "AlreadyExists", message, group=group, kind=resource, name=name)


def conflict(resource: str, group: str, name: str, why: str) -> ApiError:
    """Return the refusal of a change that something else got ahead of."""
    message = f"Operation cannot be fulfilled on {_qualified(resource, group)} {quoted(name)}: {why}"
    return ApiError(409, "Conflict", message, group=group, kind=resource, name=name)


def forbidden(resource: str, group: str, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    """Return the refusal of something that is not to be done."""
    subject = " ".join(filter(None, [_qualified(resource, group), quoted(name) if name else ""]))
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", group=group, kind=resource, name=name, causes=causes)


#: What the API calls a kind of fault where programs read it.
_CAUSES: Final = {
    "Invalid value": "FieldValueInvalid",
    "Required value": "FieldValueRequired",
    "Duplicate value": "FieldValueDuplicate",
    "Unsupported value": "FieldValueNotSupported",
    "Forbidden": "FieldValueForbidden",
    "Not found": "FieldValueNotFound",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
    "Internal error": "InternalError",
}


#: How many errors a refusal lists, and how many characters their texts may have together. Each takes time to word.
MAX_FAULTS: Final = 1000
MAX_TOLD: Final = 1 << 20


def invalid(kind: str, group: str, name: str, faults: Iterable[Fault]) -> ApiError:
    """Return the refusal of an object that breaks its kind's rules. Faults beyond the limits are not even looked for."""
    found, told = bounded(faults)
    texts = list(dict.fromkeys(told))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    message = f"{_qualified(kind, group)} {quoted(name)} is invalid: {listed}"
    causes = [Cause(_CAUSES.get(fault.kind, "FieldValueInvalid"), fault.body, fault.field) for fault in found]
    return ApiError(422, "Invalid", message, group=group, kind=kind, name=name, causes=causes)


def bounded(faults: Iterable[_F]) -> tuple[list[_F], list[str]]:
    """Return the faults that a refusal tells, and what it says of them: the last text says so where there are more."""
    found: list[_F] = []
    texts: list[str] = []
    size = 0
    for fault in faults:
        text = str(fault)
        size += len(text)
        if found and (len(found) == MAX_FAULTS or size > MAX_TOLD):
            texts.append(f"only the first {len(found)} errors are listed")
            break
        found.append(fault)
        texts.append(text)
    return found, texts


# -- about a request ----------------------------------------------------------------------------------------------------


def bad_request(message: str) -> ApiError:
    """Return the refusal of a request that makes no sense."""
    return ApiError(400, "BadRequest", message)


def forbidden_path(why: str) -> ApiError:
    """Return the refusal of a path that is about no resource."""
    return ApiError(403, "Forbidden", f"forbidden: {why}", routed=False)


def unauthorized(message: str = "Unauthorized") -> ApiError:
    """Return the refusal of a caller who did not say who they are."""
    return ApiError(401, "Unauthorized", message)


def not_found_path() -> ApiError:
    """Return the refusal of a path below an API that nothing is served under."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", routed=False)


class PlainError(ApiError):
    """A refusal outside of every API: it is told in plain text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, "", text, routed=False)


def no_such_page() -> PlainError:
    """Return the refusal of a path that is below no API."""
    return PlainError(404, "404 page not found\n")


def not_allowed(why: str = "") -> ApiError:
    """Return the refusal of a method that a path does not have; ``why`` says more than that."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", f"{message}: {why}" if why else message, routed=False)


def not_acceptable(accepted: Iterable[str]) -> ApiError:
    """Return the refusal of a client that reads nothing the server writes."""
    message = f"only the following media types are accepted: {', '.join(accepted)}"
    return ApiError(406, "NotAcceptable", message)


def not_acceptable_at_all(offered: Iterable[str]) -> ApiError:
    """Return the refusal of a client that reads no type that a path offers."""
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(offered)}"
    return ApiError(406, "NotAcceptable", message, routed=False)


def not_acceptable_form(form: str, what: str) -> ApiError:
    """Return the refusal of a client that wants one object in the form of many, or many in that of one."""
    return ApiError(406, "NotAcceptable", f"you requested {form}, but the requested object is {what}")


def expired(message: str) -> ApiError:
    """Return the refusal for a version that history does not reach back to."""
    return ApiError(410, "Expired", message)


def too_large(limit: int) -> ApiError:
    """Return the refusal of a body beyond the limit, in bytes."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def unsupported_patch() -> ApiError:
    """Return the refusal of a patch of a type that there is not."""
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", routed=False)


def unsupported_media(accepted: Iterable[str]) -> ApiError:
    """Return the refusal of a body in a format that is not read here."""
    types = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {types}"
    return ApiError(415, "UnsupportedMediaType", message)


def too_many(message: str, retry_after_s: int = 0, causes: Sequence[Cause] = ()) -> ApiError:
    """Return the refusal of a request that may be repeated later."""
    return ApiError(429, "TooManyRequests", message, retry_after_s=retry_after_s, causes=causes)


def internal(message: str) -> ApiError:
    """Return the refusal for a condition that the server does not handle."""
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", causes=[Cause("", message)])


def unknown(message: str) -> ApiError:
    """Return the refusal for an error that the API server has no reason for."""
    return ApiError(500, "", message)


def timeout(wanted: int, current: int) -> ApiError:
    """Return the refusal for a version that is yet to come."""
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    causes = [Cause("ResourceVersionTooLarge", "Too large resource version")]
    return ApiError(504, "Timeout", message, causes=causes, retry_after_s=1)
