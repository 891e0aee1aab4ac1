"""The listening end: a socket as the flags ask for it, and an application served on it.

Source  apiserver/pkg/server/options/serving.go, ApplyTo; secure_serving.go
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final

from aiohttp import web

from moorage.apiserver.http.accepting import BACKLOG, Door, Rules
from moorage.errors import InputError

__all__ = ["listen", "serving"]

#: Probes, scrapers and people are few; and whoever is slow is cut off.
MOST_CONNECTIONS: Final = 500
PATIENCE_S: Final = 10.0
#: How long a client may take to read an answer, in seconds.
ANSWER_S: Final = 60.0
#: How long those who are still connected at the end are waited for, in seconds.
_FAREWELL_S: Final = 1.0


def listen(address: str, port: int, *, share_port: bool = False) -> socket.socket:
    """Return a socket that listens; an unspecified address stands for all there are, of both families.

    Raises  InputError if that cannot be, as when it is taken
    """
    where = ip_address(address)
    both = where.is_unspecified and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or where.version == 6 else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share_port:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        opened.bind(("::" if both else str(where), port))
        opened.listen(BACKLOG)
        opened.setblocking(False)
    except OSError as error:
        opened.close()
        told = (error.strerror or str(error)).lower()
        place = f"{where}:{port}"
        raise InputError(f"failed to create listener: failed to listen on {place}: listen tcp {place}: bind: {told}") from None
    return opened


@asynccontextmanager
async def serving(
    app: web.Application,
    opened: socket.socket,
    tls: ssl.SSLContext | None,
    *,
    most: int = MOST_CONNECTIONS,
    patience_s: float = PATIENCE_S,
) -> AsyncIterator[int]:
    """Serve while the context lasts, without ``tls`` over plain HTTP; yields the port.

    Callers have ``patience_s`` for a handshake and for a request's head.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_FAREWELL_S)
    await runner.setup()
    assert runner.server is not None, "an application that was set up has a server"
    door = Door(runner.server, Rules(most, patience_s, ANSWER_S, _FAREWELL_S, tls))
    try:
        port = int(opened.getsockname()[1])
        door.open([opened])
        yield port
    finally:
        door.shut()
        await runner.cleanup()
        await door.close(_FAREWELL_S)
