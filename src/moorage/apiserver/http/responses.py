"""Answers in the encoding that the client takes, and refusals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from moorage.apiserver.http.cautions import warning_headers
from moorage.apiserver.http.lists import ObjectList, encoded_list
from moorage.apiserver.http.sending import Part
from moorage.apiserver.schema.representations import JSON, accepted, encoded_as
from moorage.apiserver.vocabulary.http_messages import HTTPRequest, Response
from moorage.apiserver.vocabulary.statuses import ApiError, PlainError

__all__ = ["OutgoingResponse", "answer_of", "refusal"]


class OutgoingResponse(NamedTuple):
    """What is sent. ``held`` is how much of it is there as a whole, in bytes: the parts of a list are made as they are sent."""

    code: int
    headers: CIMultiDict[str]
    parts: Iterable[Part]
    held: int = 0


def answer_of(asked: HTTPRequest, response: Response) -> OutgoingResponse:
    """Return a response in the encoding that its client takes."""
    encoding = accepted(asked.accept).encoding
    pretty = asked.flag("pretty") and encoding == JSON
    headers, content = _headers(encoding, response.warnings), response.content
    if isinstance(content, ObjectList):
        return OutgoingResponse(response.code, headers, _ended(encoding, encoded_list(content, encoding, pretty=pretty)))
    if not content:
        return OutgoingResponse(response.code, CIMultiDict({"Content-Type": "text/plain"}), ())
    body = msgspec.json.format(response.body, indent=2) if pretty else response.body
    body = encoded_as(encoding, body)
    return OutgoingResponse(response.code, headers, [*_ended(encoding, [body])], len(body))


def refusal(error: ApiError, accept: str) -> web.Response:
    """Return the answer to a request that is refused."""
    if isinstance(error, PlainError):
        return web.Response(status=error.code, text=error.message)
    try:
        encoding = accepted(accept).encoding
    except ApiError:
        encoding = JSON  # a client that can read nothing is answered all the same
    headers = _headers(encoding, error.warnings)
    if error.retry_after_s:
        headers["Retry-After"] = str(error.retry_after_s)
    body = b"".join(_ended(encoding, [encoded_as(encoding, msgspec.json.encode(error.status()))]))
    return web.Response(status=error.code, body=body, headers=headers)


def _headers(encoding: str, warnings: tuple[str, ...] = ()) -> CIMultiDict[str]:
    headers = CIMultiDict({"Content-Type": encoding})
    for warning in warning_headers(warnings):
        headers.add("Warning", warning)
    return headers


def _ended(encoding: str, parts: Iterable[Part]) -> Iterator[Part]:
    """Yield an answer with the end of line that JSON has there."""
    yield from parts
    if encoding == JSON:
        yield b"\n"
