"""A reserved port is refused until a server of Moorage listens on it."""

import socket

import pytest

from moorage.live.server.listening import listen
from tests.ports import reserve_port


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_reserved_port_waits_for_its_server(address):
    port = reserve_port()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
    with listen(address, port), socket.create_connection(("127.0.0.1", port), 5):
        pass
