"""Ports for servers that tests start as processes."""

import socket
import sys

__all__ = ["reserve_port"]

_HELD = []


def reserve_port():
    """Return a port of 127.0.0.1 for a server that sets SO_REUSEADDR, as Moorage does.

    A socket is bound to it until this process ends, and does not listen: the kernel then gives the port to no other server
    and to no client, and refuses connections until a server listens.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]
    if sys.platform.startswith("linux"):
        _HELD.append(held)
    else:  # BSD lets no second socket bind to the same address
        held.close()
    return port
