"""The request that changes the cluster: run a kubectl command that a page shows and the user confirms.

The server makes kubectl's requests for it in the name of the session's user, so that authorization, admission and validation
apply as for any client. The request is refused unless ``moorage up --ui-write`` allows it. Each command is reported.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from moorage.apiserver.vocabulary.statuses import ApiError
from moorage.printable import clip
from moorage.web.kubectl_commands import run_command
from moorage.web.site import Site, json_response, read_body
from moorage.web.visitors import Visitor

__all__ = ["CommandRoute"]

#: Makes a request to the API: method, path, query, body and media type. Returns the response's JSON; raises ApiError.
_Perform = Callable[[Visitor, str, str, dict[str, str], bytes, str], Awaitable[bytes]]

_MOST_SHOWN: Final = 300
_LOG: Final = logging.getLogger(__name__)


class CommandBody(msgspec.Struct, rename="camel"):
    command: str
    dry_run: bool = False


class CommandRoute:
    """Adds the route to a site. ``report`` gets a line for each command; if ``perform`` is None, all are refused."""

    def __init__(self, site: Site, perform: _Perform | None, report: Callable[[str], None] | None) -> None:
        self._perform, self._report = perform, report or _LOG.info
        site.writable = perform is not None
        site.route("POST", "/lab/v1/commands", self._run)

    async def _run(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        if self._perform is None:
            raise ApiError(403, "Forbidden", "the web interface changes nothing: start moorage up with --ui-write")
        body: CommandBody = await read_body(request, CommandBody)
        try:
            message = await run_command(body.command, self._act(self._perform, visitor, dry_run=body.dry_run))
        except ApiError as error:
            self._log_command(visitor, body, f"refused: {error.message}")
            raise
        self._log_command(visitor, body, message)
        return json_response({"message": message + (" (server dry run)" if body.dry_run else "")})

    def _act(self, perform: _Perform, visitor: Visitor, *, dry_run: bool) -> Any:
        async def act(method: str, path: str, body: Any = None, media: str = "application/json") -> dict[str, Any]:
            query = {"dryRun": "All"} if dry_run and method != "GET" else {}
            sent = b"" if body is None else msgspec.json.encode(body)
            found: dict[str, Any] = msgspec.json.decode(await perform(visitor, method, path, query, sent, media))
            return found

        return act

    def _log_command(self, visitor: Visitor, body: CommandBody, outcome: str) -> None:
        """Report a command, unless it is a dry run, which changes nothing."""
        if not body.dry_run:
            name, command, said = (clip(one, _MOST_SHOWN) for one in (visitor.name, body.command, outcome))
            self._report(f"web interface: {name}: {command}: {said}")
