"""One TCP connection, with optional TLS.

asyncio's TLS costs several times the encryption itself for each message, as it supports streams of any length and flow
control. Short requests and responses need neither. Here received bytes go into OpenSSL's memory buffer and come out
decrypted, and a message is encrypted and written in one piece. OpenSSL verifies the server as configured in the TLS
context.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, cast

__all__ = ["Channel"]

#: Maximum size of a TLS record.
_BUFFER_SIZE: Final = 16 << 10


class Channel(asyncio.BufferedProtocol):
    """A connection. ``ready`` completes when messages can be sent, or holds the error.

    ``session`` is a TLS session of an earlier connection to the same server, which shortens the handshake. Subclasses
    implement ``received`` and ``closed``.
    """

    def __init__(self, tls: ssl.SSLContext | None, server_name: str | None, session: ssl.SSLSession | None = None) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_BUFFER_SIZE))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        if tls is not None:
            self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name, session=session)
        self._tls_error: Exception | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def session(self) -> ssl.SSLSession | None:
        """The TLS session for further connections to the same server; complete after the first received message."""
        return None if self._tls is None else self._tls.session

    def close(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()

    def send_message(self, message: bytes) -> None:
        """Send a message. If the connection is lost, ``closed`` is called.

        Raises  OSError if TLS fails
        """
        if self._transport is None:
            return
        if self._tls is not None:
            sent = self._tls.write(message)
            while sent < len(message):  # a record at a time
                sent += self._tls.write(memoryview(message)[sent:])
            message = self._outgoing.read()
        self._transport.write(message)

    def received(self, data: bytes) -> None:
        """Handle received data."""
        raise NotImplementedError

    def closed(self, error: Exception | None) -> None:
        """Handle the end of the connection; ``error`` is None if either side closed it."""
        raise NotImplementedError

    # -- called by asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # other event loops may have their own transport classes
        if self._tls is None:
            self._resolve_ready(None)
        else:
            self._process_tls(self._tls)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._tls is None:
            self.received(bytes(self._buffer[:nbytes]))
            return
        self._incoming.write(self._buffer[:nbytes])
        self._process_tls(self._tls)

    def connection_lost(self, exc: Exception | None) -> None:
        error = exc or self._tls_error
        self._resolve_ready(error or ConnectionResetError("the connection ended before it was secured"))
        self.closed(error)

    # -- TLS -----------------------------------------------------------------------------------------------------------

    def _process_tls(self, tls: ssl.SSLObject) -> None:
        """Process received TLS data, and send what TLS responds. What several records hold is received as one."""
        records: list[bytes] = []
        try:
            if not self.ready.done():
                tls.do_handshake()
                self._resolve_ready(None)
            while self._incoming.pending:
                records.append(tls.read(_BUFFER_SIZE))
                if not records[-1]:  # close_notify
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._tls_error = error
        data = records[0] if len(records) == 1 else b"".join(records)
        if data:
            self.received(data)
        if records and not records[-1]:
            self.close()
            return
        if self._transport is not None and self._outgoing.pending:
            self._transport.write(self._outgoing.read())
        if self._tls_error is not None:
            self._resolve_ready(self._tls_error)
            self.close()

    def _resolve_ready(self, error: Exception | None) -> None:
        if not self.ready.done():
            if error is None:
                self.ready.set_result(None)
            else:
                self.ready.set_exception(error)
                self.ready.exception()  # marks the exception as retrieved if no task waits any more
