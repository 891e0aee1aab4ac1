"""Errors in kube-apiserver's format: an HTTP code, a reason for programs and a message.

Every rejected request is an ``ApiError``; ``status()`` returns the ``Status`` object to send.

Source  apimachinery, pkg/api/errors/errors.go; apiserver, pkg/endpoints/handlers/responsewriters/status.go
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, TypeVar

from moorage.errors import Fault, MoorageError

# Messages of Go's standard library that kube-apiserver passes on: JSON syntax errors, and values formatted with ``%v``
# and ``%q``.
#
# Source  Go 1.26: encoding/json/scanner.go, fmt/print.go, strconv/quote.go


_CONTROL: Final = re.compile(r"\\(\\|u00([01][0-9a-f]))|\x7f")
_SHORT: Final = {"07": r"\a", "0b": r"\v"}


def go_quoted(text: str) -> str:
    """Return a text in double quotes, in the format of ``%q``."""

    def control(found: re.Match[str]) -> str:
        if found[0] == "\x7f":
            return r"\x7f"
        return found[0] if found[2] is None else _SHORT.get(found[2], rf"\x{found[2]}")

    return _CONTROL.sub(control, json.dumps(text, ensure_ascii=False))


def go_value(value: Any) -> str:
    """Return a decoded JSON value in the format of ``%v``: ``map[containers:[map[name:c]]]``."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case dict():
            return f"map[{' '.join(f'{key}:{go_value(inner)}' for key, inner in sorted(value.items()))}]"
        case list():
            return f"[{' '.join(map(go_value, value))}]"
        case _:
            return str(value)


def go_word(value: Any) -> str:
    """Return the name that Go's decoder uses for the type of a JSON value."""
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case dict():
            return "object"
        case list():
            return "array"
        case _:
            return "number"


# -- syntax ------------------------------------------------------------------------------------------------------------

_END: Final = "unexpected end of JSON input"
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_PART: Final = re.compile(rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_UNFINISHED: Final = (
    (re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?[eE][+-]?"), "in exponent of numeric literal"),
    (re.compile(rb"-?(?:0|[1-9][0-9]*)\."), "after decimal point in numeric literal"),
    (re.compile(rb"-"), "in numeric literal"),
)
_LITERALS: Final = {b"t": b"true", b"f": b"false", b"n": b"null"}


class _Fault(Exception):  # noqa: N818 - never leaves this module
    pass


def syntax_fault(data: bytes) -> str:
    """Return Go's syntax error for a text that should be one JSON value, or ""."""
    try:
        at = _value(data, 0)
        at = _skip(data, at)
        if at < len(data):
            raise _wrong(data, at, "after top-level value")
    except _Fault as fault:
        return str(fault)
    return ""


def _skip(data: bytes, at: int) -> int:
    found = _SPACE.match(data, at)
    return found.end() if found else at


def _wrong(data: bytes, at: int, where: str) -> _Fault:
    if at >= len(data):
        return _Fault(_END)
    letter = chr(data[at])
    shown = {"'": r"\'", '"': '"'}.get(letter) or go_quoted(letter)[1:-1]
    if "\x80" <= letter <= "\xa0" or letter == "\xad":
        shown = rf"\u{ord(letter):04x}"
    return _Fault(f"invalid character '{shown}' {where}")


def _value(data: bytes, start: int) -> int:
    """Return the end of the value that begins at ``start``, without recursion."""
    open_brackets: list[bytes] = []
    at = start
    while True:
        at = _skip(data, at)
        first = data[at : at + 1]
        if first in {b"{", b"["} and first:
            open_brackets.append(first)
            at = _skip(data, at + 1)
            if data[at : at + 1] != (b"}" if first == b"{" else b"]"):
                at = _key(data, at) if first == b"{" else at
                continue
        else:
            at = _scalar(data, at)
            if not open_brackets:
                return at
            at = _skip(data, at)
        while open_brackets:
            is_object = open_brackets[-1] == b"{"
            letter = data[at : at + 1]
            if letter == b",":
                at = _key(data, _skip(data, at + 1)) if is_object else at + 1
                break
            if letter != (b"}" if is_object else b"]"):
                raise _wrong(data, at, "after object key:value pair" if is_object else "after array element")
            open_brackets.pop()
            at = _skip(data, at + 1)
        else:
            return at


def _key(data: bytes, at: int) -> int:
    """Return the start of the value that belongs to the key at ``at``."""
    if data[at : at + 1] != b'"':
        raise _wrong(data, at, "looking for beginning of object key string")
    at = _skip(data, _text(data, at))
    if data[at : at + 1] != b":":
        raise _wrong(data, at, "after object key")
    return at + 1


def _scalar(data: bytes, at: int) -> int:
    first = data[at : at + 1]
    if first == b'"':
        return _text(data, at)
    if literal := _LITERALS.get(first):
        return _literal(data, at, literal)
    if not first or first not in b"-0123456789":
        raise _wrong(data, at, "looking for beginning of value")
    found = _NUMBER.match(data, at)
    end = found.end() if found else at
    for pattern, where in _UNFINISHED:
        cut = pattern.match(data, at)
        if cut and cut.end() > end:
            raise _wrong(data, cut.end(), where)
    return end


def _literal(data: bytes, at: int, literal: bytes) -> int:
    for i, letter in enumerate(literal):
        if data[at + i : at + i + 1] != bytes([letter]):
            raise _wrong(data, at + i, f"in literal {literal.decode()} (expecting '{chr(letter)}')")
    return at + len(literal)


def _text(data: bytes, at: int) -> int:
    found = _PART.match(data, at)
    end = found.end() if found else at
    if data[end : end + 1] == b'"':
        return end + 1
    if data[end : end + 1] != b"\\":
        raise _wrong(data, end, "in string literal")
    if data[end + 1 : end + 2] != b"u":
        raise _wrong(data, end + 1, "in string escape code")
    digits = re.compile(rb"[0-9a-fA-F]{0,3}").match(data, end + 2)
    raise _wrong(data, digits.end() if digits else end + 2, r"in \u hexadecimal character escape")


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


@dataclass(eq=False, repr=False)
class ApiError(MoorageError):
    """A rejected request.

    ``group``, ``kind`` and ``name`` identify its subject; ``kind`` holds a resource's plural or a kind, as in the API.
    ``routed`` is False for errors raised before the request reached a handler, whose details are always present but empty.
    """

    code: int
    reason: str
    message: str
    _: KW_ONLY
    group: str = ""
    kind: str = ""
    name: str = ""
    causes: Sequence[Cause] = ()
    retry_after_s: int = 0
    #: The token with which an expired list goes on.
    continues: str = ""
    routed: bool = True
    #: Warnings to send with the error.
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        Exception.__init__(self, self.message)  # sent to the client unchanged
        self.causes = tuple(self.causes)

    def status(self) -> dict[str, Any]:
        """Return the ``Status`` object of this error."""
        details: dict[str, Any] = {"name": self.name, "group": self.group, "kind": self.kind}
        details["causes"] = [cause.document() for cause in self.causes]
        details["retryAfterSeconds"] = self.retry_after_s
        details = {key: value for key, value in details.items() if value}
        status: dict[str, Any] = {
            "kind": "Status", "apiVersion": "v1", "metadata": {"continue": self.continues} if self.continues else {},
            "status": "Failure", "message": self.message, "reason": self.reason, "details": details, "code": self.code,
        }  # fmt: skip
        # Unknown reasons are left out, and so are empty details of routed requests.
        kept = {"metadata"} if self.routed else {"metadata", "details"}
        return {key: value for key, value in status.items() if value or key in kept}


def success(group: str = "", kind: str = "", name: str = "", uid: str = "", code: int = 0) -> dict[str, Any]:
    """Return the ``Status`` object of a successful request that returns no object."""
    details = {key: value for key, value in {"name": name, "group": group, "kind": kind, "uid": uid}.items() if value}
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = details
    if code:
        status["code"] = code
    return status


def _qualified(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


# -- errors about an object --------------------------------------------------------------------------------------------


def not_found(resource: str, group: str, name: str) -> ApiError:
    """Return the error for an object that does not exist."""
    message = f"{_qualified(resource, group)} {quoted(name)} not found"
    return ApiError(404, "NotFound", message, group=group, kind=resource, name=name)


def already_exists(resource: str, group: str, name: str, *, is_generated: bool = False, is_deleted: bool = False) -> ApiError:
    """Return the error for a name that is taken. ``is_generated``: the client lets the server generate names.

    ``is_deleted``: the object that has the name is being deleted.
    """
    message = "object is being deleted: " if is_deleted else ""
    message += f"{_qualified(resource, group)} {quoted(name)} already exists"
    if not is_generated:
        return ApiError(409, "AlreadyExists", message, group=group, kind=resource, name=name)
    message += ", the server was not able to generate a unique name for the object"
    return ApiError(409, "AlreadyExists", message, group=group, kind=resource, name=name, retry_after_s=1)


def conflict(resource: str, group: str, name: str, why: str) -> ApiError:
    """Return the error for a change that conflicts with another."""
    message = f"Operation cannot be fulfilled on {_qualified(resource, group)} {quoted(name)}: {why}"
    return ApiError(409, "Conflict", message, group=group, kind=resource, name=name)


def forbidden(resource: str, group: str, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    """Return the error for an action that is not allowed."""
    subject = " ".join(filter(None, [_qualified(resource, group), quoted(name) if name else ""]))
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", group=group, kind=resource, name=name, causes=causes)


#: Machine-readable reasons of validation faults.
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


#: Maximum number of faults in an error, and of characters in their texts; formatting each takes time.
MAX_FAULTS: Final = 1000
MAX_FAULT_TEXT: Final = 1 << 20


def invalid(kind: str, group: str, name: str, faults: Iterable[Fault]) -> ApiError:
    """Return the error for an invalid object. Faults beyond the limits are not computed."""
    found, fault_texts = bounded(faults)
    texts = list(dict.fromkeys(fault_texts))
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    message = f"{_qualified(kind, group)} {quoted(name)} is invalid: {joined}"
    causes = [Cause(_CAUSES.get(fault.kind, "FieldValueInvalid"), fault.body, fault.field) for fault in found]
    return ApiError(422, "Invalid", message, group=group, kind=kind, name=name, causes=causes)


def bounded(faults: Iterable[_F]) -> tuple[list[_F], list[str]]:
    """Return the faults within the limits and their texts. If there are more faults, a text at the end says so."""
    found: list[_F] = []
    texts: list[str] = []
    size = 0
    for fault in faults:
        text = str(fault)
        size += len(text)
        if found and (len(found) == MAX_FAULTS or size > MAX_FAULT_TEXT):
            texts.append(f"only the first {len(found)} errors are listed")
            break
        found.append(fault)
        texts.append(text)
    return found, texts


# -- errors about a request --------------------------------------------------------------------------------------------


def bad_request(message: str) -> ApiError:
    """Return the error for a malformed request."""
    return ApiError(400, "BadRequest", message)


def unauthorized(message: str = "Unauthorized") -> ApiError:
    """Return the error for a request without valid credentials."""
    return ApiError(401, "Unauthorized", message)


def not_found_path() -> ApiError:
    """Return the error for a path below an API prefix that is not served."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", routed=False)


class PlainError(ApiError):
    """An error outside of every API, sent as plain text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, "", text, routed=False)


def no_such_page() -> PlainError:
    """Return the error for a path outside the API prefixes."""
    return PlainError(404, "404 page not found\n")


def not_supported(resource: str, group: str, verb: str) -> ApiError:
    """Return the error for a verb that a custom kind does not support."""
    message = f"{verb} is not supported on resources of kind {quoted(_qualified(resource, group))}"
    return ApiError(405, "MethodNotAllowed", message, group=group, kind=resource)


def not_allowed(why: str = "") -> ApiError:
    """Return the error for a method that a path does not support; ``why`` is added to the message."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", f"{message}: {why}" if why else message, routed=False)


def not_acceptable(accepted: Iterable[str]) -> ApiError:
    """Return the error for a client that accepts none of the encodings of a representation."""
    return ApiError(406, "NotAcceptable", f"only the following media types are accepted: {', '.join(accepted)}")


def not_acceptable_form(form: str, what: str) -> ApiError:
    """Return the error for a list form requested for one object, or the reverse."""
    return ApiError(406, "NotAcceptable", f"you requested {form}, but the requested object is {what}")


def expired(message: str, continues: str = "") -> ApiError:
    """Return the error for a version that is no longer cached. ``continues``: the token that goes on with another version."""
    return ApiError(410, "Expired", message, continues=continues)


def too_large(limit: int) -> ApiError:
    """Return the error for a body larger than ``limit`` bytes."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def unsupported_media(accepted: Iterable[str]) -> ApiError:
    """Return the error for a body in an unsupported format."""
    why = "the body of the request was in an unknown format - accepted media types include"
    return ApiError(415, "UnsupportedMediaType", f"{why}: {', '.join(accepted)}")


def too_many(message: str, retry_after_s: int = 0, causes: Sequence[Cause] = ()) -> ApiError:
    """Return the error for a request that may be retried later."""
    return ApiError(429, "TooManyRequests", message, retry_after_s=retry_after_s, causes=causes)


def internal(message: str) -> ApiError:
    """Return the error for an unexpected condition in the server."""
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", causes=[Cause("", message)])


def unknown(message: str) -> ApiError:
    """Return the error for a failure without a reason."""
    return ApiError(500, "", message)


def timeout(wanted: int, current: int) -> ApiError:
    """Return the error for a future version."""
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    causes = [Cause("ResourceVersionTooLarge", "Too large resource version")]
    return ApiError(504, "Timeout", message, causes=causes, retry_after_s=1)
