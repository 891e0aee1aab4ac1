"""Listening sockets, and serving an application on them with limits on connections.

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

from moorage.basis.serving.connections import BACKLOG, AcceptLimits, ConnectionAcceptor
from moorage.basis.serving.listen_addresses import cannot_listen
from moorage.errors import InputError

#: Health checks, scrapers and people need few connections, and slow ones are closed.
MOST_CONNECTIONS: Final = 500
PATIENCE_S: Final = 10.0
#: Seconds that a client may take to read a response.
ANSWER_S: Final = 60.0
#: Seconds that open connections may take to finish at shutdown.
_FAREWELL_S: Final = 1.0


def listen(address: str, port: int, *, share_port: bool = False, option: str = "") -> socket.socket:
    """Return a listening socket; an unspecified address stands for all interfaces, IPv4 and IPv6.

    ``option``: the option of Moorage that gives the port. Without it, an error has kube-scheduler's words.

    Raises  InputError, or ConfigError with ``option``, if the address cannot be used, for example because the port is in use
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
        if option:
            raise cannot_listen(option, str(where), port, error) from None
        reason = (error.strerror or str(error)).lower()
        place = f"{where}:{port}"
        raise InputError(
            f"failed to create listener: failed to listen on {place}: listen tcp {place}: bind: {reason}"
        ) from None
    return opened


@asynccontextmanager
async def serving(
    app: web.Application, opened: socket.socket, tls: ssl.SSLContext | None, *, most: int = MOST_CONNECTIONS,
    patience_s: float = PATIENCE_S,
) -> AsyncIterator[int]:  # fmt: skip
    """Serve until the context exits, over plain HTTP without ``tls``; yields the port.

    A client has ``patience_s`` for a TLS handshake and for the head of a request.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_FAREWELL_S)
    await runner.setup()
    assert runner.server is not None, "an application that was set up has a server"
    door = ConnectionAcceptor(runner.server, AcceptLimits(most, patience_s, ANSWER_S, _FAREWELL_S, tls))
    try:
        port = int(opened.getsockname()[1])
        door.open([opened])
        yield port
    finally:
        door.shut()
        await runner.cleanup()
        await door.close(_FAREWELL_S)
