"""Encode responses and errors for the client."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from moorage.api.documents.audit_notes import AuditNotes
from moorage.api.documents.http_messages import HTTPRequest, Response
from moorage.api.documents.statuses import ApiError, PlainError
from moorage.cluster.apiserver.http.lists import LargeParts, ObjectList, Part, encoded_list
from moorage.cluster.apiserver.schema.representations import JSON, accepted, encoded_as, encoding_of_errors, in_version

# ``Warning`` headers, limited in length and number so that clients accept the response.
#
# Source  apiserver, pkg/endpoints/filters/warning.go (AddWarning); apimachinery, pkg/util/net/http.go (NewWarningHeader)

#: Total number of characters up to which warnings are sent in full; beyond it, each is truncated to MAX_WARNING.
MAX_TOTAL: Final = 4096
MAX_WARNING: Final = 256
#: Maximum number of warnings. Python's http.client accepts 100 headers in a response, of which about a dozen are
#: others. kube-apiserver has no such limit.
MAX_WARNINGS: Final = 80
#: Characters that a header cannot contain: control characters and lone surrogates.
_UNSENDABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def warning_headers(texts: Iterable[str]) -> list[str]:
    """Return the values of a response's ``Warning`` headers: one per distinct text that a header can contain."""
    unique = list(dict.fromkeys(text for text in texts if text and not _UNSENDABLE.search(text)))
    if sum(map(len, unique)) > MAX_TOTAL:
        unique = _truncated(unique)
    return [f"299 - {_quoted(text)}" for text in unique[:MAX_WARNINGS]]


def _truncated(texts: list[str]) -> list[str]:
    """Truncate each warning, and drop those after the one that reaches the total.

    Warnings collected before the full texts first exceeded the total are always sent, as in kube-apiserver.
    """
    kept: list[str] = []
    full_length = length = 0
    for text in texts:
        if full_length > MAX_TOTAL and length >= MAX_TOTAL:
            break
        full_length += len(text)
        kept.append(text[:MAX_WARNING])
        length += len(kept[-1])
    return kept


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class OutgoingResponse(NamedTuple):
    """A response to send. ``held`` is the size in bytes of the parts in memory; lists are encoded as they are sent."""

    code: int
    headers: CIMultiDict[str]
    parts: Iterable[Part]
    held: int = 0


def encode_response(request: HTTPRequest, response: Response) -> OutgoingResponse:
    """Return a response in the encoding that the client accepts."""
    negotiated = accepted(request.accept)
    encoding = negotiated.encoding
    pretty = request.flag("pretty") and encoding == JSON
    headers, content = _headers(encoding, response.warnings), response.content
    if request.audit is not None:
        _note(request.audit, response, negotiated.version if negotiated.form else "")
    if isinstance(content, ObjectList):
        content = content.in_version(negotiated.version) if negotiated.form else content
        parts = _with_newline(encoding, encoded_list(content, encoding, pretty=pretty))
        is_large = (content.is_decoded or pretty or encoding != JSON) and content.is_large
        return OutgoingResponse(response.code, headers, LargeParts(parts) if is_large else parts)
    if not content:
        return OutgoingResponse(response.code, CIMultiDict(), ())
    body = in_version(negotiated.version, response.body) if negotiated.form else response.body
    body = msgspec.json.format(body, indent=2) if pretty else body
    body = encoded_as(encoding, body)
    return OutgoingResponse(response.code, headers, [*_with_newline(encoding, [body])], len(body))


def _note(notes: AuditNotes, response: Response, version: str) -> None:
    """Note a response for the audit log, as JSON in the version that the client accepts."""
    head = response.content if isinstance(response.content, bytes) else b""
    notes.answered(lambda: in_version(version, response.body) if version and response.body else response.body, head)


def error_response(error: ApiError, accept: str) -> web.Response:
    """Return the response to a rejected request."""
    if isinstance(error, PlainError):
        return web.Response(status=error.code, text=error.message)
    encoding = encoding_of_errors(accept)
    headers = _headers(encoding, error.warnings)
    if error.retry_after_s:
        headers["Retry-After"] = str(error.retry_after_s)
    body = b"".join(_with_newline(encoding, [encoded_as(encoding, msgspec.json.encode(error.status()))]))
    return web.Response(status=error.code, body=body, headers=headers)


def _headers(encoding: str, warnings: tuple[str, ...] = ()) -> CIMultiDict[str]:
    headers = CIMultiDict({"Content-Type": encoding})
    for warning in warning_headers(warnings):
        headers.add("Warning", warning)
    return headers


def _with_newline(encoding: str, parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the parts of a response, with the newline that ends JSON."""
    yield from parts
    if encoding == JSON:
        yield b"\n"
