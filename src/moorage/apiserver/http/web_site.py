"""The interface for pages beside the API, such as a web interface, on the same port and with the same credentials."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web

from moorage.apiserver.http.limits import Seats
from moorage.apiserver.vocabulary.http_messages import HTTPRequest
from moorage.apiserver.vocabulary.users import User

__all__ = ["Perform", "WebSite"]

#: Answers a request to the API that a page makes in a user's name: the JSON of the response. Raises ApiError.
Perform = Callable[[HTTPRequest], Awaitable[bytes]]


class WebSite(Protocol):
    """Answers the requests to its paths. The server checks Host and Origin first."""

    def connect(self, perform: Perform) -> None:
        """Store ``perform``, which makes requests to the API. The server calls this once, before the first request."""

    def serves(self, path: str) -> bool:
        """Return True for a path of the site."""

    def session_user(self, request: web.BaseRequest) -> User | None:
        """Return the user of the session that a request belongs to."""

    async def answer(self, request: web.BaseRequest, user: User | None, seats: Seats) -> web.StreamResponse:
        """Return the response to a request; ``user`` is None without a valid credential.

        Raises  ApiError
        """

    def end(self) -> None:
        """End all streams, because the server stops."""
