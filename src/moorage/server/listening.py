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

from moorage.errors import InputError

__all__ = ["listen", "serving"]

_BACKLOG: Final = 128
_IDLE_S: Final = 60.0
_MOST_HEADER: Final = 16 << 10


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
        opened.listen(_BACKLOG)
        opened.setblocking(False)
    except OSError as error:
        opened.close()
        raise InputError(f"failed to create listener: listen tcp {where}:{port}: {error.strerror}") from None
    return opened


@asynccontextmanager
async def serving(app: web.Application, opened: socket.socket, tls: ssl.SSLContext) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port."""
    runner = web.AppRunner(
        app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=_IDLE_S, max_line_size=_MOST_HEADER,
        max_field_size=_MOST_HEADER,
    )  # fmt: skip
    await runner.setup()
    try:
        await web.SockSite(runner, opened, ssl_context=tls).start()
        yield int(opened.getsockname()[1])
    finally:
        await runner.cleanup()
        opened.close()
